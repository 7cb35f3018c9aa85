"""Label Studio's contract as it was recorded on the wire (1.23.2); what was missed is recovered."""

from __future__ import annotations

import base64
import copy
import http.server
import json
import random
import threading
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import serving
from tagstream.serve.labelstudio import Config
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Change, Refused

CONFIG = """<View>
  <Text name="text" value="$text"/>
  <Choices name="tags" toName="text" choice="multiple">
    <Choice value="python"/><Choice value="sorting"/><Choice value="sea"/>
  </Choices>
</View>"""
PROJECT = {"id": 1, "label_config": CONFIG, "title": "posts"}
STAMP = "2026-11-16T10:00:00.000001Z"
JSON = {"content-type": "application/json"}


def task(number: int, text: str) -> dict[str, Any]:
    return {
        "id": number, "data": {"text": text}, "meta": {}, "project": 1, "annotations": [],
        "predictions": [],
    }  # fmt: skip


def annotation(number: int, of: int, *tags: str, at: str = STAMP, **more: Any) -> dict[str, Any]:
    result = {"from_name": "tags", "to_name": "text", "type": "choices",
              "value": {"choices": [*tags]}}  # fmt: skip
    return {
        "id": number, "task": of, "was_cancelled": False, "updated_at": at,
        "result": [result] if tags else [], **more,
    }  # fmt: skip


def annotated(action: str, found: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        "action": action, "annotation": found, "task": task(found["task"], text),
        "project": PROJECT,
    }  # fmt: skip


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path) as made:
        yield made


def tell(client: Any, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/ls/webhook", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def items(client: Any) -> dict[str, list[str]]:
    return {found["id"]: found["y"] for found in client.get("/v1/items").json()["items"]}


def setup(client: Any, hostname: str = "http://localhost:8099", token: str = "t") -> Any:
    body = {"project": "1.1794817084", "schema": CONFIG, "hostname": hostname,
            "access_token": token, "extra_params": None}  # fmt: skip
    return client.post("/ls/setup", json=body)


def predict(client: Any, *texts: str, config: str = CONFIG) -> list[dict[str, Any]]:
    body = {
        "tasks": [task(i, text) for i, text in enumerate(texts, 1)],
        "project": "1.1794817084",
        "label_config": config,
        "params": {"login": None, "password": None, "context": None},
    }
    answer = client.post("/ls/predict", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


def test_health_setup_and_versions(client):
    assert client.get("/ls/health").json() == {"status": "UP", "model_class": "tagstream"}
    assert client.get("/ls/").json()["status"] == "UP"
    assert setup(client).json() == {"model_version": "tagstream-0"}
    assert client.get("/ls/versions").json() == {"versions": ["tagstream-0"]}


def test_an_annotation_changes_the_next_suggestion(client):
    tell(
        client,
        annotated("ANNOTATION_CREATED", annotation(1, 1, "python", "sorting"), "sort a list"),
    )
    first, second = predict(client, "sort my list", "sort a list")
    assert first["result"] == [
        {
            "from_name": "tags",
            "to_name": "text",
            "type": "choices",
            "value": {"choices": ["python", "sorting"]},
        }
    ]
    assert 0 < first["score"] <= 1
    assert first["model_version"] == second["model_version"] == "tagstream-1"
    later = annotation(1, 1, "sorting", at="2026-11-16T10:00:09Z")
    tell(client, annotated("ANNOTATION_UPDATED", later, "sort a list"))
    (third,) = predict(client, "sort my list")
    assert third["result"][0]["value"] == {"choices": ["sorting"]}
    assert third["model_version"] == "tagstream-2"
    assert items(client) == {"ls:1:1": ["sorting"]}


def test_an_event_is_learnt_once_and_an_old_one_not_at_all(client):
    new = annotated("ANNOTATION_UPDATED", annotation(1, 1, "sea", at="2026-11-16T12"), "swim")
    assert tell(client, new)["n"] == 1
    assert tell(client, new)["n"] == 0
    old = annotated("ANNOTATION_CREATED", annotation(1, 1, "python", at="2026-11-16T11"), "swim")
    assert tell(client, old)["n"] == 0
    assert items(client) == {"ls:1:1": ["sea"]}


def test_deleting_an_annotation_forgets_the_item(client):
    tell(client, annotated("ANNOTATION_CREATED", annotation(1, 1, "sea"), "swim"))
    tell(client, annotated("ANNOTATION_CREATED", annotation(2, 2, "sea"), "dive"))
    deleted = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 1}, {"id": 99}],
               "project": PROJECT}  # fmt: skip
    assert tell(client, deleted)["n"] == 1
    assert tell(client, deleted)["n"] == 0
    assert items(client) == {"ls:1:2": ["sea"]}


