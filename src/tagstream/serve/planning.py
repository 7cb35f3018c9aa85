"""From a change that somebody asks for to the events that it writes, or to a refusal.

The writer plans each change inside the transaction that writes it.  So a plan sees all that was
written before it, also what is not committed yet.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tagstream.learners.keeping import keeps_items
from tagstream.serve.agreement import majority, ties
from tagstream.serve.changes import Change, Conflict, Refused
from tagstream.serve.log import Event
from tagstream.serve.replay import record_of
from tagstream.serve.undo import Undoable, events_of_undo, find_undoable

if TYPE_CHECKING:
    from tagstream.serve.writer import Service

__all__ = ["Plan", "Planner", "retagged"]

# What a person gives an answer through.
PEOPLE = ("page", "http")


@dataclass
class Plan:
    """The events that a change would write, and what else follows from it.

    Attributes
    ----------
    change : Change
    events : list of Event
    is_new : list of bool
        Which events are of new items.
    duplicates : int
        Changes that were made before, or would change nothing.
    missing : list of str
        Items that are not there.
    waiting : list of (str, dict)
        Items that wait for tags, or again.
    settled : list of str
        Items that wait no more.
    n_waiting : int
        How many items were put in the pool.
    asked
        What was found out about the items, if these were asked about alone.
    """

    change: Change
    events: list[Event] = field(default_factory=list)
    is_new: list[bool] = field(default_factory=list)
    duplicates: int = 0
    missing: list[str] = field(default_factory=list)
    waiting: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    n_waiting: int = 0
    asked: Any = None
    items: dict[str, Event] = field(default_factory=dict)
    keys: dict[str, Event] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        key: str | None,
        body: dict[str, Any],
        is_new: bool = False,
        refused: str | None = None,
    ) -> None:
        """Add an event."""
        event = Event(
            kind, key or f"auto:{uuid.uuid4().hex}", body, refused=refused,
            who=self.change.who, source=self.change.source,
        )  # fmt: skip
        self.events.append(event)
        self.is_new.append(is_new)
        self.keys[event.key] = event
        if kind == "learn":
            self.items[body["id"]] = event


@dataclass
class Together:
    """What is suggested for the bodies of several changes, by the identity of each body.

    ``asked`` is what was found out about their items.
    """

    suggested: dict[int, Any] = field(default_factory=dict)
    asked: Any = None


class Planner:
    """Plans the changes of one service; for its writer only."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def plan(self, change: Change, together: Together) -> Plan:
        """Return the events of a change, or refuse it as a whole."""
        if change.kind == "undo":
            return self._undo(change)
        plan = Plan(change)
        if change.kind == "import":
            self._import(plan, change.bodies[0], together)
            return plan
        versions = change.versions or [None] * len(change.bodies)
        for body, key, version in zip(change.bodies, change.keys, versions, strict=True):
            if change.kind == "retag":
                self._retag(plan, body, key)
            elif change.kind == "learn":
                self._learn(plan, body, key, version)
            else:
                self._other(plan, body, key, version)
        if change.kind == "learn" and plan.events:
            self._suggest_first(plan, together.suggested)
        return plan

    def _learn(
        self, plan: Plan, body: dict[str, Any], key: str | None, version: int | None
    ) -> None:
        """Plan that an item gets its tags."""
        newest = self._newest(plan, body["id"])
        if "y" not in body:
            body = self._with_tags(body, newest)
        if self.service.agree and plan.change.source in PEOPLE and "y" in body:
            self._one_of_several(plan, body, key)
            return
        if self._is_answered(plan, key, "learn", body):
            return
        now = None if body["id"] in plan.items else self._newer(body, version)
        newest = None if newest is not None and newest.kind == "auto" else newest
        is_new = not self._will_be_stored(body["id"], newest)
        is_same = not is_new and newest is not None and self._is_same(newest, body)
        # Two people who say the same do not contradict each other.
        if is_same and (key is None or now is not None):
            plan.duplicates += 1
            return
        if version is not None and now is not None:
            raise Conflict(body["id"], version, now)
        if not is_new and newest is None:
            self._keep_beginning(plan, body["id"])
        plan.add("learn", key, body, is_new)

    def _other(
        self, plan: Plan, body: dict[str, Any], key: str | None, version: int | None
    ) -> None:
        """Plan a change of another kind."""
        kind = plan.change.kind
        if self._is_answered(plan, key, kind, body):
            return
        if not self._is_possible(kind, body):
            plan.duplicates += 1
            if key is not None:  # it is kept: should the item come later, a retry is no other
                plan.add(kind, key, body, refused="")
            return
        now = self._newer(body, version)
        if version is not None and now is not None:
            raise Conflict(body["id"], version, now)
        if kind == "forget" and self.service.log.newest(body["id"], own=True) is None:
            self._keep_beginning(plan, body["id"])
        plan.add(kind, key, body)

    def _retag(self, plan: Plan, body: dict[str, Any], key: str | None) -> None:
        """Plan that a stored item gets and loses some tags, whatever others it has by now."""
        if key is not None and self.service.log.find_key(key) is not None:
            plan.duplicates += 1
            return
        newest = self._newest(plan, body["id"])
        state = self.service.state_now(body["id"], newest)
        if state is None:
            if body.get("must"):
                raise Refused(f"no stored item is called {body['id']!r}", body["must"], 404)
            plan.missing.append(body["id"])
            return
        new = retagged(state, body)
        if new == {"y": [], **state}:
            plan.duplicates += 1
            return
        self._learn(plan, new, key, None)

    def _one_of_several(self, plan: Plan, body: dict[str, Any], key: str | None) -> None:
        """Plan that a person's own answer is kept, and that the majority is learnt."""
        name = body["id"]
        kept: dict[str, Any] = {"id": name, "y": body["y"]}
        if "no" in body:
            kept["no"] = body["no"]
        if self._is_answered(plan, key, "answer", kept):
            return
        state = self.service.state_now(name, self._newest(plan, name))
        mine = self.service.answers.of_item(name).get(plan.change.who)
        is_same = (
            mine is not None and {*mine.y} == {*body["y"]} and [*mine.no] == body.get("no", [])
        )
        if is_same and key is None and state is not None and record_of(state) == record_of(body):
            plan.duplicates += 1
            return
        plan.add("answer", key, kept)
        self._learn_majority(plan, body, state)

    def _learn_majority(
        self, plan: Plan, body: dict[str, Any], state: dict[str, Any] | None
    ) -> None:
        """Plan what follows from the answers about an item, one of which is new."""
        name, who = body["id"], plan.change.who
        others = self.service.answers.of_item(name)
        given = [(a.y, a.no) for person, a in others.items() if person != who]
        if body["y"] is not None:
            given.append((tuple(body["y"]), tuple(body.get("no", ()))))
        if not given:
            if state is not None:
                plan.add("forget", None, {"id": name})
                plan.waiting.append((name, record_of(state)))
            return
        y, no = majority(given, () if state is None else state.get("y") or ())
        learnt = {"id": name, **record_of(body), "y": y, **({"no": no} if no else {})}
        newest = self._newest(plan, name)
        if newest is None or newest.kind != "learn" or not self._is_same(newest, learnt):
            is_new = not self._will_be_stored(name, newest)
            if not is_new and newest is None:
                self._keep_beginning(plan, name)
            plan.add("learn", None, learnt, is_new)
        if len(given) < self.service.agree or ties(given):
            plan.waiting.append((name, record_of(body)))
        else:
            plan.settled.append(name)

    def _import(self, plan: Plan, body: dict[str, Any], together: Together) -> None:
        """Plan a group of rows of a file, with an event that says how far it has come."""
        known = self.service.imports.get(body["import"])
        done = 0 if known is None else known.rows
        if body["last"] <= done:
            plan.duplicates += len(body["items"])
            return
        if body["first"] != done + 1:
            words = f"the import must go on at row {done + 1}, got {body['first']}"
            raise Refused(words, "name", 409, {"lines": done})
        waiting = []
        for item in body["items"]:
            if body["as"] == "learnt" and ("y" in item or "no" in item):
                self._learn(plan, item, None, None)
            elif self.is_known(item["id"]):
                plan.duplicates += 1
            else:
                waiting.append((item["id"], record_of(item)))
        if waiting:
            self.service.check_fit([item for _, item in waiting])
        if any(event.kind == "learn" for event in plan.events):
            self._suggest_first(plan, together.suggested)
        plan.waiting, plan.n_waiting = waiting, len(waiting)
        n = len(plan.events) + len(waiting)
        head = {name: value for name, value in body.items() if name != "items"}
        plan.add("import", f"import:{body['import']}:{body['last']}", {**head, "n": n})

    def _undo(self, change: Change) -> Plan:
        """Plan that a change is taken back."""
        plan, key = Plan(change), change.keys[0]
        before = None if key is None else self.service.log.find_key(key)
        if before is not None:
            if before.kind != "undo":
                raise Refused(f"key must be new for another change, got {key!r}", "key", 409)
            plan.duplicates += 1
            return plan
        found = find_undoable(self.service, change.who, change.bodies[0].get("position"))
        answered = self._withdraw(plan, found)
        for event in () if answered else events_of_undo(self.service, found):
            plan.add(event.kind, event.key, event.body)
        first = self.service.log.position + 1
        span = [first, first + max(len(plan.events), 1) - 1]
        plan.add("undo", key, {"of": [*found.span], "by": span})
        if not answered:
            plan.waiting = self.service.log.wait_again(*found.span)
        return plan

    def _withdraw(self, plan: Plan, found: Undoable) -> bool:
        """Plan that a person's answers are as before; return whether there were some."""
        events = [e for e in self.service.log.between(*found.span) if e.kind == "answer"]
        for event in {event.body["id"]: event for event in reversed(events)}.values():
            name = event.body["id"]
            before = self.service.log.answer_before(name, event.who, event.position)
            body: dict[str, Any] = {"id": name, "y": None}
            if before is not None and before.body["y"] is not None:
                body = {**self.service.state(before)}
            state = self.service.state_now(name, self._newest(plan, name))
            plan.add("answer", None, body)
            self._learn_majority(plan, {**(state or {}), **body}, state)
        return bool(events)

    def _newest(self, plan: Plan, name: str) -> Event | None:
        """Return the newest state of an item, also one of this plan."""
        return plan.items.get(name) or self.service.log.newest(name, own=True)

    def _keep_beginning(self, plan: Plan, name: str) -> None:
        """Write down what the model of the beginning knows of an item, so that it can come back."""
        state = None if name in plan.items else self.service.state_now(name, None)
        if state is not None:
            plan.add("began", None, state)

    def _newer(self, body: dict[str, Any], version: int | None) -> int | None:
        """Return the version of an item, if it is another than the caller has seen."""
        if version is None:
            return None
        newest = self.service.log.newest(body["id"], own=True)
        now = 0 if newest is None else newest.position
        return now if now != version else None

    def _is_answered(self, plan: Plan, key: str | None, kind: str, body: dict[str, Any]) -> bool:
        """Return whether a change was made under its key; refuse it again if it was refused."""
        if key is None:
            return False
        try:
            before = plan.keys.get(key) or self.service.log.find_key(key)
        except OSError as error:
            raise Refused(f"key must be new: {error}", "key", 409) from error
        if before is None:
            return False
        if (before.kind, before.body) != (kind, body):
            raise Refused(f"key must be new for another change, got {key!r}", "key", 409)
        if before.refused:
            raise Refused(before.refused)
        plan.duplicates += 1
        return True

    def _is_same(self, newest: Event, body: dict[str, Any]) -> bool:
        """Return whether learning ``body`` would change nothing.

        It is the same also if it names its tags as they were called when it was learnt, unless
        another tag has such a name now.
        """
        if "y" not in body or "y" not in newest.body:
            return newest.body == body
        if {**newest.body, "y": None} != {**body, "y": None}:
            return False
        given, then = set(body["y"]), set(newest.body["y"])
        now = set(self.service.tags_now(newest)) if newest.position else then
        return given == now or (
            given == then and not (then - now) & {*self.service.read().view.tags}
        )

    def _is_possible(self, kind: str, body: dict[str, Any]) -> bool:
        """Return whether there is something to do; refuse what cannot be."""
        known_tags = self.service.read().view.tags
        if kind == "auto":  # what a person has said stands
            newest = self.service.log.newest(body["id"], own=True)
            same = newest is not None and newest.body == body
            learnt = newest is not None and newest.kind == "learn"
            return not same and not learnt and not self._is_stored(body["id"])
        if kind == "refit":
            return self.service.read().view.n_items > 0
        if kind == "forget":
            newest = self.service.log.newest(body["id"], own=True)
            if newest is None:
                return self._is_stored(body["id"])
            if newest.kind == "auto":
                words = "the tags of {!r} were applied without asking; tag it to replace them"
                raise Refused(words.format(body["id"]), "ids")
            if keeps_items(self.service.learner) and not self._is_stored(body["id"]):
                raise Refused(f"no stored item is called {body['id']!r}", "ids")  # a window lost it
            return True
        named = {
            "rename": [body.get("old")],
            "merge": body.get("tags"),
            "remove": [body.get("tag")],
            "exclusive": body.get("tags"),
            "promise": [body.get("tag")],
            "describe": [body.get("tag")],
        }
        for tag in named.get(kind) or ():
            if tag not in known_tags:
                where = {"rename": "old", "merge": "tags", "exclusive": "tags"}.get(kind, "tag")
                raise Refused(f"{where} must be known, got {tag!r}", where, 404)
        if kind == "rename" and body["new"] in known_tags:
            raise Refused(
                f"new must not be a tag that is there, got {body['new']!r}; merge them", "new", 409
            )
        return True

    def is_known(self, name: str) -> bool:
        """Return whether the log or the learner has an item.

        The log knows what a window has lost, the learner what came with the model that the folder
        began with.
        """
        return self.service.log.newest(name, own=True) is not None or self._is_stored(name)

    def _is_stored(self, name: str) -> bool:
        learner = self.service.learner
        return keeps_items(learner) and learner.has_item(name)

    def _will_be_stored(self, name: str, newest: Event | None) -> bool:
        """Return whether the learner has an item, or will once the events before are learnt."""
        is_learnt = newest is None or 0 < newest.position <= self.service.read().position
        if is_learnt and keeps_items(self.service.learner):
            return self._is_stored(name)
        return newest is not None

    def suggest_together(self, group: Sequence[Change]) -> Together:
        """Return what is suggested for each body of several changes.

        Nothing for one change, or if one of them cannot be: then each is asked for by itself.
        """
        if len(group) < 2:
            return Together()
        bodies = [body for change in group for body in change.bodies]
        try:
            told, asked = self._suggest(bodies)
        except Exception:
            return Together()
        return Together({id(body): one for body, one in zip(bodies, told, strict=True)}, asked)

    def _suggest(self, bodies: Sequence[dict[str, Any]]) -> tuple[Any, Any]:
        """Return what is suggested for items, and what was found out about them."""
        view = self.service.read().view
        asked = view.ask([record_of(body) for body in bodies])
        return view.suggest(asked), asked

    def _suggest_first(self, plan: Plan, together: dict[int, Any]) -> None:
        """Keep what is suggested for new items before they are learnt; refuse what cannot be."""
        learnt = [i for i, event in enumerate(plan.events) if event.kind == "learn"]
        bodies = [plan.events[i].body for i in learnt]
        if together and all(id(body) in together for body in bodies):
            told = [together[id(body)] for body in bodies]
        else:
            try:
                told, plan.asked = self._suggest(bodies)
            except ValueError as error:
                raise Refused(str(error), "items") from error
        for i, suggestion in zip(learnt, told, strict=True):
            if plan.is_new[i]:
                plan.events[i] = replace(plan.events[i], suggested=[*suggestion.tags])

    def _with_tags(self, body: dict[str, Any], newest: Event | None) -> dict[str, Any]:
        """Return a body that only refuses tags with the tags that its item has, if it has some."""
        if newest is None or "y" in body:
            return body
        state = self.service.state(newest)
        if "y" not in state or record_of(state) != record_of(body):
            return body
        tags = [tag for tag in state["y"] if tag not in body["no"]]
        no = [*dict.fromkeys([*state.get("no", ()), *body["no"]])]
        return {**state, "y": tags, "no": no}


def retagged(state: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an item after tags were added, removed and refused.

    Examples
    --------
    >>> retagged({"id": "7", "y": ["a", "b"], "no": ["c"]}, {"add": ["c"], "no": ["a"]})
    {'id': '7', 'y': ['b', 'c'], 'no': ['a']}
    """
    add, refuse = change.get("add", ()), change.get("no", ())
    gone = {*change.get("remove", ()), *refuse}
    y = [*dict.fromkeys([*(tag for tag in state.get("y") or () if tag not in gone), *add])]
    no = [*dict.fromkeys([*(tag for tag in state.get("no", ()) if tag not in add), *refuse])]
    kept = {key: value for key, value in state.items() if key != "no"}
    return {**kept, "y": y, **({"no": no} if no else {})}
