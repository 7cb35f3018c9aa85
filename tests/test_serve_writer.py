"""The log and the writer: durable, exactly once, the same after any interruption."""

from __future__ import annotations

import contextlib
import json
import logging
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_tagger import FakeTagger, FakeView
from tagstream import KNN
from tagstream.serve import writer
from tagstream.serve.log import Event, EventLog, LogFull
from tagstream.serve.pool import Pool, certainty
from tagstream.serve.progress import Outcome, Progress
from tagstream.serve.snapshots import SNAPSHOTS_KEPT
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Busy, Change, Closed, Refused, Service
from tagstream.tagger import Tagger


def item(name: str, text: str, *tags: str) -> dict[str, Any]:
    return {"id": name, "text": text, "y": [*tags]}


def learn(service: Service, *items: dict[str, Any], keys: Any = None) -> Any:
    change = Change("learn", [*items], keys or [None] * len(items))
    return service.submit(change).result(timeout=60)


def change(service: Service, kind: str, key: str | None = None, **body: Any) -> Any:
    return service.submit(Change(kind, [body], [key])).result(timeout=60)


def state(service: Service) -> dict[str, Any]:
    return service._tagger.state()


@pytest.fixture
def service(tmp_path):
    with Service(tmp_path, FakeTagger) as made:
        yield made


def replayed(folder: Path) -> dict[str, Any]:
    """The state that the whole log gives, without snapshots."""
    log = EventLog(folder / "events.db")
    tagger = FakeTagger()
    for event in log.after(0):
        writer.apply_events(tagger, [event])
    log.close()
    return tagger.state()


# ---------------------------------------------------------------------- exactly once
def test_what_is_learnt_is_in_the_log_and_in_the_view(service):
    done = learn(service, item("1", "sort a list", "python"), item("2", "swim in May", "sea"))
    assert (done.n, done.duplicates, done.position) == (2, 0, 2)
    assert service.read().view.n_items == 2
    assert [event.body for event in service.log.after(0)] == [
        item("1", "sort a list", "python"),
        item("2", "swim in May", "sea"),
    ]


def test_a_retry_with_the_same_key_is_answered_and_not_learnt_twice(service):
    one = item("1", "sort a list", "python")
    learn(service, one, keys=["k"])
    learn(service, item("1", "sort a list", "lists"), keys=["l"])
    again = learn(service, one, keys=["k"])
    assert (again.n, again.duplicates) == (0, 1)
    assert service.read().view.counts == {"lists": 1}


def test_a_retry_without_a_key_changes_nothing(service):
    learn(service, item("1", "sort a list", "python", "lists"))
    again = learn(service, item("1", "sort a list", "lists", "python"))
    assert (again.n, again.duplicates) == (0, 1)
    assert service.log.position == 1


def test_a_known_id_is_a_correction_and_can_be_taken_back(service):
    learn(service, item("1", "sort a list", "a"))
    learn(service, item("1", "sort a list", "b"))
    done = learn(service, item("1", "sort a list", "a"))
    assert done.n == 1
    assert service.read().view.counts == {"a": 1}


def test_a_key_of_another_change_is_refused_as_a_whole(service):
    learn(service, item("1", "sort a list", "python"), keys=["k"])
    with pytest.raises(Refused, match="key must be new for another change, got 'k'") as error:
        learn(service, item("9", "x", "y"), item("2", "swim", "sea"), keys=[None, "k"])
    assert error.value.status == 409
    assert service.log.position == 1


def test_tags_are_renamed_merged_and_removed(service):
    learn(service, item("1", "a", "py"), item("2", "b", "python3"), item("3", "c", "sea", "py"))
    change(service, "rename", old="sea", new="ocean")
    change(service, "merge", tags=["py", "python3"], into="python")
    assert service.read().view.counts == {"python": 3, "ocean": 1}
    change(service, "remove", tag="ocean")
    assert service.read().view.counts == {"python": 3}
    assert service.tags_now(service.log.newest("3")) == ["python"]


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("rename", {"old": "x", "new": "y"}, "old must be known, got 'x'"),
        ("rename", {"old": "a", "new": "b"}, "new must not be a tag that is there"),
        ("merge", {"tags": ["a", "x"], "into": "c"}, "tags must be known, got 'x'"),
        ("remove", {"tag": "x"}, "tag must be known, got 'x'"),
    ],
)
def test_what_cannot_be_done_with_tags_is_refused(service, kind, body, message):
    learn(service, item("1", "t", "a", "b"))
    with pytest.raises(Refused, match=message):
        change(service, kind, **body)
    assert service.log.position == 1