def test_a_skip_is_not_learnt_and_takes_back_what_was(client):
    skipped = annotation(1, 1, was_cancelled=True)
    assert tell(client, annotated("ANNOTATION_CREATED", skipped, "swim"))["n"] == 0
    tell(client, annotated("ANNOTATION_UPDATED", annotation(1, 1, "sea", at="2027"), "swim"))
    assert items(client) == {"ls:1:1": ["sea"]}
    again = annotation(1, 1, at="2028", was_cancelled=True)
    tell(client, annotated("ANNOTATION_UPDATED", again, "swim"))
    assert items(client) == {}


def test_an_empty_result_means_no_tags(client):
    tell(client, annotated("ANNOTATION_CREATED", annotation(1, 1), "nothing of it"))
    assert items(client) == {"ls:1:1": []}


def test_only_listed_choices_are_suggested(client):
    body = {"items": [{"id": "a", "text": "sort a list", "y": ["other", "python"]}]}
    client.post("/v1/learn", json=body)
    (told,) = predict(client, "sort a list")
    assert told["result"][0]["value"]["choices"] == ["python"]
    single = CONFIG.replace(' choice="multiple"', "")
    tell(client, annotated("ANNOTATION_CREATED", annotation(1, 1, "python", "sea"), "swim deep"))
    (told,) = predict(client, "swim deep", config=single)
    assert len(told["result"][0]["value"]["choices"]) == 1


def test_a_task_without_text_gets_an_empty_result_in_its_place(client):
    body = {"tasks": [{"id": 1, "data": {}}, task(2, "swim")], "label_config": CONFIG}
    results = client.post("/ls/predict", json=body).json()["results"]
    assert [told["result"] for told in results] == [[], []]


@pytest.mark.parametrize(
    ("tasks", "field", "message"),
    [
        ([task(i, "t") for i in range(1001)], "tasks", "at most 1000 items, got 1001"),
        ([task(1, "t"), task(2, "a" * 100_001)], "tasks[1].data.text", "at most 100000 characters"),
        ([task(1, "\ud800")], "tasks[0].data.text", "must be a valid string"),
    ],
)
def test_predictions_obey_the_limits(client, tasks, field, message):
    body = json.dumps({"tasks": tasks, "label_config": CONFIG})
    answer = client.post("/ls/predict", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert message in answer.json()["error"]


def test_very_many_deletions_at_once_are_refused(client):
    told = {
        "action": "ANNOTATIONS_DELETED",
        "project": PROJECT,
        "annotations": [{"id": 1}] * 10_001,
    }
    answer = client.post("/ls/webhook", json=told)
    assert (answer.status_code, answer.json()["field"]) == (422, "annotations")


@pytest.mark.parametrize("action", ["PROJECT_UPDATED", "TASKS_CREATED", "LABEL_LINK_CREATED", None])
def test_actions_that_do_not_matter_are_answered(client, action):
    assert tell(client, {"action": action, "project": PROJECT}) == {"n": 0, "duplicates": 0}


@pytest.mark.parametrize(
    "config",
    [
        "", "<View", "<View/>", '<View><Text name="t" value="fixed"/></View>',
        '<!DOCTYPE a [<!ENTITY b "c">]><View/>', None, 7,
        '<View><Image name="i" value="$i"/><Choices name="c" toName="i"/></View>',
    ],
)  # fmt: skip
def test_a_configuration_without_choices_about_a_text_is_refused(client, config):
    with pytest.raises(Refused, match="label_config must"):
        Config.of(config)
    body = {"project": "1", "schema": config, "hostname": "", "access_token": ""}
    answer = client.post("/ls/setup", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "label_config")


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("project", {"project": 1}),
        ("project", {"project": "1"}),
        ("project", {"project": None}),
        ("task", {"task": [1]}),
        ("annotation", {"annotation": "x"}),
        ("id", {"annotation": {"id": "1"}}),
        ("updated_at", {"annotation": {"id": 1, "updated_at": {"at": 1}}}),
        ("key", {"annotation": {"id": 1, "updated_at": "9\ud800"}}),
    ],
)
def test_a_webhook_of_the_wrong_shape_is_refused_and_names_the_field(client, field, change):
    body = annotated("ANNOTATION_CREATED", annotation(1, 1, "sea"), "swim") | change
    answer = client.post("/ls/webhook", content=json.dumps(body), headers=JSON)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


