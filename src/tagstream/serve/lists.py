"""Lists that take a while: made in the background on a view, answered at once from the last one.

A question is answered with the last list that was made for it, less the items that were changed
since, and with their tags by the names that these have now.  If something was learnt since, another
list is begun.  One thread makes all of them, one after the other.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tagstream.serve.served import Served
from tagstream.serve.taggers import View

__all__ = ["LONGEST", "Lists"]

LONGEST = 200  # entries of a list
KEPT = 64  # lists
logger = logging.getLogger(__name__)

Key = tuple[str, ...]
Entry = dict[str, Any]
Make = Callable[[Any], list[Entry]]


@dataclass
class _List:
    """One list: its entries, the position of what it was made of, and whether it is being made."""

    entries: list[Entry] = field(default_factory=list)
    position: int = -1
    is_due: bool = False
    problem: str = ""


class Lists:
    """The lists of one service.  Any thread may ask."""

    def __init__(self, service: Served) -> None:
        self._service = service
        self._lists: OrderedDict[Key, _List] = OrderedDict()
        self._todo: list[tuple[Key, Make]] = []
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self, key: Key, make: Make, n: int) -> dict[str, Any]:
        """Return at most ``n`` entries of the list of that key, and begin a new one if it is old.

        ``position`` is that of the last event that the list knows, ``complete`` whether there is a
        list at all.

        Raises
        ------
        ValueError
            The list cannot be made.
        """
        published = self._service.read()
        with self._wake:
            found = self._lists.setdefault(key, _List())
            self._lists.move_to_end(key)
            if found.position < published.position and not found.is_due:
                found.is_due = True
                self._todo.append((key, make))
                self._start()
                self._wake.notify()
            if found.problem:
                raise ValueError(found.problem)
            entries, position = found.entries, found.position
        return {
            "items": self._as_now(entries, position, n),
            "position": max(position, 0),
            "complete": position >= 0,
        }

    def _as_now(self, entries: list[Entry], position: int, n: int) -> list[Entry]:
        """Return entries of items that were not changed since, with the present names of tags."""
        names = self._service.names
        kept: list[Entry] = []
        for entry in entries:
            if len(kept) == n:
                break
            ids = entry.get("ids") or [entry["id"]] if "id" in entry or "ids" in entry else []
            if any(self._is_changed(name, position) for name in ids):
                continue
            now = dict(entry)
            for key in ("remove", "add", *(() if "ids" in now else ("tags",))):
                if key in now:
                    now[key] = names.now(now[key], position)
            if "pair" in now and len(names.now(now["pair"], position)) < 2:
                continue  # they are one already
            kept.append(now)
        return kept

    def _is_changed(self, name: str, position: int) -> bool:
        newest = self._service.log.last_of_item(name)
        return newest is not None and newest > position

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tagstream-lists", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Begin no more lists; the one under way is left to itself."""
        with self._wake:
            self._closed = True
            self._todo.clear()
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._todo and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                key, make = self._todo.pop(0)
            made = self._make(make)
            with self._wake:
                self._lists[key] = made
                while len(self._lists) > KEPT:
                    self._lists.popitem(last=False)

    def _make(self, make: Make) -> _List:
        published = self._service.read()
        view: View = published.view
        try:
            entries = make(view) if view.n_items else []
        except ValueError as error:
            return _List(position=published.position, problem=str(error))
        except Exception as error:  # a list is no reason to end
            logger.exception("a list could not be made")
            problem = f"the list could not be made ({type(error).__name__})"
            return _List(position=published.position, problem=problem)
        return _List(entries, published.position)