def test_forgetting_what_is_not_known_does_nothing(service):
    learn(service, item("1", "t", "a"))
    assert change(service, "forget", id="2").n == 0
    assert change(service, "forget", id="1").n == 1
    assert change(service, "forget", id="1").n == 0
    assert service.read().view.n_items == 0


def test_items_of_another_kind_are_refused(service):
    learn(service, item("1", "t", "a"))
    with pytest.raises(Refused, match="items must be of one kind"):
        learn(service, {"id": "2", "x": [1.0], "y": []})
    assert service.log.position == 1


def test_what_the_tagger_does_not_take_is_passed_over_now_and_in_every_replay(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, item("1", "good", "a"))
        with pytest.raises(Refused, match="text must not be p0ison"):
            learn(service, item("2", "p0ison", "a"), item("1", "better", "b"))
        assert service.log.newest("2") is None
        before = state(service)
    for snapshot in (tmp_path / "snapshots").iterdir():
        snapshot.unlink()
    with Service(tmp_path, FakeTagger) as service:
        assert state(service) == before


def test_a_retry_of_what_was_refused_is_refused_with_the_same_words(tmp_path):
    for _ in range(2):  # also by the next start
        with Service(tmp_path, FakeTagger) as service:
            for _ in range(2):
                with pytest.raises(Refused, match=r"^text must not be p0ison$"):
                    learn(service, item("2", "p0ison", "a"), keys=["k"])
    assert service.log.position == 2  # the event, and that it was rejected