def test_a_skip_with_a_bad_time_is_refused_and_stops_nothing(client):
    tell(client, annotated("ANNOTATION_CREATED", annotation(1, 1, "sea"), "swim"))
    bad = annotation(1, 1, at="9\ud800", was_cancelled=True)
    body = json.dumps(annotated("ANNOTATION_UPDATED", bad, "swim"))
    answer = client.post("/ls/webhook", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["field"]) == (422, "key")
    told = annotated("ANNOTATION_CREATED", annotation(2, 2, "sea"), "dive")
    assert tell(client, told)["n"] == 1


JUNK = [None, True, 0, -1, 1 << 70, 1.5, float("nan"), "", "1", "\ud800", "\n", "x" * 300, [],
        [[]], [1], ["a"], {}, {"id": 1}, {"choices": "a"}, CONFIG, STAMP]  # fmt: skip


def mangle(value: Any, rng: random.Random) -> Any:
    """Put junk into one place of a JSON value, or take that place away."""
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.15:
        return copy.deepcopy(rng.choice(JUNK))
    places = [*value] if isinstance(value, dict) else range(len(value))
    place = rng.choice([*places])
    mangled = copy.copy(value)
    if rng.random() < 0.1:
        del mangled[place]
    else:
        mangled[place] = mangle(value[place], rng)
    return mangled


def test_no_mangled_webhook_makes_the_service_fail(client):
    rng = random.Random(8)
    for i in range(600):
        action = rng.choice(["ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_DELETED"])
        found = annotation(i % 7, i % 5, "sea", at=f"2026-{i:04d}", was_cancelled=i % 3 == 0)
        body = annotated(action, found, "swim") | {"annotations": [{"id": i % 7}]}
        for _ in range(rng.randrange(1, 4)):
            body = mangle(body, rng)
        answer = client.post("/ls/webhook", content=json.dumps(body), headers=JSON)
        assert answer.status_code in (201, 409, 422), (body, answer.text)
        assert answer.status_code == 201 or answer.json()["error"]
    told = annotated("ANNOTATION_CREATED", annotation(99, 99, "sea"), "dive")
    assert tell(client, told)["n"] == 1


def test_choices_may_have_aliases_or_come_with_the_task():
    config = Config.of(
        '<View><Choices name="c" toName="t" value="$options"><Choice value="A" alias="a"/>'
        '</Choices><Text name="t" value="$body"/></View>'
    )
    data = {"options": [{"value": "B"}, {"value": "C", "alias": "c"}, "D"]}
    assert config.allowed({"data": data}) == {"a", "B", "c", "D"}
    assert config.is_single


def test_a_secret_in_the_path_or_basic_authentication_lets_label_studio_in(tmp_path):
    secret = Tokens(tmp_path / "tokens.json").add("label studio", "write")
    with serving(tmp_path, is_open=False) as client:
        told = annotated("ANNOTATION_CREATED", annotation(1, 1, "sea"), "swim")
        assert client.post("/ls/webhook", json=told).status_code == 401
        assert client.post(f"/ls/key/{secret}x/webhook", json=told).status_code == 401
        assert client.post(f"/ls/key/{secret}/webhook", json=told).status_code == 201
        assert client.get(f"/ls/key/{secret}/health").status_code == 200
        basic = base64.b64encode(f"user:{secret}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}"}
        assert client.get("/ls/health", headers=headers).status_code == 200
        assert client.get("/ls/health", headers={"Authorization": "Basic %"}).status_code == 401


