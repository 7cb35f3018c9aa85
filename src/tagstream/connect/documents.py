"""What is done with the documents of paperless-ngx: learn them, suggest, follow what changes.

A document is *reviewed* when it has no inbox tag and a person has tagged it.  Reviewed documents
are learnt; others get suggestions.  A tag that a person sets or takes away makes a document
reviewed; a tag that we or the server set does not.

``modified`` is no reliable mark of a change (some changes never move it, others move it late).  So
changes are asked for with an overlap, and now and then all tags, and all texts, are looked through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from tagstream.connect.paperless import Document, Paperless, PaperlessTag
from tagstream.connect.reviewing import is_open, lesson_of, new_item, seen_again
from tagstream.connect.state import Known
from tagstream.connect.target import Suggested, clean_tag, clean_text
from tagstream.connect.teaching import Teacher
from tagstream.connect.web import WebError

__all__ = ["Documents", "Labels", "Settings"]

OVERLAP = timedelta(seconds=120)  # changes of one moment can become visible one after another
MOST_OFFERED = 5  # tags of a note
MOST_ALIKE = 3  # documents of a note
NOTE = "tagstream suggests: "
LIGHT = "id,modified,tags"  # fields that cost the server little
BLOCK = 100  # documents that are asked about at a time

Progress = Callable[[int, "int | None"], None]


@dataclass(frozen=True)
class Settings:
    """What a connector may do.

    Attributes
    ----------
    create_tags : bool
        Create tags that the target knows and the server does not.
    notes : bool
        Write suggestions as notes.
    backlog : bool
        Also suggest for documents that were there, without review, when it began.
    sweep, texts : float
        Seconds between two looks at all tags, and at all texts.
    """

    create_tags: bool = False
    notes: bool = True
    backlog: bool = False
    sweep: float = 3600.0
    texts: float = 86400.0


class Labels:
    """Tags of the server as labels of the target.

    Labels are kept by the id of the tag: two users may each have a tag of the same name.  A label
    that a tag had stays its own as long as the tag's name stays.

    Parameters
    ----------
    tags : list of PaperlessTag
    before : mapping
        Id (as a string) to [name, label, parent], as :attr:`known` was.
    """

    def __init__(self, tags: Iterable[PaperlessTag], before: Mapping[str, Any]) -> None:
        self.inbox = frozenset(tag.id for tag in tags if tag.is_inbox)
        seen = {tag.id: tag for tag in tags if not tag.is_inbox}
        self.parents = {id: tag.parent for id, tag in seen.items()}
        kept = {
            int(id): label
            for id, (name, label, _) in before.items()
            if int(id) in seen and seen[int(id)].name == name
        }
        taken, self._label = {*kept.values()}, dict(kept)
        for id, tag in sorted(seen.items()):
            label = clean_tag(tag.name)
            if id not in kept and label:
                label = f"{label} #{id}" if label in taken else label
                self._label[id] = label
                taken.add(label)
        self._id = {label: id for id, label in self._label.items()}
        self.known = {
            str(id): [seen[id].name, label, seen[id].parent] for id, label in self._label.items()
        }

    def __len__(self) -> int:
        return len(self._label)

    def id_of(self, label: str) -> int | None:
        """Return the tag of a label."""
        return self._id.get(label)

    def above(self, ids: Iterable[int]) -> set[int]:
        """Return the tags above some tags."""
        found: set[int] = set()
        for id in ids:
            parent = self.parents.get(id)
            while parent is not None and parent not in found:
                found.add(parent)
                parent = self.parents.get(parent)
        return found

    def names(self, tags: Iterable[int]) -> tuple[str, ...]:
        """Return the labels of tags, as far as they have one."""
        return tuple(sorted(self._label[id] for id in tags if id in self._label))

    def of(self, tags: Iterable[int]) -> tuple[str, ...]:
        """Return the labels of a document: its most specific tags that can be seen, no inbox."""
        tags = {*tags}
        return self.names(tags - self.above(tags))

    def changed_since(self, before: Mapping[str, Any]) -> set[int]:
        """Return the tags that are gone, new of name, or elsewhere among the others."""
        return {int(id) for id, told in before.items() if self.known.get(id) != [*told]}


class Documents:
    """Follows the documents of a server.

    Parameters
    ----------
    server : Paperless
    teacher : Teacher
    settings : Settings, optional
    progress : callable (done, total), optional
    clock : callable
        Seconds since 1970.
    """

    def __init__(
        self,
        server: Paperless,
        teacher: Teacher,
        settings: Settings | None = None,
        progress: Progress = lambda done, total: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.server, self.teacher, self.settings = server, teacher, settings or Settings()
        self.state, self.report = teacher.state, teacher.report
        self.progress, self.clock = progress, clock
        self.labels = Labels([], {})

    def go(self) -> None:
        """Do one round: learn what there is, or what has changed, and push suggestions."""
        before = self.state.fact("tags")
        self.labels = Labels(self.server.tags(), before or {})
        if self.teacher.check():
            self.state.set_facts({"since": None})
        if before is None:
            now = self.clock()
            self.state.set_facts({"texts": now, "sweep": now, "tags": self.labels.known})
        elif self.labels.known != before:
            self._take_new_labels(before)
        if self.state.fact("first", True):
            self._learn_all()
        else:
            self._follow()
        self._suggest()

    # ------------------------------------------------------------------ reading
    def _learn_all(self) -> None:
        """Learn all reviewed documents, going on where an earlier run was broken off."""
        n = 0
        for page in self.server.documents(self.state.fact("since")):
            self._take(page, {"since": page[-1].modified}, is_first=True)
            n += len(page)
            self.progress(n, None)
        if self.report.counts["learnt"] and not self.teacher.target.refit():
            self.report.warn(
                "the token may not refit the model; the owner of the service should, once"
            )
        self.state.set_facts({"first": False, "mark": self.teacher.target.mark()})

    def _follow(self) -> None:
        """Take in what has changed since the last round."""
        now, since, n = self.clock(), self.state.fact("since"), 0
        waited = {name: now - self.state.fact(name) for name in ("sweep", "texts")}
        looks_at_all = since is None or waited["texts"] >= self.settings.texts
        start = None if looks_at_all else _earlier(since)
        for page in self.server.documents(start):
            since = max(page[-1].modified, since or page[-1].modified, key=_when)
            self._take(page, {"since": since})
            n += len(page)
            self.progress(n, None)
        if looks_at_all or waited["sweep"] >= self.settings.sweep:
            self._sweep()
            self.state.set_facts({"sweep": now, **({"texts": now} if looks_at_all else {})})

    def _sweep(self) -> None:
        """Look at the tags of all documents: deleted ones, and changes that moved no time."""
        listed: dict[int, frozenset[int]] = {}
        for page in self.server.documents(None, LIGHT, 1000):
            listed |= {one.id: one.tags for one in page}
        known = {int(name): one for name, one in self.state.items() if not _is_gone(one)}
        missing = [id for id in known if id not in listed]
        there = {one.id for one in self.server.some(missing)}  # a list can miss what is moving
        self.teacher.forget(str(id) for id in missing if id not in there)
        moved = [
            id
            for id, tags in listed.items()
            if id not in known or sorted(tags) != known[id].about["tags"]
        ]
        self._take(self.server.some(sorted(moved)))

    def _take_new_labels(self, before: Mapping[str, Any]) -> None:
        """Teach documents again whose tags were renamed, moved or deleted."""
        gone = self.labels.changed_since(before)
        touched = [
            int(name)
            for name, known in self.state.items()
            if not _is_gone(known) and gone & {*(known.about.get("reviewed") or ())}
        ]
        self._take(self.server.some(sorted(touched)), {"tags": self.labels.known})

    # ------------------------------------------------------------------ what a document says
    def _take(
        self,
        page: list[Document],
        facts: Mapping[str, Any] | None = None,
        *,
        is_first: bool = False,
    ) -> None:
        """Learn what is to be learnt of documents, and remember them as they are now."""
        seen: dict[str, Known] = {}
        lessons = []
        for one in page:
            known = self._known(one, is_first=is_first)
            lesson = lesson_of(str(one.id), _text(one), known, self.labels.of, self.labels.names)
            lessons += [] if lesson is None else [lesson]
            seen[str(one.id)] = known
        self.teacher.teach(lessons, seen, facts)
        for one in page:
            known = seen[str(one.id)]
            if not is_open(known) and known.about.get("note"):
                self._write_note(one, "")  # it has served

    def _known(self, one: Document, *, is_first: bool) -> Known:
        """Return what is to be remembered of a document."""
        known, in_inbox = self.state.item(str(one.id)), bool(one.tags & self.labels.inbox)
        if known is not None:
            return seen_again(
                known,
                one.tags,
                _text(one),
                in_inbox=in_inbox,
                is_by_machine=lambda: self._is_by_server(one),
            )
        is_reviewed = not in_inbox and bool(self.labels.of(one.tags))
        if is_first:  # who works with an inbox has seen what is not in it, also if it has no tags
            is_reviewed |= not in_inbox and bool(self.labels.inbox)
        elif is_reviewed:
            is_reviewed = not self._is_by_server(one)
        waits = not is_first or self.settings.backlog
        return new_item(one.tags, _text(one), is_reviewed=is_reviewed, waits=waits)

    def _is_by_server(self, one: Document) -> bool:
        """Tell whether the server set the tags last, as far as this can be known."""
        by_server = self.server.is_set_by_server(one.id)
        if by_server is None:
            self.report.warn(
                "the history of documents cannot be read: tags that rules or the server's own "
                "classifier set count as a person's; give the user the right view_logentry"
            )
        return bool(by_server)

    # ------------------------------------------------------------------ suggesting
    def _suggest(self) -> None:
        """Push suggestions for the documents that wait for them."""
        ids = sorted(map(int, self.state.waiting()))
        for start in range(0, len(ids), BLOCK):
            waiting = [one for one in self.server.some(ids[start : start + BLOCK]) if _text(one)]
            asked = [self._question(one) for one in waiting]
            told = self.teacher.target.suggest(asked) if asked else []
            for i, (one, said) in enumerate(zip(waiting, told, strict=True)):
                self._try_to_push(one, said)
                self.progress(start + i + 1, len(ids))

    def _question(self, one: Document) -> dict[str, Any]:
        return {"id": self.teacher.name(str(one.id)), "text": _text(one)}

    def _try_to_push(self, one: Document, said: Suggested) -> None:
        """Push suggestions; a document that this user may not change does not stop the others."""
        try:
            self._push(one, said)
        except WebError as error:
            if error.status not in (403, 404):
                raise
            self.report.warn(f"{_title(one)} is left alone: {error}")
            self._remember(one, waits=False)

    def _push(self, one: Document, said: Suggested) -> None:
        has = one.tags | self.labels.above(one.tags)
        offered = [tag for tag in said.tags if self._may_offer(tag, has)]
        auto = [tag for tag in offered if tag in said.auto]
        if auto:
            self._apply(one, auto)
        shown = [
            f"{tag} {said.scores.get(tag, 0.0):.2f}" for tag in offered if tag not in said.auto
        ][:MOST_OFFERED]
        if self.settings.notes and shown:
            like = self._alike(one)
            self._write_note(one, NOTE + ", ".join(shown) + (f"\nlike {like}" if like else ""))
            self.report.counts["noted"] += 1
            self.report.push(_title(one), "note", shown, like)
        elif self.settings.notes:
            self._write_note(one, "")
        self._remember(one, waits=False)

    def _may_offer(self, label: str, has: Iterable[int]) -> bool:
        id = self.labels.id_of(label)
        return self.settings.create_tags if id is None else id not in {*has}

    def _apply(self, one: Document, labels: list[str]) -> None:
        """Set tags that keep their promise, and remember that it was us."""
        ids = [self._tag(label) for label in labels]
        self.server.add_tags(one.id, ids)
        self.report.counts["tagged"] += 1
        self.report.push(_title(one), "tags", labels)
        after = one.tags | {*ids} | self.labels.above(ids)
        known = self.state.item(str(one.id)) or Known()
        ours = sorted({*known.about["ours"], *(after - one.tags)})
        self._remember(one, tags=sorted(after), ours=ours)

    def _tag(self, label: str) -> int:
        """Return the id of a tag; one that is not there is created, which was allowed then."""
        id = self.labels.id_of(label)
        if id is not None:
            return id
        id = self.server.create_tag(label)
        self.report.counts["created"] += 1
        if not self.server.dry:
            self.labels = Labels(self.server.tags(), self.labels.known)
            self.state.set_facts({"tags": self.labels.known})
        return id

    def _write_note(self, one: Document, text: str) -> None:
        """Write one note about a document, in place of what we wrote before; "" removes that."""
        about = (self.state.item(str(one.id)) or Known()).about
        if text == about.get("note", ""):
            return
        if about.get("note_id") is not None:
            self.server.remove_note(one.id, about["note_id"])
        there = [id for id, note in one.notes if note == text]  # of a run that was broken off
        note_id = there[0] if there else self.server.add_note(one.id, text) if text else None
        self._remember(one, note=text, note_id=note_id)

    def _remember(self, one: Document, *, waits: bool | None = None, **about: Any) -> None:
        known = self.state.item(str(one.id)) or Known()
        waits = known.waits if waits is None else waits
        told = replace(known, waits=waits, about={**known.about, **about})
        self.state.put({str(one.id): told})

    def _alike(self, one: Document) -> str:
        """Return the numbers of the most similar documents; not their titles, which are theirs."""
        near = self.teacher.target.explain(self._question(one))["neighbours"]
        ids = [self.teacher.id(entry["id"]) for entry in near[:MOST_ALIKE]]
        return ", ".join(f"#{id}" for id in ids if id is not None)


def _is_gone(known: Known) -> bool:
    return bool(known.about.get("gone"))


def _text(one: Document) -> str:
    return clean_text(one.title, one.content)


def _title(one: Document) -> str:
    return f"#{one.id} {one.title}".strip()


def _when(time: str) -> datetime:
    text = f"{time[:-1]}+00:00" if time.endswith("Z") else time
    return datetime.fromisoformat(text).astimezone(timezone.utc)


def _earlier(time: str) -> str:
    return (_when(time) - OVERLAP).isoformat(timespec="microseconds").replace("+00:00", "Z")
