"""A tagger that is quick to start and easy to compare: the tags of the nearest items by words."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar


class FakeView:
    def __init__(self, items: dict[str, dict[str, Any]], order: int) -> None:
        self._items = items
        self.order = order
        self.counts: dict[str, int] = {}
        for item in items.values():
            for tag in item["y"]:
                self.counts[tag] = self.counts.get(tag, 0) + 1
        self.tags = sorted(self.counts)
        self.n_items = len(items)

    descriptions: ClassVar[dict[str, str]] = {}

    def _near(self, record: dict[str, Any], n: int = 5) -> list[tuple[float, str]]:
        if any(("x" in item) != ("x" in record) for item in self._items.values()):
            raise ValueError("items must be of one kind")
        words = _words(record)
        near = []
        for name, item in self._items.items():
            other = _words(item)
            near.append((1 - len(words & other) / max(1, len(words | other)), name))
        return sorted(near)[:n]

    def _one(self, record: dict[str, Any]) -> Any:
        near = self._near(record)
        votes: Counter[str] = Counter()
        for distance, name in near:
            votes.update(dict.fromkeys(self._items[name]["y"], 1 - distance))
        total = sum(1 - distance for distance, _ in near) or 1.0
        scores = {tag: votes[tag] / total for tag in sorted(votes, key=lambda t: (-votes[t], t))}
        tags = [tag for tag, score in scores.items() if score >= 0.4]
        return SimpleNamespace(tags=tags, scores=scores, known=bool(near))

    def ask(self, records: Any, *, next: bool = False) -> Any:
        return SimpleNamespace(records=records, next=next)

    def suggest(
        self, records: Any, top: int | None = None, decide: Any = None, *, next: bool = False
    ) -> Any:
        if isinstance(records, SimpleNamespace):
            return self.suggest(records.records, top, decide, next=records.next)
        if isinstance(records, dict):
            return self._told(records, next)
        return [self._told(record, next) for record in records]

    def _told(self, record: dict[str, Any], as_next: bool) -> Any:
        """Return the answer; for the next item it is the tags of the latest one.

        The item of the same id and text speaks first.
        """
        own = self._items.get(record.get("id", ""), {})
        if "text" in record and own.get("text") == record["text"]:
            scores = dict.fromkeys(own["y"], 1.0)
            return SimpleNamespace(tags=[*own["y"]], scores=scores, known=True)
        if not as_next or not self._items:
            return self._one(record)
        tags = [*self._items.values()][-1]["y"]
        return SimpleNamespace(tags=[*tags], scores=dict.fromkeys(tags, 1.0), known=True)

    def explain(self, record: Any, *, next: bool = False) -> Any:
        if isinstance(record, SimpleNamespace):
            return self.explain(record.records[0], next=record.next)
        told = self._told(record, next)
        neighbours = [
            SimpleNamespace(
                id=name,
                distance=distance,
                labels=tuple(self._items[name]["y"]),
                text=self._items[name].get("text"),
            )
            for distance, name in self._near(record, 7)
        ]
        parts = {tag: {"neighbours": told.scores[tag]} for tag in told.tags}
        return SimpleNamespace(neighbors=neighbours, parts=parts, copy_of=None)


def _words(record: dict[str, Any]) -> frozenset[str]:
    if "text" in record:
        return frozenset(re.findall(r"\w+", record["text"].lower()))
    x = record["x"]
    return frozenset(str(pair) for pair in (x.items() if isinstance(x, dict) else enumerate(x)))


class FakeTagger:
    """The same state for the same events, whatever the grouping; ``n_changes`` counts them."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.n_changes = 0
        self.digest = ""

    @property
    def learner(self) -> Any:
        return SimpleNamespace(has_item=self.items.__contains__, n_stored_=len(self.items))

    def _note(self, *what: Any) -> None:
        self.n_changes += 1
        self.digest = hashlib.sha256((self.digest + json.dumps(what)).encode()).hexdigest()

    def learn(self, records: Any, *, asked: Any = None) -> int:
        records = [records] if isinstance(records, dict) else [*records]
        if any("p0ison" in record.get("text", "") for record in records):
            raise ValueError("text must not be p0ison")
        for record in records:
            self.items[record["id"]] = record
            self._note("learn", record)
        return len(records)

    def change(self, event: str, **what: Any) -> None:
        getattr(self, event)(**what)

    def forget(self, id: str) -> None:
        del self.items[id]
        self._note("forget", id)

    def _retag(self, change: Any) -> None:
        self.items = {
            name: {**item, "y": [*dict.fromkeys(t for tag in item["y"] for t in change(tag))]}
            for name, item in self.items.items()
        }

    def rename(self, old: str, new: str) -> None:
        self._retag(lambda tag: [new if tag == old else tag])
        self._note("rename", old, new)

    def merge(self, tags: Any, into: str) -> None:
        self._retag(lambda tag: [into if tag in tags else tag])
        self._note("merge", tags, into)

    def remove(self, tag: str) -> None:
        self._retag(lambda other: [] if other == tag else [other])
        self._note("remove", tag)

    def declare(self, tags: dict[str, str]) -> None:
        self._note("declare", tags)

    def describe(self, tag: str, about: str) -> None:
        self._note("describe", tag, about)

    def refit(self) -> None:
        self._note("refit")

    def view(self) -> FakeView:
        return FakeView(dict(self.items), self.n_changes)

    def state(self) -> dict[str, Any]:
        return {"items": self.items, "n_changes": self.n_changes, "digest": self.digest}

    def save(self, path: Any) -> None:
        body = json.dumps(self.state())
        text = hashlib.sha256(body.encode()).hexdigest() + "\n" + body
        new = Path(f"{path}.{os.getpid()}.new")
        new.write_text(text)
        os.replace(new, path)

    @classmethod
    def open(cls, path: Any) -> FakeTagger:
        digest, _, body = Path(path).read_text().partition("\n")
        if hashlib.sha256(body.encode()).hexdigest() != digest:
            raise ValueError(f"{path} must be whole, got damage")
        tagger = cls()
        vars(tagger).update(json.loads(body))
        return tagger