# ---------------------------------------------------------------------- what was missed
class Studio(http.server.BaseHTTPRequestHandler):
    """The two calls of Label Studio that the backend makes."""

    tasks: list[dict[str, Any]] = []  # noqa: RUF012 - set by each test
    token = "t"
    refresh = "a.b.c"

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        allowed = (f"Token {self.token}", "Bearer fresh")
        if self.headers["Authorization"] not in allowed:
            self._answer(401, {})
        elif self.path == "/api/projects/1/export?exportType=JSON&download_all_tasks=true":
            self._answer(200, self.tasks)
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.path == "/api/token/refresh" and body == {"refresh": self.refresh}
        self._answer(200 if known else 401, {"access": "fresh"})

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def studio():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Studio)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def train(client: Any) -> None:
    tell(client, {"action": "START_TRAINING", "project": PROJECT})
    for thread in threading.enumerate():
        if thread.name.startswith("tagstream-pull"):
            thread.join()


@pytest.mark.parametrize("token", ["t", "a.b.c"])
def test_training_learns_what_was_missed_and_forgets_what_is_gone(client, studio, token):
    setup(client, studio, token)
    for number, text in ((1, "sort a list"), (2, "swim"), (3, "dive")):
        told = annotation(number, number, "python" if number == 1 else "sea")
        tell(client, annotated("ANNOTATION_CREATED", told, text))
    Studio.tasks = [
        task(1, "sort a list") | {"annotations": [annotation(1, 1, "python")]},  # as known
        task(2, "swim") | {"annotations": [annotation(2, 2, "sorting", at="2027")]},  # changed
        task(3, "dive") | {"annotations": [annotation(3, 3, was_cancelled=True, at="2027")]},
        task(4, "new")
        | {"annotations": [annotation(4, 4, "sea"), annotation(5, 4, "python", at="3")]},
    ]
    train(client)
    assert items(client) == {"ls:1:1": ["python"], "ls:1:2": ["sorting"], "ls:1:4": ["python"]}
    position = client.get("/v1/info").json()["position"]
    train(client)
    assert client.get("/v1/info").json()["position"] == position


def test_a_task_that_is_gone_does_not_silence_the_annotation_of_its_number(client, studio):
    setup(client, studio)
    tell(client, annotated("ANNOTATION_CREATED", annotation(1, 500, "sea"), "swim"))
    tell(client, annotated("ANNOTATION_CREATED", annotation(2, 600, "sea"), "dive"))
    # Under such a key an earlier version kept that a task was gone.
    old = Change("forget", [{"id": "ls:1:600"}], ["ls:1:600:gone:2"])
    client.service.submit(old).result(60)
    Studio.tasks = []
    pull = client.post("/v1/label-studio/pull", json={"project": 1, "forget_missing": True})
    assert (pull.status_code, pull.json()["forgotten"]) == (200, 1)
    assert items(client) == {}
    for number in (500, 600):
        told = annotated("ANNOTATION_CREATED", annotation(number, number - 1, "sea"), "dive deep")
        assert tell(client, told)["n"] == 1
    deleted = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 600}], "project": PROJECT}
    assert tell(client, deleted)["n"] == 1
    assert items(client) == {"ls:1:499": ["sea"]}


def test_training_again_and_again_keeps_no_connections(client, studio):
    setup(client, studio)
    Studio.tasks = []
    train(client)
    n_open = len(client.service.log._open_readers)
    for _ in range(5):
        train(client)
    assert len(client.service.log._open_readers) <= n_open


def test_training_that_fails_changes_nothing_and_is_told(client, studio, caplog):
    setup(client, studio, "wrong")
    Studio.tasks = []
    train(client)
    assert "were not fetched" in caplog.text
    assert "answered 401" in caplog.text


def test_the_project_is_remembered_by_the_next_start(tmp_path, studio):
    with serving(tmp_path) as client:
        setup(client, studio)
    Studio.tasks = [task(1, "missed") | {"annotations": [annotation(1, 1, "sea")]}]
    with serving(tmp_path) as client:
        train(client)
        assert items(client) == {"ls:1:1": ["sea"]}
