"""A target that is a model file: read freely, changed under the lock of the file."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tagstream.connect.target import Lesson, Refused, Suggested
from tagstream.files import locks, persist
from tagstream.tagger import Tagger

__all__ = ["FileTarget"]

PATIENCE = 10.0  # seconds to wait for another process that changes the file
EVERY = 0.1


class FileTarget:
    """A model file.  It is opened again when another process has written it.

    Parameters
    ----------
    path : path
        It is made by the first change, if it is not there.
    dry : bool
        Learn in memory only, and write nothing.
    patience : float
        Seconds to wait for another process that changes the file.
    """

    def __init__(
        self, path: str | os.PathLike[str], dry: bool = False, patience: float = PATIENCE
    ) -> None:
        self.path, self.dry, self._patience = os.fspath(path), dry, patience
        self._mutex = threading.RLock()
        self._tagger: Tagger | None = None
        self._stamp: tuple[int, int, int] | None = None

    @property
    def name(self) -> str:
        """Its path."""
        return os.path.realpath(self.path)

    def mark(self) -> int:
        """Return how many items were learnt."""
        with self._mutex:
            return self._opened().n_items

    # ------------------------------------------------------------------ the file
    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _opened(self) -> Tagger:
        """Return the tagger as the file has it now; in a dry run as it was at first."""
        stamp = self._look()
        if self._tagger is None or (stamp != self._stamp and not self.dry):
            self._tagger = Tagger() if stamp is None else Tagger.open(self.path)
            for name in ("reading", "sources"):  # what the command line keeps in a model
                self._tagger.extra.setdefault(name, {})
            self._stamp = stamp
        return self._tagger

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Tagger]:
        """Hold the file, let the tagger be changed, and save it; on an error nothing is changed."""
        with self._mutex, contextlib.ExitStack() as stack:
            if not self.dry:
                self._hold(stack)
                persist.remove_leftovers(self.path)
            tagger = self._opened()
            try:
                yield tagger
                if not self.dry and tagger.n_items:
                    tagger.save(self.path)
                    self._stamp = self._look()
            except (KeyError, ValueError) as error:
                self._tagger = None if not self.dry else self._tagger
                raise Refused(str(error.args[0] if error.args else error)) from error
            except BaseException:
                self._tagger = None if not self.dry else self._tagger
                raise

    def _hold(self, stack: contextlib.ExitStack) -> None:
        end = time.monotonic() + self._patience
        while not self._has_taken(stack):
            if time.monotonic() >= end:
                raise OSError(
                    f"{self.path}: another process is changing this model; "
                    "try again when it is done"
                )
            time.sleep(EVERY)

    def _has_taken(self, stack: contextlib.ExitStack) -> bool:
        with contextlib.suppress(BlockingIOError):
            stack.enter_context(locks.held(self.path))
            return True
        return False

    # ------------------------------------------------------------------ asking
    def suggest(self, items: Sequence[dict[str, Any]]) -> list[Suggested]:
        """Suggest tags for items."""
        with self._asked() as tagger:
            return [_suggested(told) for told in tagger.suggest([*items])]

    def explain(self, item: dict[str, Any]) -> dict[str, Any]:
        """Say why."""
        with self._asked() as tagger:
            told = _suggested(tagger.suggest(item))
            said = {**asdict(told), "neighbours": [], "words": {}}
            if not tagger.n_items:
                return said
            why = tagger.explain(item)
            return {
                **said,
                "neighbours": [_neighbour(near) for near in why.neighbors],
                "words": {tag: _rounded(words) for tag, words in why.words.items()},
            }

    def tags(self) -> list[dict[str, Any]]:
        """List the tags."""
        with self._asked() as tagger:
            about = tagger.descriptions
            counts = sorted(tagger.counts.items(), key=lambda pair: (-pair[1], pair[0]))
            return [{"tag": t, "count": n, "about": about.get(t, "")} for t, n in counts]

    def find(self, words: Sequence[str], tag: str | None, n: int) -> list[dict[str, Any]]:
        """List stored items, the latest first."""
        wanted = [word.casefold() for word in words]
        found: list[dict[str, Any]] = []
        with self._asked() as tagger:
            for name in reversed(tagger.ids):
                text = tagger.texts.get(name)
                if wanted and (text is None or not all(w in text.casefold() for w in wanted)):
                    continue
                tags = sorted(map(str, tagger.item(name).tags))
                if tag is None or tag in tags:
                    found.append({"id": str(name), "text": text or "", "tags": tags})
                if len(found) == n:
                    break
        return found

    def candidates(self, tag: str, n: int) -> list[dict[str, Any]]:
        """List stored items that should have a tag."""
        with self._asked() as tagger:
            return [_entry(found) for found in tagger.candidates(tag, n)]

    def review(self, n: int) -> list[dict[str, Any]]:
        """List stored items whose tags look wrong."""
        with self._asked() as tagger:
            return [_entry(found) for found in tagger.review(n)]

    @contextlib.contextmanager
    def _asked(self) -> Iterator[Tagger]:
        with self._mutex:
            tagger = self._opened()
            try:
                yield tagger
            except (KeyError, ValueError) as error:
                raise Refused(str(error.args[0] if error.args else error)) from error

    # ------------------------------------------------------------------ changing
    def learn(self, lessons: Sequence[Lesson], keys: Sequence[str | None]) -> None:
        """Learn lessons.  Keys are not needed: an item that is the same changes nothing."""
        with self._changing() as tagger:
            tagger.learn([one.record() for one in lessons])

    def forget(self, ids: Sequence[str]) -> None:
        """Forget items."""
        with self._changing() as tagger:
            for name in ids:
                if name in tagger:
                    tagger.forget(name)

    def refit(self) -> bool:
        """Fit what is stored."""
        with self._changing() as tagger:
            if tagger.n_items:
                tagger.refit()
        return True

    def correct(self, id: str, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        """Change the tags of a stored item."""
        with self._changing() as tagger:
            name = _stored_name(tagger, id)
            before = tagger.item(name).tags
            for tag in remove:
                if tag not in tagger.tags:
                    raise Refused(f"no tag is called {tag!r}")
            tags = [tag for tag in before if tag not in remove]
            tagger.relabel(name, [*tags, *(tag for tag in add if tag not in tags)])
            for tag in remove:
                tagger.refuse(tag, [name])
            return tagger.item(name).tags


def _stored_name(tagger: Tagger, id: str) -> Any:
    """Return the id of a stored item as the model has it: a string, or else a number."""
    for kind in (str, int):
        with contextlib.suppress(ValueError):
            if kind(id) in tagger:
                return kind(id)
    raise Refused(f"no stored item is called {id!r}")


def _suggested(told: Any) -> Suggested:
    scores = {str(tag): round(float(score), 6) for tag, score in told.scores.items()}
    return Suggested([*map(str, told.tags)], scores, told.known, [*map(str, told.auto)])


def _neighbour(near: Any) -> dict[str, Any]:
    entry = {"id": str(near.id), "distance": round(float(near.distance), 6)}
    entry["tags"] = [*map(str, near.labels)]
    return entry if near.text is None else {**entry, "text": near.text}


def _rounded(words: Mapping[str, float]) -> dict[str, float]:
    return {word: round(float(weight), 6) for word, weight in words.items()}


def _entry(found: Any) -> dict[str, Any]:
    """Return a candidate or a doubt as a service tells it."""
    entry: dict[str, Any] = {}
    for name, value in vars(found).items():
        if name in ("neighbors", "why"):
            entry["why" if name == "why" else "neighbours"] = [_neighbour(near) for near in value]
        elif isinstance(value, float):
            entry[name] = round(value, 6)
        elif value is not None:
            entry[name] = [*value] if isinstance(value, tuple) else value
    return {**entry, "id": str(found.id)}
