"""The machine-learning backend that Label Studio talks to, and what it says.

Label Studio asks ``/health``, ``/setup`` and ``/predict``, and tells of annotations at
``/webhook``.  It does not tell again what it could not tell while the service was away; on
START_TRAINING the annotations of the project are fetched and what was missed is learnt.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tagstream.serve.pool import certainty
from tagstream.serve.schema import ForgetRequest, TaggedItem, error_of
from tagstream.serve.writer import Busy, Change, Done, Published, Refused, Service

__all__ = ["Config", "LabelStudio"]

PULL_SECONDS = 60
LEARNT_AT_A_TIME = 500

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


class LabelStudio:
    """The backend of all projects of one folder.

    Parameters
    ----------
    service : Service
    path : Path
        Where addresses, access tokens and configurations of projects are kept; a file that only
        its owner can read.
    """

    def __init__(self, service: Service, path: Path) -> None:
        self.service, self.path = service, path
        self._lock = threading.Lock()
        self._pulls: dict[str, threading.Thread] = {}
        self._projects: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._projects = json.loads(path.read_text(encoding="utf-8"))

    # ------------------------------------------------------------------ asking
    def setup(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``/setup``: keep how to reach the project, tell the model's version."""
        project = project_of(body.get("project"))
        Config.of(body.get("schema"))
        kept = {
            "schema": body["schema"],
            "hostname": body.get("hostname") or "",
            "access_token": body.get("access_token") or "",
        }
        if not all(isinstance(value, str) for value in kept.values()):
            raise Refused("hostname and access_token must be strings", "hostname")
        with self._lock:
            if self._projects.get(project) != kept:
                self._projects[project] = kept
                self._save()
        return {"model_version": version(self.service.read())}

    def _save(self) -> None:
        new = self.path.with_suffix(".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(self._projects, file)
        os.replace(new, self.path)

    def predict(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``/predict``: one result for each task, in their order."""
        config = Config.of(body.get("label_config"))
        tasks = body.get("tasks")
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise Refused("tasks must be a list of objects", "tasks")
        published = self.service.read()
        texts = [config.text(task) for task in tasks]
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
        return self._submit([self._change(project_of(project), config, task, annotation)])

    def _change(
        self, project: str, config: Config, task: Mapping[str, Any], annotation: Mapping[str, Any]
    ) -> tuple[str, str, dict[str, Any]] | None:
        """Return kind, key and body of the event of an annotation, if it says anything new."""
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
        changes: list[tuple[str, str, dict[str, Any]] | None] = []
        for annotation in annotations if isinstance(annotations, list) else ():
            start = _key_start(project, annotation)
            known = self._keys(start)
            item = known[-1][1] if known else None
            if item is not None and self._is_last_word(item, start):
                changes.append(("forget", f"{start}deleted", {"id": item}))
        return self._submit(changes)

    def _submit(self, changes: list[tuple[str, str, dict[str, Any]] | None]) -> Future[Done] | None:
        """Queue changes of one kind."""
        told = [change for change in changes if change is not None]
        if not told:
            return None
        bodies = [body for _, _, body in told]
        keys: list[str | None] = [key for _, key, _ in told]
        return self.service.submit(Change(told[0][0], bodies, keys))

    # ------------------------------------------------------------------ what was missed
    def start_pull(self, project: str) -> threading.Thread:
        """Fetch the annotations of a project in a thread; one at a time for each project."""
        with self._lock:
            running = self._pulls.get(project)
            if running is None or not running.is_alive():
                running = threading.Thread(
                    target=self._pull,
                    args=(project,),
                    name=f"tagstream-pull-{project}",
                    daemon=True,
                )
                self._pulls[project] = running
                running.start()
        return running

    def _pull(self, project: str) -> None:
        try:
            n_learnt, n_forgotten = self.pull(project)
        except Exception as error:  # a thread of its own: whatever it is, it must be seen
            logger.error("the annotations of project %s were not fetched: %s", project, error)
        else:
            logger.info("project %s: %d learnt, %d forgotten", project, n_learnt, n_forgotten)
        finally:
            self.service.log.close_reader()  # the thread ends here

    def pull(self, project: str) -> tuple[int, int]:
        """Fetch the annotations of a project; return how many were learnt and forgotten."""
        known = self._projects.get(project)
        if known is None or not known["hostname"]:
            raise Refused(
                "the project must have been set up, got none; open a task first", "project"
            )
        config = Config.of(known["schema"])
        tasks = _fetch_tasks(known["hostname"], project, known["access_token"])
        learnt, kept = [], set()
        for task in tasks:
            there = [
                annotation
                for annotation in task.get("annotations") or ()
                if not annotation.get("was_cancelled")
            ]
            if there:
                kept.add(f"ls:{project}:{task['id']}")
                newest = max(there, key=lambda annotation: str(annotation.get("updated_at")))
                learnt.append(self._change(project, config, task, newest))
        position = self.service.read().position
        gone = [
            ("forget", f"ls-gone:{item.removeprefix('ls:')}:{position}", {"id": item})
            for item in self.service.log.ids(f"ls:{project}:")
            if item not in kept
        ]
        return self._wait(learnt), self._wait(gone)

    def _wait(self, changes: list[Any]) -> int:
        n = 0
        for start in range(0, len(changes), LEARNT_AT_A_TIME):
            part = changes[start : start + LEARNT_AT_A_TIME]
            while True:
                try:
                    future = self._submit(part)
                    break
                except Busy as busy:
                    time.sleep(busy.retry_after)
            n += future.result().n if future else 0
        return n


def version(published: Published) -> str:
    """Return the version that Label Studio sees; a new one brings fresh predictions."""
    return f"tagstream-{published.position}"


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


def _fetch_tasks(hostname: str, project: str, token: str) -> list[dict[str, Any]]:
    if urllib.parse.urlsplit(hostname).scheme not in ("http", "https"):
        raise Refused(f"hostname must begin with http:// or https://, got {hostname!r}", "hostname")
    root = hostname.rstrip("/")
    tasks = _ask(f"{root}/api/projects/{project}/export?exportType=JSON", _header(root, token))
    if not isinstance(tasks, list):
        raise Refused(f"the export of project {project} must be a list", "project")
    return tasks


def _header(root: str, token: str) -> dict[str, str]:
    """Return the header for an access token: a plain one, or one that must be exchanged first."""
    if token.count(".") == 2:
        data = json.dumps({"refresh": token}).encode()
        told = _ask(f"{root}/api/token/refresh", {"Content-Type": "application/json"}, data)
        return {"Authorization": f"Bearer {told['access']}"}
    return {"Authorization": f"Token {token}"}


def _ask(url: str, headers: dict[str, str], data: bytes | None = None) -> Any:
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PULL_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise OSError(f"{url} answered {error.code}") from None
