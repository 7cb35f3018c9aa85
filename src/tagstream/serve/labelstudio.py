"""The machine-learning backend that Label Studio talks to, and what it says.

Label Studio asks ``/health``, ``/setup`` and ``/predict``, and tells of annotations at
``/webhook``.  It does not tell again what it could not tell while the service was away.  On
START_TRAINING the service fetches the annotations of the project and learns what it missed.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import ValidationError

from tagstream.serve.changes import Busy, Change, Done, Refused
from tagstream.serve.fetch import Host, Limits
from tagstream.serve.pool import certainty
from tagstream.serve.projects import Project, Projects
from tagstream.serve.schema import MAX_ITEMS, ForgetRequest, Item, TaggedItem, error_of
from tagstream.serve.served import Published, Served
from tagstream.serve.writer import QUEUE_ITEMS

__all__ = ["Config", "LabelStudio", "Pulled"]

LEARNT_AT_A_TIME = 500
# Projects whose annotations are fetched at the same time, and those that may wait for it.
PULLS_AT_ONCE, PULLS_WAITING = 2, 100
# Bad annotations of one answer that are reported one by one.
MOST_REPORTED = 5
MAX_CONFIG = 1 << 20
MAX_ADDRESS = 2000

# Kind, key and body of an event.
_Told: TypeAlias = "tuple[str, str, dict[str, Any]]"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Config:
    """What of a labelling configuration matters: one text, and choices about it.

    Attributes
    ----------
    text_name, choices_name : str
        Names of the tags ``Text`` and ``Choices``.
    field : str
        Where the text is in a task's data.
    choices : tuple of str
        Empty if they come with each task.
    choices_field : str or None
        Where they come from then.
    is_single : bool
        Whether at most one may be chosen.

    Examples
    --------
    >>> config = Config.of(
    ...     '<View><Text name="t" value="$body"/><Choices name="c" toName="t" choice="multiple">'
    ...     '<Choice value="a"/><Choice value="b"/></Choices></View>'
    ... )
    >>> config.field, config.choices, config.is_single
    ('body', ('a', 'b'), False)
    """

    text_name: str
    choices_name: str
    field: str
    choices: tuple[str, ...]
    choices_field: str | None
    is_single: bool

    @classmethod
    def of(cls, xml: Any) -> Config:
        """Return what a labelling configuration says.

        Raises
        ------
        Refused
            It is no XML, or has no choices about a text.
        """
        if not isinstance(xml, str) or "<!DOCTYPE" in xml or "<!ENTITY" in xml:
            raise Refused(
                "label_config must be the XML of a labelling configuration", "label_config"
            )
        if len(xml) > MAX_CONFIG:
            raise Refused(
                f"label_config must have at most {MAX_CONFIG} characters, got {len(xml)}",
                "label_config",
            )
        try:
            root = ElementTree.fromstring(xml)
        except (ElementTree.ParseError, ValueError) as error:
            raise Refused(
                f"label_config must be XML, got an error: {error}", "label_config"
            ) from None
        texts = {
            node.get("name", ""): node.get("value", "")
            for node in root.iter()
            if node.tag in ("Text", "HyperText", "Paragraphs")
        }
        for node in root.iter("Choices"):
            name = node.get("toName", "").split(",")[0]
            value = texts.get(name, "")
            if not value.startswith("$"):
                continue
            listed = tuple(
                dict.fromkeys(
                    choice.get("alias") or choice.get("value") or ""
                    for choice in node.iter("Choice")
                )
            )
            dynamic = node.get("value", "")
            return cls(
                text_name=name,
                choices_name=node.get("name", ""),
                field=value[1:],
                choices=listed,
                choices_field=dynamic[1:] if dynamic.startswith("$") else None,
                is_single=node.get("choice", "single") != "multiple",
            )
        raise Refused(
            "label_config must have <Choices> about a <Text> whose value is a $field",
            "label_config",
        )

    def text(self, task: Mapping[str, Any]) -> str | None:
        """Return the text of a task, if it has one."""
        data = task.get("data")
        text = data.get(self.field) if isinstance(data, dict) else None
        return text if isinstance(text, str) and text else None

    def allowed(self, task: Mapping[str, Any]) -> set[str]:
        """Return the choices that can be ticked in a task."""
        names = set(self.choices)
        data = task.get("data")
        extra = (
            data.get(self.choices_field) if isinstance(data, dict) and self.choices_field else ()
        )
        for choice in extra if isinstance(extra, list) else ():
            name = (
                choice.get("alias") or choice.get("value") if isinstance(choice, dict) else choice
            )
            if isinstance(name, str):
                names.add(name)
        return names

    def ticked(self, result: Any) -> list[str]:
        """Return the choices of an annotation's result."""
        tags: list[str] = []
        for region in result if isinstance(result, list) else ():
            if not isinstance(region, dict) or region.get("from_name") != self.choices_name:
                continue
            value = region.get("value")
            choices = value.get("choices") if isinstance(value, dict) else None
            tags += [c for c in choices if isinstance(c, str)] if isinstance(choices, list) else []
        return [*dict.fromkeys(tags)]


