"""A replica answers as the writer did at the position that it has reached, and changes nothing."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from fake_tagger import FakeTagger
from tagstream.knows.next_items import is_random
from tagstream.serve.follow import Follower
from tagstream.serve.log import Event
from tagstream.serve.writer import Change, Refused, Service


def learn(service, first, stop):
    items = [{"id": str(i), "text": f"text {i}", "y": [f"tag {i % 3}"]} for i in range(first, stop)]
    return service.submit(Change("learn", items, [None] * len(items))).result(timeout=60)


def reaches(follower, position):
    """Wait until a replica has read so far; it looks for itself, at its own pace."""
    reached = threading.Event()
    publish = follower._publish

    def noted():
        publish()
        if follower.read().position >= position:
            reached.set()

    follower._publish = noted
    if follower.read().position >= position:
        reached.set()
    assert reached.wait(60)


def test_a_replica_follows_and_has_the_writers_state_at_its_position(tmp_path):
    with Service(tmp_path, FakeTagger, snapshot_events=5) as service:
        learn(service, 0, 12)
        with Follower(tmp_path, FakeTagger, every=0.01) as replica:
            assert replica.read().position == service.read().position
            assert replica._tagger.state() == service._tagger.state()
            learn(service, 12, 20)
            body = {"old": "tag 0", "new": "zero"}
            service.submit(Change("rename", [body], [None])).result(timeout=60)
            reaches(replica, service.read().position)
            assert replica._tagger.state() == service._tagger.state()
            assert replica.n_behind == 0
            assert replica.read().view.tags == service.read().view.tags


def test_a_replica_takes_no_change_and_writes_nothing(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, 0, 3)
        before = sorted(path.name for path in tmp_path.rglob("*"))
        replica, refused = Follower(tmp_path, FakeTagger), pytest.raises(Refused, match="writer")
        with replica, refused:
            learn(replica, 3, 4)
        assert sorted(path.name for path in tmp_path.rglob("*")) == before
        assert learn(service, 3, 4).n == 1


def test_a_replica_tells_how_far_it_is_behind(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, 0, 3)
        with Follower(tmp_path, FakeTagger, every=3600) as replica:
            learn(service, 3, 7)
            assert replica.n_behind == 4
            assert replica.read().position == 3
            assert replica.read().view.n_items == 3
        assert service.n_behind == 0


def test_a_replica_can_begin_at_a_snapshot_that_is_not_the_newest(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        for first in (0, 4):
            learn(service, first, first + 4)
            service.submit(Change("snapshot", [{}], [None])).result(timeout=60)
        old = min((tmp_path / "snapshots").glob("*.tgs"))
        with Follower(old, FakeTagger) as replica:
            assert replica.replayed == 4
            assert replica._tagger.state() == service._tagger.state()


def test_what_the_tagger_refuses_is_passed_over_by_both(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, 0, 3)
        with service.log.transaction():  # as a writer leaves it that is killed before it learns
            service.log.append(Event("learn", "k", {"id": "9", "text": "p0ison", "y": ["x"]}))
        with Follower(tmp_path, FakeTagger, every=0.01) as replica:
            assert replica.read().position == 3  # it waits for what the writer makes of it
            assert replica._tagger.state() == service._tagger.state()
            service._unmarked[4] = ValueError("text must not be p0ison")
            assert learn(service, 3, 4).position == 6
            reaches(replica, 6)
            assert replica._tagger.state() == service._tagger.state()


def test_a_replica_begins_where_a_snapshot_knows_more_than_the_log(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, 0, 30)
    with sqlite3.connect(tmp_path / "events.db") as database:
        database.execute("DELETE FROM events WHERE position > 20")
    database.close()
    with Service(tmp_path, FakeTagger, accept_loss=True) as service:
        assert service.log.position == 30
        with Follower(tmp_path, FakeTagger, every=0.01) as replica:
            assert replica.read().position == 30
            assert learn(service, 30, 31).position == 31
            reaches(replica, 31)
            assert replica._tagger.state() == service._tagger.state()


def test_a_replica_begins_again_when_the_log_lost_events(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, 0, 12)
        with Follower(tmp_path, FakeTagger, every=0.01) as replica:
            assert replica.read().position == 12
            begun, begin = threading.Event(), replica._begin
            replica._begin = lambda: (begin(), begun.set())
            service.log._connection.execute("DELETE FROM events WHERE position > 10")
            assert begun.wait(60)
            assert replica.read().position == 10
            assert replica.read().n_items == 10
            kept = [outcome.position for outcome in replica.progress.last()]
            assert kept == [i + 1 for i in range(10) if is_random(str(i))]


def test_a_replica_is_not_behind_by_what_was_passed_over(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, 0, 3)
        service.submit(Change("forget", [{"id": "nobody"}], ["k"])).result(timeout=60)
        with Follower(tmp_path, FakeTagger, every=0.01) as replica:
            assert (replica.read().position, replica.n_behind) == (4, 0)
            service.submit(Change("forget", [{"id": "nobody"}], ["l"])).result(timeout=60)
            reaches(replica, 5)


def test_a_replica_counts_each_event_after_its_snapshot_once(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, 0, 3)
        service.submit(Change("snapshot", [{}], [None])).result(timeout=60)
        learn(service, 3, 6)
        for old, new in (("tag 0", "zero"), ("tag 1", "tag 0")):
            body = {"old": old, "new": new}
            service.submit(Change("rename", [body], [None])).result(timeout=60)
        with Follower(tmp_path, FakeTagger) as replica:
            assert replica.replayed == 5
            assert replica.progress.last() == service.progress.last()
            newest = replica.log.newest("1")
            assert replica.tags_now(newest) == service.tags_now(newest) == ["tag 0"]


def test_only_the_folder_of_a_service_can_be_followed(tmp_path):
    with pytest.raises(OSError, match=r"no events\.db"):
        Follower(tmp_path, FakeTagger)


def test_a_real_tagger_scores_the_same_on_both_sides(tmp_path):
    with Service(tmp_path) as service:
        learn(service, 0, 40)
        with Follower(tmp_path, every=0.01) as replica:
            learn(service, 40, 60)
            reaches(replica, 60)
            asked = [{"text": f"text {i}"} for i in range(70)]
            mine, theirs = (s.read().view.suggest(asked) for s in (service, replica))
            scores = [[*one.scores.items()] for one in mine]  # their order counts, too
            assert scores == [[*one.scores.items()] for one in theirs]
            assert any(scores)