def test_an_unknown_item_is_not_forgotten_by_a_late_retry(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        done = change(service, "forget", "k", id="1")
        assert (done.n, done.duplicates) == (0, 1)
        learn(service, item("1", "t", "a"))
    with Service(tmp_path, FakeTagger) as service:
        again = change(service, "forget", "k", id="1")
        assert (again.n, again.duplicates) == (0, 1)
        assert service.read().view.n_items == 1
        assert change(service, "forget", "l", id="1").n == 1
    assert replayed(tmp_path)["items"] == {}


def test_a_folder_in_which_nothing_was_learnt_ends_in_order(tmp_path):
    with Service(tmp_path) as service:
        change(service, "forget", "k", id="1")
    assert service.failure is None
    assert [*(tmp_path / "snapshots").iterdir()] == []


def test_what_a_window_has_lost_is_learnt_again(tmp_path):
    def numbered(i: int) -> dict[str, Any]:
        return {"id": f"{i}", "x": [i, 1.0], "y": ["a"]}

    tagger = Tagger(KNN(1, window=5))
    tagger.learn([numbered(i) for i in range(5)])
    tagger.save(tmp_path / "m.tgs")
    with Service(tmp_path / "folder", model=tmp_path / "m.tgs") as service:
        for i in range(100, 110):
            learn(service, numbered(i))
        assert service.read().n_items == 5
        for _ in range(2):
            with pytest.raises(Refused, match=r"^no stored item is called '100'$"):
                change(service, "forget", "k1", id="100")
        assert change(service, "forget", id="0").n == 0
        assert learn(service, numbered(109)).duplicates == 1
        assert learn(service, numbered(100)).n == 1
        assert learn(service, numbered(100)).duplicates == 1
        assert service.read().n_items == 5


def test_a_change_that_cannot_be_planned_is_refused_alone(service, monkeypatch):
    learn(service, item("1", "t", "a"))
    with pytest.raises(UnicodeEncodeError):
        change(service, "forget", "9\ud800", id="1")
    assert learn(service, item("2", "t", "a")).n == 1
    usual = FakeView.ask

    def failing(self: FakeView, records: Any, **more: Any) -> Any:
        if any(record.get("text") == "bad" for record in records):
            raise RuntimeError("a fault")
        return usual(self, records, **more)

    monkeypatch.setattr(FakeView, "ask", failing)
    with service._wake:  # so that they make one group
        futures = [
            service.submit(Change("learn", [item(name, text, "a")], [None]))
            for name, text in (("3", "good"), ("4", "bad"), ("5", "good too"))
        ]
    with pytest.raises(RuntimeError):
        futures[1].result(60)
    assert [futures[0].result(60).position, futures[2].result(60).position] == [3, 4]
    with pytest.raises(RuntimeError):
        service.submit(Change("pool", [{"id": "p", "item": {"text": "bad"}}], [None])).result(60)
    assert learn(service, item("6", "t", "a")).n == 1


def test_the_same_item_twice_at_once_is_learnt_once(service):
    learn(service, item("0", "t", "a"))
    with service._wake:  # so that they make one group
        futures = [service.submit(Change("learn", [item("1", "t", "a")], [None])) for _ in "ab"]
    assert [future.result(60).n for future in futures] == [1, 0]


def test_views_do_not_change(service):
    learn(service, item("1", "sort a list", "python"))
    view = service.read().view
    learn(service, item("1", "sort a list", "lists"))
    assert view.counts == {"python": 1}


# ---------------------------------------------------------------------- groups and limits
def test_many_changes_at_once_are_all_learnt_in_order(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        futures = [
            service.submit(Change("learn", [item(f"{i % 37}", f"w{i}", f"t{i % 5}")], [f"k{i}"]))
            for i in range(700)
        ]
        wait(futures)
        assert [future.result().position for future in futures] == [*range(1, 701)]
        assert [event.key for event in service.log.after(0)] == [f"k{i}" for i in range(700)]
        before = state(service)
    assert replayed(tmp_path) == before


def test_a_full_queue_turns_away(service, monkeypatch):
    monkeypatch.setattr(writer, "QUEUE_ITEMS", 1)
    with pytest.raises(Busy) as error:
        learn(service, item("1", "t", "a"), item("2", "t", "a"))
    assert error.value.retry_after >= 0
    assert learn(service, item("1", "t", "a")).n == 1


def test_a_change_that_was_cancelled_in_time_is_not_made(tmp_path):
    service = Service(tmp_path, FakeTagger)
    service.start()
    with service._wake:  # the writer cannot take anything meanwhile
        cancelled = service.submit(Change("learn", [item("1", "t", "a")], [None]))
        kept = service.submit(Change("learn", [item("2", "t", "a")], [None]))
        assert cancelled.cancel()
    assert kept.result(60).position == 1
    service.close()
    assert [*replayed(tmp_path)["items"]] == ["2"]


def test_closing_does_what_waits(tmp_path):
    service = Service(tmp_path, FakeTagger).start()
    futures = [service.submit(Change("learn", [item(f"{i}", "t", "a")], [None])) for i in range(50)]
    service.close()
    assert all(future.result().n == 1 for future in futures)
    with pytest.raises(Closed):
        service.submit(Change("learn", [item("x", "t", "a")], [None]))


# ---------------------------------------------------------------------- starting again
def fill(folder: Path, n: int = 30, **options: Any) -> dict[str, Any]:
    with Service(folder, FakeTagger, **options) as service:
        for i in range(n):
            learn(service, item(f"{i % 20}", f"word{i}", f"tag{i % 4}"))
        change(service, "rename", old="tag1", new="one")
        change(service, "forget", id="3")
        return state(service)


def test_a_start_replays_only_what_came_after_the_snapshot(tmp_path):
    before = fill(tmp_path)
    with Service(tmp_path, FakeTagger) as service:
        assert service.replayed == 0
        assert state(service) == before
        learn(service, item("new", "t", "a"))
        service.submit(Change("snapshot", [], [])).result(60)
    names = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert names == ["000000000032.tgs", "000000000033.tgs"]


def test_old_snapshots_are_removed(tmp_path):
    fill(tmp_path, snapshot_events=4)
    assert len([*(tmp_path / "snapshots").iterdir()]) == SNAPSHOTS_KEPT


@pytest.mark.parametrize("n_damaged", [1, 3])
def test_a_damaged_snapshot_falls_back_to_the_one_before(tmp_path, n_damaged, caplog):
    before = fill(tmp_path, snapshot_events=7)
    snapshots = sorted((tmp_path / "snapshots").glob("*.tgs"))
    for path in snapshots[-n_damaged:]:
        path.write_bytes(path.read_bytes()[:-3])
    with caplog.at_level(logging.ERROR), Service(tmp_path, FakeTagger) as service:
        assert state(service) == before
        assert service.replayed > 0
    assert "is damaged" in caplog.text


def test_a_torn_write_ahead_log_is_dropped_as_a_whole(tmp_path):
    log = EventLog(tmp_path / "events.db")
    for i in range(3):
        with log.transaction():
            log.append(Event("learn", f"k{i}", item(f"{i}", "t", "a")))
    wal = tmp_path / "events.db-wal"
    torn = wal.read_bytes()[:-100]
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "events.db").write_bytes((tmp_path / "events.db").read_bytes())
    (copy / "events.db-wal").write_bytes(torn)
    log.close()
    again = EventLog(copy / "events.db")
    assert again.position == 2
    again.close()


def test_a_second_service_on_one_folder_is_refused(service, tmp_path):
    with pytest.raises(OSError, match="must not be served twice, got a lock of process"):
        Service(tmp_path, FakeTagger)
    assert learn(service, item("1", "t", "a")).n == 1


def test_a_full_disk_changes_nothing_and_is_survived(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, item("1", "t", "a"))
        pages = service.log._connection.execute("PRAGMA page_count").fetchone()[0]
        service.log._connection.execute(f"PRAGMA max_page_count = {pages}")
        before = state(service)
        with pytest.raises(LogFull, match="cannot be written: database or disk is full"):
            learn(service, item("big", "word " * 20_000, "b"))
        assert state(service) == before
        assert service.log.position == 1
        assert service.read().view.n_items == 1
        service.log._connection.execute("PRAGMA max_page_count = 100000")
        assert learn(service, item("big", "word " * 20_000, "b")).position == 2
        before = state(service)
    assert replayed(tmp_path) == before


def test_a_snapshot_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    def full(self: FakeTagger, path: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FakeTagger, "save", full)
    with Service(tmp_path, FakeTagger, snapshot_events=1) as service:
        learn(service, item("1", "t", "a"))
        with pytest.raises(LogFull, match="No space left"):
            service.submit(Change("snapshot", [], [])).result(60)
        assert learn(service, item("2", "t", "a")).position == 2


def test_a_model_file_is_what_the_folder_starts_from(tmp_path):
    model = tmp_path / "m.tgs"
    tagger = FakeTagger()
    tagger.learn([item("0", "before", "old")])
    tagger.save(model)
    folder = tmp_path / "folder"
    with Service(folder, FakeTagger, model) as service:
        learn(service, item("1", "after", "new"))
        assert service.read().n_items == 2
        assert service.submit(Change("forget", [{"id": "0"}], [None])).result(60).n == 1
        before = state(service)
    assert before["n_changes"] == 3
    with Service(folder, FakeTagger, model) as service:  # the same command again
        assert state(service) == before
    tagger.save(model)
    (tmp_path / "other.tgs").write_bytes(b"other")
    with pytest.raises(OSError, match="must be new to start from"):
        Service(folder, FakeTagger, tmp_path / "other.tgs")


def test_items_of_a_starting_model_are_counted_and_known(tmp_path):
    tagger = FakeTagger()
    tagger.learn([item(f"{i}", f"word{i}", "old") for i in range(3)])
    tagger.save(tmp_path / "m.tgs")
    with Service(tmp_path / "folder", FakeTagger, tmp_path / "m.tgs") as service:
        assert service.read().n_items == 3
        learn(service, item("0", "word0", "put right"))
        assert service.read().n_items == 3
        change(service, "forget", id="1")
        learn(service, item("new", "t", "a"))
        assert service.read().n_items == 3
        bodies = [{"id": name, "item": {"text": "t"}} for name in ("2", "1")]
        done = service.submit(Change("pool", bodies, [None, None])).result(60)
        assert (done.n, done.duplicates) == (1, 1)
        assert [found["id"] for found in service.pool.next(service.read().view, 5)] == ["1"]
    with Service(tmp_path / "folder", FakeTagger) as service:
        assert service.read().n_items == 3


events = st.lists(
    st.one_of(
        st.tuples(
            st.just("learn"), st.sampled_from("12345"), st.sampled_from(["x", "y", "x y"]),
            st.lists(st.sampled_from("abc"), unique=True),
        ),
        st.tuples(st.just("forget"), st.sampled_from("12345")),
        st.tuples(st.just("rename"), st.sampled_from("abc"), st.sampled_from("abcd")),
        st.tuples(st.just("merge"), st.lists(st.sampled_from("abc"), min_size=1), st.just("d")),
        st.tuples(st.just("remove"), st.sampled_from("abcd")),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=events, snapshot_events=st.integers(1, 10), stop=st.integers(0, 25))
def test_a_restart_anywhere_gives_the_state_of_an_undisturbed_run(
    tmp_path_factory, events, snapshot_events, stop
):
    def run(service: Service, part: list[Any]) -> None:
        names = {"learn": ("id", "text", "y"), "forget": ("id",), "rename": ("old", "new"),
                 "merge": ("tags", "into"), "remove": ("tag",)}  # fmt: skip
        for kind, *values in part:
            with contextlib.suppress(Refused):
                change(service, kind, **dict(zip(names[kind], values, strict=True)))

    whole, cut = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("cut")
    with Service(whole, FakeTagger) as service:
        run(service, events)
        expected = state(service)
    with Service(cut, FakeTagger, snapshot_events=snapshot_events) as service:
        run(service, events[:stop])
    with Service(cut, FakeTagger, snapshot_events=snapshot_events) as service:
        run(service, events[stop:])
        assert state(service) == expected
        assert service.read().n_items == len([*service.log.states()]) == len(expected["items"])
        now = {name: found["y"] for name, found in expected["items"].items()}
        newest = {name: service.log.newest(name) for name in now}
        assert {n: sorted(service.tags_now(e)) for n, e in newest.items()} == {
            n: sorted(y) for n, y in now.items()
        }
    assert replayed(cut) == expected


# ---------------------------------------------------------------------- what else is kept
def test_the_measure_is_of_suggestions_before_learning_and_survives_a_restart(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, item("1", "sort a list", "python"))
        learn(service, item("2", "sort a list fast", "python"))
        learn(service, item("2", "sort a list fast", "lists"))  # a correction is no test
        assert service.progress.f1() == pytest.approx(2 / 3)
    with Service(tmp_path, FakeTagger) as service:
        assert service.progress.f1() == pytest.approx(2 / 3)
        assert [p for p, _ in service.progress.curve()] == [1, 2]


def test_the_curve_is_the_measure_of_the_window_before_each_point():
    progress = Progress()
    outcomes = [
        Outcome(i, frozenset("a" if i % 3 else "b"), frozenset("a")) for i in range(1, 1001)
    ]
    progress.add(outcomes)
    for position, value in progress.curve():
        last = outcomes[max(0, position - 200) : position]
        assert value == pytest.approx(sum(o.suggested == o.tags for o in last) / len(last))
    assert len(progress.curve()) <= 120


def test_the_pool_is_kept_and_what_is_learnt_leaves_it(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        bodies = [{"id": n, "item": {"text": t}} for n, t in [("1", "sort"), ("2", "swim")]]
        done = service.submit(Change("pool", bodies, [None, None])).result(60)
        assert (done.n, done.duplicates) == (2, 0)
        learn(service, item("1", "sort", "python"))
        assert service.submit(Change("pool", bodies, [None, None])).result(60).duplicates == 2
    with Service(tmp_path, FakeTagger) as service:
        view = service.read().view
        assert [found["id"] for found in service.pool.next(view, 5)] == ["2"]
        service.submit(Change("unpool", [{"id": "2"}], [None])).result(60)
        assert service.pool.next(view, 5) == []


def test_next_is_the_least_certain_first_without_near_copies():
    tagger = FakeTagger()
    tagger.learn([item("1", "sort list", "a"), item("2", "swim sea", "b")])
    pool = Pool()
    pool.put(
        [
            ("sure", {"text": "sort list"}),
            ("doubt", {"text": "sort swim salt pepper"}),
            ("other", {"text": "sort swim salt pepper again"}),
        ]
    )
    first = [found["id"] for found in pool.next(tagger.view(), 2)]
    assert first == ["doubt", "sure"]
    assert [found["id"] for found in pool.next(tagger.view(), 3)][-1] == "other"


def test_items_that_do_not_fit_are_passed_over():
    pool = Pool()
    pool.put([("text", {"text": "sort list"}), ("numbers", {"x": [1.0]})])
    tagger = FakeTagger()
    assert {found["id"] for found in pool.next(tagger.view(), 5)} == {"text", "numbers"}
    tagger.learn([item("1", "sort list", "a")])
    for _ in range(2):
        assert [found["id"] for found in pool.next(tagger.view(), 5)] == ["text"]
    pool.put([("numbers", {"text": "swim"})])
    assert {found["id"] for found in pool.next(tagger.view(), 5)} == {"text", "numbers"}


def test_a_large_pool_costs_the_same_and_everything_gets_its_turn(monkeypatch):
    from tagstream.serve import pool as module

    monkeypatch.setattr(module, "SCORED_PER_CALL", 10)
    tagger = FakeTagger()
    tagger.learn([item("1", "w7", "a"), item("2", "w8", "b")])
    asked: list[str] = []
    view = tagger.view()

    class Counting:
        tags, counts = view.tags, view.counts

        def suggest(self, records: Any) -> Any:
            asked.extend(record["text"] for record in records)
            assert len(records) <= 10
            return view.suggest(records)

    pool = Pool()
    pool.put((f"{i}", {"text": f"w{i}"}) for i in range(40))
    for _ in range(8):
        pool.next(Counting(), 3)
    assert set(asked) == {f"w{i}" for i in range(40)}


def test_certainty_is_the_expected_f1_of_the_best_set():
    assert certainty([0.9, 0.1]) == pytest.approx(2 * 0.9 / (1 + 1.0))
    assert certainty([0.02, 0.01]) == pytest.approx(0.98 * 0.99)


# ---------------------------------------------------------------------- tokens
def test_tokens_are_kept_hashed_and_seen_by_others_at_once(tmp_path):
    ours, theirs = Tokens(tmp_path / "tokens.json"), Tokens(tmp_path / "tokens.json")
    secret = ours.add("anna", "write")
    assert secret not in (tmp_path / "tokens.json").read_text()
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600
    found = theirs.find(secret)
    assert found is not None
    assert found.may("read")
    assert found.may("write")
    assert not found.may("admin")
    assert theirs.revoke("anna")
    assert ours.find(secret) is None
    assert not ours.revoke("anna")


@pytest.mark.parametrize(
    ("name", "role", "message"),
    [
        ("x", "root", "role must be one of read, write, admin, got 'root'"),
        ("", "read", "name must be 1 to 100 printable"),
        ("anna", "read", "name must be new, got 'anna'"),
    ],
)
def test_bad_tokens_are_refused(tmp_path, name, role, message):
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.add("anna", "read")
    with pytest.raises(ValueError, match=message):
        tokens.add(name, role)


def test_a_damaged_token_file_lets_nobody_in(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.add("anna", "read")
    tokens.path.write_text(json.dumps([{"name": "anna"}]))
    with pytest.raises(OSError, match="must be a list of tokens"):
        tokens.find("x")