def project_of(value: Any) -> str:
    """Return the number of a project, as a string.

    Examples
    --------
    >>> project_of("1.1794817084"), project_of({"id": 1}), project_of(1)
    ('1', '1', '1')
    """
    if isinstance(value, dict):
        value = value.get("id")
    found = re.match(r"^(\d{1,18})(\.\d+)?$", str(value))
    if not found:
        raise Refused(f"project must be a number, got {str(value)[:40]!r}", "project")
    return found[1]


@dataclass
class Pulled:
    """What fetching the annotations of a project did.

    Attributes
    ----------
    n_tasks : int
        Tasks in the answer.
    learnt, forgotten : int
        Items that were changed.
    left_out : int
        Tasks whose annotation could not be taken; the items stay as they are.
    missing : int
        Known items whose task is not in the answer, and that were kept.
    """

    n_tasks: int = 0
    learnt: int = 0
    forgotten: int = 0
    left_out: int = 0
    missing: int = 0


@dataclass
class _Pull:
    """A project whose annotations are to be fetched."""

    project: str
    forget_missing: bool
    done: Future[Pulled] = field(default_factory=Future)


class LabelStudio:
    """The backend of all projects of one folder.

    Parameters
    ----------
    service : Served
    projects : Projects
        How to reach the projects.  If it is read-only, nothing is fetched.
    limits : Limits, optional
        What an answer of Label Studio may cost.
    """

    def __init__(self, service: Served, projects: Projects, limits: Limits | None = None) -> None:
        self.service, self.projects, self.limits = service, projects, limits
        self._lock = threading.Lock()
        self._pulls: dict[str, _Pull] = {}  # those that run or wait
        self._waiting: deque[_Pull] = deque()
        self._n_threads = 0

    # ------------------------------------------------------------------ asking
    def setup(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``/setup``: keep how to reach the project, tell the model's version."""
        project = project_of(body.get("project"))
        schema = body.get("schema")
        Config.of(schema)
        hostname = _printable(body, "hostname")
        if hostname:
            try:
                Host(hostname)
            except ValueError as error:
                raise Refused(f"hostname: {error}", "hostname") from None
        self.projects.put(project, Project(str(schema), hostname, _printable(body, "access_token")))
        return {"model_version": version(self.service.read())}

    def predict(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``/predict``: one result for each task, in their order."""
        config = Config.of(body.get("label_config"))
        tasks = body.get("tasks")
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise Refused("tasks must be a list of objects", "tasks")
        if len(tasks) > MAX_ITEMS:
            raise Refused(f"tasks must have at most {MAX_ITEMS} items, got {len(tasks)}", "tasks")
        published = self.service.read()
        texts = [config.text(task) for task in tasks]
        for i, text in enumerate(texts):
            if text is not None:
                _check_text(text, f"tasks[{i}].data.{config.field}")
        asked = [{"text": text} for text in texts if text is not None]
        try:
            told = iter(published.view.suggest(asked) if asked else ())
        except ValueError as error:
            raise Refused(str(error), "tasks") from error
        return {
            "results": [
                self._result(config, task, None if text is None else next(told), published)
                for task, text in zip(tasks, texts, strict=True)
            ]
        }

    def _result(
        self, config: Config, task: Mapping[str, Any], told: Any, published: Published
    ) -> dict[str, Any]:
        allowed = config.allowed(task)
        scores = {} if told is None else {t: s for t, s in told.scores.items() if t in allowed}
        tags = [] if told is None else [tag for tag in told.tags if tag in allowed]
        if config.is_single:
            tags = sorted(tags, key=lambda tag: -scores.get(tag, 0.0))[:1]
        region = {
            "from_name": config.choices_name,
            "to_name": config.text_name,
            "type": "choices",
            "value": {"choices": tags},
        }
        return {
            "result": [region] if tags else [],
            "score": round(certainty(scores.values()), 4) if tags else 0.0,
            "model_version": version(published),
        }

    # ------------------------------------------------------------------ being told
    def webhook(self, body: Mapping[str, Any]) -> Future[Done] | None:
        """Do what a webhook says; return what to wait for, or None if there is nothing to do."""
        action = body.get("action")
        if action in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"):
            return self._annotated(body)
        if action == "ANNOTATIONS_DELETED":
            return self._deleted(body)
        if action == "START_TRAINING":
            self.start_pull(project_of(body.get("project")))
        return None

    def _annotated(self, body: Mapping[str, Any]) -> Future[Done] | None:
        project, task, annotation = (_object(body, n) for n in ("project", "task", "annotation"))
        config = Config.of(project.get("label_config"))
        change = self._change(project_of(project), config, task, annotation)
        return self._submit([] if change is None else [change])

    def _change(
        self, project: str, config: Config, task: Mapping[str, Any], annotation: Mapping[str, Any]
    ) -> _Told | None:
        """Return the event of an annotation, if it says anything new."""
        start = _key_start(project, annotation)
        key = start + _stamp(annotation)
        item = f"ls:{project}:{_number(task, 'id')}"
        if any(known >= key for known, _ in self._keys(start)):
            return None  # known, or older than what is known
        text = config.text(task)
        tags = [tag.strip() for tag in config.ticked(annotation.get("result"))]
        try:
            if annotation.get("was_cancelled"):
                ForgetRequest(ids=[item], key=key)
                return ("forget", key, {"id": item}) if self._is_last_word(item, start) else None
            if text is None:
                return None
            return "learn", key, TaggedItem(id=item, text=text, y=tags, key=key).body()
        except ValidationError as error:
            field, message = error_of(error.errors())
            raise Refused(message, field) from None

    def _keys(self, start: str) -> list[tuple[str, str | None]]:
        """Return the keys of an annotation's events, with their items, in order."""
        # Earlier versions kept under such keys that the task of that number was gone.
        gone = f"{start}gone:"
        return [pair for pair in self.service.log.keys(start) if not pair[0].startswith(gone)]

    def _is_last_word(self, item: str, start: str) -> bool:
        """Return whether what is known of an item came from the annotation of these keys."""
        newest = self.service.log.newest_key(item)
        return newest is not None and newest.startswith(start)

    def _deleted(self, body: Mapping[str, Any]) -> Future[Done] | None:
        project = project_of(body.get("project"))
        annotations = body.get("annotations")
        if isinstance(annotations, list) and len(annotations) > QUEUE_ITEMS:
            raise Refused(
                f"annotations must have at most {QUEUE_ITEMS} items, got {len(annotations)}",
                "annotations",
            )
        changes: list[_Told] = []
        for annotation in annotations if isinstance(annotations, list) else ():
            start = _key_start(project, annotation)
            known = self._keys(start)
            item = known[-1][1] if known else None
            if item is not None and self._is_last_word(item, start):
                changes.append(("forget", f"{start}deleted", {"id": item}))
        return self._submit(changes)

    def _submit(self, told: list[_Told]) -> Future[Done] | None:
        """Queue changes of one kind."""
        if not told:
            return None
        bodies = [body for _, _, body in told]
        keys: list[str | None] = [key for _, key, _ in told]
        return self.service.submit(Change(told[0][0], bodies, keys, source="label studio"))

    # ------------------------------------------------------------------ what was missed
    def start_pull(self, project: str, forget_missing: bool = False) -> Future[Pulled]:
        """Fetch the annotations of a project in a thread; return what to wait for.

        A project is fetched once at a time, and only a few projects are fetched at once.

        Parameters
        ----------
        project : str
        forget_missing : bool
            Also forget the known items whose task is not in the answer.

        Raises
        ------
        Busy
            Too many projects wait.
        Refused
            The project was not set up, or this is a replica.
        """
        if self.projects.read_only:
            raise Refused("changes must go to the writer, got one for a replica", "", 403)
        self._known(project)
        with self._lock:
            there = self._pulls.get(project)
            if there is not None and (there.forget_missing or not forget_missing):
                return there.done
            if there is not None:
                raise Refused("the project is being fetched; try again later", "project", 409)
            if len(self._waiting) >= PULLS_WAITING:
                raise Busy(60)
            pull = _Pull(project, forget_missing)
            self._pulls[project] = pull
            self._waiting.append(pull)
            if self._n_threads < PULLS_AT_ONCE:
                self._n_threads += 1
                name = f"tagstream-pull-{self._n_threads}"
                threading.Thread(target=self._pull_waiting, name=name, daemon=True).start()
        return pull.done

    def _pull_waiting(self) -> None:
        """Fetch the projects that wait, one after the other, until none is left."""
        try:
            while True:
                with self._lock:
                    if not self._waiting:
                        self._n_threads -= 1
                        return
                    pull = self._waiting.popleft()
                self._pull(pull)
        finally:
            self.service.log.close_reader()  # the thread ends here

    def _pull(self, pull: _Pull) -> None:
        pull.done.set_running_or_notify_cancel()
        try:
            done = self.pull(pull.project, pull.forget_missing)
        except Exception as error:  # a thread of its own: whatever it is, it must be seen
            logger.error("the annotations of project %s were not fetched: %s", pull.project, error)
            outcome: Pulled | Exception = error
        else:
            _report(pull.project, done)
            outcome = done
        with self._lock:
            del self._pulls[pull.project]
        if isinstance(outcome, Pulled):
            pull.done.set_result(outcome)
        elif isinstance(outcome, OSError):
            pull.done.set_exception(Refused(str(outcome), "project", 502))
        else:
            pull.done.set_exception(outcome)

    def _known(self, project: str) -> Project:
        known = self.projects.get(project)
        if known is None or not known.hostname:
            raise Refused(
                "the project must have been set up, got none; open a task first", "project"
            )
        return known

    def pull(self, project: str, forget_missing: bool = False) -> Pulled:
        """Fetch the annotations of a project, learn what was missed, forget what was taken back.

        An item is forgotten if its task is in the answer and has no annotation any more.  A task
        that is not in the answer proves nothing, because the answer may be only a part of the
        project.  The same holds for an answer without a single annotation.

        Parameters
        ----------
        project, forget_missing
            See :meth:`start_pull`.

        Raises
        ------
        OSError
            The answer did not come, or not as a whole; nothing was forgotten.
        Refused
            The project was not set up.
        """
        known = self._known(project)
        config = Config.of(known.schema)
        host = Host(known.hostname, self.limits)
        begun = self.service.read().position
        missing = set(self.service.log.ids(f"ls:{project}:"))
        untagged: list[str] = []
        done = Pulled()
        n_annotated = 0
        new: list[_Told] = []
        path = f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true"
        for task in host.elements(path, _header(host, known.access_token)):
            done.n_tasks += 1
            try:
                item = f"ls:{project}:{_number(task, 'id')}"
                is_known = item in missing
                missing.discard(item)
                newest = _newest_annotation(task)
                if newest is not None:
                    n_annotated += 1
                    change = self._change(project, config, task, newest)
                    new += [] if change is None else [change]
                elif is_known:
                    untagged.append(item)
            except Refused as error:
                _leave_out(done, project, task.get("id"), error)
            if len(new) == LEARNT_AT_A_TIME:
                done.learnt += self._do(project, new, done)
                new = []
        done.learnt += self._do(project, new, done)
        if not n_annotated:
            missing, untagged = missing.union(untagged), []
        if forget_missing:
            missing, untagged = set(), [*untagged, *sorted(missing)]
        done.missing = len(missing)
        done.forgotten = self._forget(project, untagged, begun, done)
        return done

    def _forget(self, project: str, items: list[str], begun: int, done: Pulled) -> int:
        """Forget items, but those that were learnt while the answer was on its way."""
        n = 0
        for start in range(0, len(items), LEARNT_AT_A_TIME):
            told: list[_Told] = []
            for item in items[start : start + LEARNT_AT_A_TIME]:
                newest = self.service.log.newest(item)
                if newest is not None and newest.position <= begun:
                    key = f"ls-gone:{item.removeprefix('ls:')}:{newest.position}"
                    told.append(("forget", key, {"id": item}))
            n += self._do(project, told, done)
        return n

    def _do(self, project: str, told: list[_Told], done: Pulled) -> int:
        """Make changes of one kind; one that is refused is left out.  Return how many were made."""
        if not told:
            return 0
        try:
            return self._wait(told)
        except Refused as error:
            if len(told) == 1:
                _leave_out(done, project, told[0][2]["id"], error)
                return 0
        return sum(self._do(project, [one], done) for one in told)

    def _wait(self, told: list[_Told]) -> int:
        while True:
            try:
                future = self._submit(told)
                break
            except Busy as busy:
                time.sleep(busy.retry_after)
        return future.result().n if future else 0


def _newest_annotation(task: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the newest annotation of a task that is no skip; None if it has none."""
    annotations = task.get("annotations")
    if not isinstance(annotations, list) or not all(isinstance(a, dict) for a in annotations):
        raise Refused("annotations must be a list of objects", "annotations")
    if not annotations and task.get("total_annotations"):
        raise Refused("annotations must be there, got only their number", "annotations")
    there = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
    return max(there, key=lambda annotation: str(annotation.get("updated_at")), default=None)


def _leave_out(done: Pulled, project: str, task: Any, error: Exception) -> None:
    done.left_out += 1
    if done.left_out <= MOST_REPORTED:
        logger.warning(
            "project %s: the annotation of task %.60r is left out: %s", project, task, error
        )


def _report(project: str, done: Pulled) -> None:
    logger.info(
        "project %s: %d tasks, %d learnt, %d forgotten, %d left out",
        project, done.n_tasks, done.learnt, done.forgotten, done.left_out,
    )  # fmt: skip
    if done.missing:
        logger.warning(
            "project %s: %d items are kept although Label Studio does not have them any more, or "
            "did not send them; an administrator can forget them with POST /v1/label-studio/pull",
            project, done.missing,
        )  # fmt: skip


def version(published: Published) -> str:
    """Return the version that Label Studio sees; a new one brings fresh predictions."""
    return f"tagstream-{published.position}"


def _check_text(text: str, where: str) -> None:
    """Refuse a text that the service would not take elsewhere either."""
    try:
        Item(text=text)
    except ValidationError as error:
        _, message = error_of(error.errors())
        raise Refused(f"{where}{message.removeprefix('text')}", where) from None


def _object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise Refused(f"{name} must be an object, got {str(value)[:40]!r}", name)
    return value


def _key_start(project: str, annotation: Any) -> str:
    """Return what the keys of an annotation's events begin with."""
    return f"ls:{project}:{_number(annotation, 'id')}:"


def _stamp(annotation: Mapping[str, Any]) -> str:
    """Return the time of an annotation's last change."""
    stamp = annotation.get("updated_at") or annotation.get("created_at") or ""
    if not isinstance(stamp, str):
        raise Refused(f"updated_at must be a string, got {str(stamp)[:40]!r}", "updated_at")
    return stamp[:64]


def _number(value: Any, name: str) -> int:
    number = value.get(name) if isinstance(value, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 62:
        raise Refused(f"{name} must be a whole number, got {str(number)[:40]!r}", name)
    return number


def _printable(body: Mapping[str, Any], name: str) -> str:
    """Return a field that goes into a request: nothing, or one word of plain characters."""
    value = body.get(name) or ""
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]*", value):
        raise Refused(f"{name} must be a string of printable characters without blanks", name)
    if len(value) > MAX_ADDRESS:
        raise Refused(f"{name} must have at most {MAX_ADDRESS} characters, got {len(value)}", name)
    return value


def _header(host: Host, token: str) -> dict[str, str]:
    """Return the header for an access token: a plain one, or one that must be exchanged first."""
    if token.count(".") == 2:
        data = json.dumps({"refresh": token}).encode()
        told = host.value("/api/token/refresh", {"Content-Type": "application/json"}, data)
        access = told.get("access") if isinstance(told, dict) else None
        if not isinstance(access, str) or not re.fullmatch(r"[!-~]+", access):
            raise Refused("Label Studio must answer an access token, got none", "access_token")
        return {"Authorization": f"Bearer {access}"}
    return {"Authorization": f"Token {token}"}
