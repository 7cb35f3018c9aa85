"""The memory on Ray against that of one process: equal to the last bit, also after kills.

The leaves of sums are made small here, and segments with them, so that a short stream has many.
What takes longer than a minute is marked slow.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import signal
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import tagstream
from tagstream import KNN, OML, cluster
from tagstream.checks import DataError
from tagstream.cluster import RayStore, ShardLostError
from tagstream.data import make_stream
from tagstream.labels.read import Labels
from tagstream.store import changes
from tagstream.store.local import LocalStore
from tagstream.store.protocol import IDS
from tagstream.store.ray.segments import read_segment, write_segment

N, LEAF, SEGMENT = 330, 16, 64
CUTS = ([N], [3, 170, N], [*range(37, N, 37), N])


def start(ray, tries=5):
    """Start Ray; it gives its processes thirty seconds, which a busy machine may not have."""
    for left in reversed(range(tries)):
        try:
            ray.init(
                num_cpus=2,
                object_store_memory=100_000_000,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
            return
        except Exception as error:  # noqa: PERF203 - a few tries
            ray.shutdown()
            if not left or "timed out during startup" not in str(error):
                raise


@pytest.fixture(scope="module")
def _ray():
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own affairs
        start(ray)
    yield ray
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it leaves ending processes to the garbage collector
        ray.shutdown()
        gc.collect()


@pytest.fixture
def small(_ray, limits):
    """Make leaves small, and end all shards afterwards."""
    limits(leaf=LEAF)
    made = []

    def store(shards=2, timeout=600.0, **options):
        made.append(RayStore(shards, SEGMENT, timeout=timeout, **options))
        return made[-1]

    yield store
    for one in made:
        one.close()


def draw(kind, n=N + 40, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "sparse":
        X = sp.random(n, 90, 0.06, format="csr", random_state=rng, dtype=np.float32)
        Y = (X[:, :60].toarray().reshape(n, 6, 10).sum(axis=2) > 0.6).astype(np.uint8)
        return X, Y
    X = rng.normal(size=(n, 6)).astype(np.float32)
    X[n // 2 : n // 2 + 10] = X[20:30]  # copies, and ties
    Y = (X @ rng.normal(size=(6, 5)) + rng.normal(size=(n, 5)) > 1).astype(np.uint8)
    if kind == "unknown":
        return X, np.where(rng.random(Y.shape) < 0.1, np.nan, Y)
    return X, Y


PARAMS = {
    "dense": {},
    "sparse": {},
    "lift": {"lift": "kernel"},
    "window": {"window": 150},
    "unknown": {"lag": 3},
    "narrow": {"n_components": 2, "step": "convex"},
}


def learn(kind, store=None, cuts=(N,), between=None, model=None, first=0):
    X, Y = draw(kind)
    names = [f"item {i}" if i % 3 else i for i in range(N)]
    model = model or OML(n_neighbors=5, random_state=0, store=store, **PARAMS[kind])
    for stop in cuts:
        model.partial_fit(X[first:stop], Y[first:stop], ids=names[first:stop])
        first = stop
        if between is not None:
            between(model, stop)
    return model


def same(a, b, where="state"):
    """Compare two states to the last bit."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, where
        np.testing.assert_array_equal(a, b, where)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for one, other in zip(a, b, strict=True):
            same(one, other, where)
    else:
        assert a == b, where


def assert_equal_models(one, other, X):
    assert len(other._store.segments) > 1
    a, b = one.to_state(), other.to_state()
    same(a["learner"], b["learner"])
    assert a["names"] == b["names"]
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    for mine, theirs in zip(one.kneighbors(X), other.kneighbors(X), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert one.explain(X[:3]) == other.explain(X[:3])


def kill(model, shard=0):
    """Kill the process of a shard, as a machine would that runs out of memory."""
    import ray

    os.kill(ray.get(model._store.actors[shard].pid.remote()), signal.SIGKILL)


# ---------------------------------------------------------------------- the small form, for CI


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_two_shards_one_of_them_killed_learn_what_one_process_learns(small, kind):
    killed = []

    def between(model, stop):
        if len(model._store.segments) >= 2 and not killed:
            kill(model)
            killed.append(stop)

    X, _ = draw(kind)
    model = learn(kind, small(), [3, 170, N - 5], between)
    assert killed
    for stop in range(N - 4, N + 1):  # what is found for an answer is learnt from next
        model.predict_proba(X[stop - 1 : stop])
        learn(kind, cuts=[stop], model=model, first=stop - 1)
    assert_equal_models(learn(kind), model, X[N:])


@pytest.mark.parametrize("kind", ["sparse", "unknown"])
def test_many_labels_are_reduced_to_the_same_directions_on_shards(small, limits, kind):
    limits(many_labels=3)
    X, _ = draw(kind)
    one, other = learn(kind), learn(kind, small(), [3, 170, N])
    assert one._embedding.reduction is not None
    assert_equal_models(one, other, X[N:])


def test_a_segment_is_a_power_of_two_of_leaves(monkeypatch):
    for size in (4096 * 3, 5000, 64):
        with pytest.raises(ValueError, match="4096 times a power of two"):
            RayStore(segment=size).open(3, sparse=False)


def test_a_cloned_learner_shares_the_cluster_and_not_what_is_stored():
    from sklearn.base import clone

    store = RayStore(3)
    assert copy.deepcopy(store) is store
    assert clone(OML(store=store)).store is store
    assert "shards=3" in repr(store)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_segment_comes_back_from_its_file(tmp_path, sparse):
    X, Y = draw("sparse" if sparse else "dense", 50)
    store = LocalStore(X.shape[1], sparse=sparse, first=128)
    changes.grow_labels(store, Y.shape[1])
    known = np.random.default_rng(1).random(Y.shape) < 0.7
    names = [("a", 1), "ü", 3, *range(47)]
    store.append(X, Labels(Y * known, known), names)
    changes.encode(store, lambda rows: np.asarray(rows[:, :4].todense() if sparse else rows[:, :4]))
    store.remove(7)
    store.relabel(8, Labels(Y[:1], None))
    write_segment(str(tmp_path / "a.npz"), store.dump())
    same(store.dump(), read_segment(str(tmp_path / "a.npz")).dump())


def test_a_damaged_segment_is_refused(tmp_path):
    X, Y = draw("dense", 50)
    store = LocalStore(X.shape[1], sparse=False)
    changes.grow_labels(store, Y.shape[1])
    store.append(X, Labels(Y, None))
    path = tmp_path / "a.npz"
    write_segment(str(path), store.dump())
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match="not a whole segment"):
        read_segment(str(path))
    path.write_bytes(raw[:300])
    with pytest.raises(DataError, match="not a whole segment"):
        read_segment(str(path))


def test_names_that_cannot_be_written_are_refused_and_nothing_changes(small):
    X, Y = draw("dense")
    model = OML(store=small(1)).partial_fit(X[:5], Y[:5])
    with pytest.raises(ValueError, match="numbers, strings or tuples"):
        model.partial_fit(X[5:7], Y[5:7], ids=[frozenset([1]), 2])


# ---------------------------------------------------------------------- the whole of it


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*PARAMS])
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_any_number_of_shards_and_any_cut_give_the_bits_of_one_process(small, kind, shards):
    X, _ = draw(kind)
    whole = learn(kind)
    for cuts in CUTS:
        with small(shards) as store:
            assert_equal_models(whole, learn(kind, store, cuts), X[N:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*PARAMS])
def test_kills_between_all_calls_change_nothing(small, kind):
    X, _ = draw(kind)

    def between(model, stop):
        for shard in range(2):
            kill(model, shard)

    assert_equal_models(learn(kind), learn(kind, small(), CUTS[1], between), X[N:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "sparse", "window", "unknown"])
def test_corrections_reach_the_shards_and_survive_a_kill(small, kind):
    X, Y = draw(kind)
    new = np.nan_to_num(Y[:40]).astype(np.uint8)
    pair = learn(kind), learn(kind, small())
    for model in pair:
        names = [model._store.take(IDS, [i])[0] for i in (0, 3, 70, 100, 149)]
        model.relabel(names[0], new[0]).relabel(names[2], new[1]).relabel(names[4], {"new"})
        model.forget(names[1]).forget(names[3])
        if model is pair[1]:
            kill(model)
        model.relabel(names[0], {0, "new"})
        assert not model.has_item(names[1])
        assert model.item(names[2])[1] == {j for j in range(new.shape[1]) if new[1, j]}
        model.merge_labels([0, 1], into="both")
        model.partial_fit(X[:30], Y[:30, :3], classes=["both", 2, 3])
        model.remove_label(3)
        np.testing.assert_array_equal(model.label_counts_, pair[0].label_counts_)
    assert_equal_models(*pair, X[N:])


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, {"head": True}, {"vote": "map"}, {"window": 150}])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_nearest_neighbours_alone_are_the_same_too(small, kind, params):
    X, Y = draw(kind)
    one = KNN(4, **params).partial_fit(X[:N], Y[:N])
    other = KNN(4, store=small(), **params).partial_fit(X[:200], Y[:200])
    other.partial_fit(X[200:N], Y[200:N])
    assert_equal_models(one, other, X[N:])


@pytest.mark.slow
def test_a_view_stays_as_it_was_while_the_learner_goes_on(small):
    X, Y = draw("dense")
    model = OML(random_state=0, store=small()).partial_fit(X[:200], Y[:200])
    view, before = model.view(), model.predict_proba(X[N:])
    model.relabel(5, Y[0]).forget(6).partial_fit(X[200:N], Y[200:N]).refit()
    kill(model)
    np.testing.assert_array_equal(view.predict_proba(X[N:]), before)
    assert (model.predict_proba(X[N:]) != before).any()
    del view
    model.partial_fit(X[:40], Y[:40])
    model.refit()
    assert not model._store._home.pins


@pytest.mark.slow
def test_labels_that_come_late_widen_what_is_sealed(small):
    stream = make_stream(N, seed=3)
    one, other = OML(random_state=0), OML(random_state=0, store=small(3))
    sets = [{int(j) for j in np.flatnonzero(y) if j < 1 + i // 25} for i, y in enumerate(stream.Y)]
    for model in (one, other):
        for first in range(0, N, 30):
            model.partial_fit(stream.X[first : first + 30], sets[first : first + 30])
    assert_equal_models(one, other, stream.X[:30])


@pytest.mark.slow
def test_a_model_goes_into_a_folder_and_a_file_and_comes_out_again(small, tmp_path):
    X, Y = draw("dense")
    model = learn("dense", small(), [200])
    model.relabel("item 5", Y[0]).forget("item 7")
    cluster.save(model, tmp_path / "model", extra={"note": 1})
    files = {path.name for path in (tmp_path / "model").iterdir()}
    opened, extra = cluster.load(tmp_path / "model", small(3))
    assert extra == {"note": 1}
    same(opened.to_state()["learner"], model.to_state()["learner"])
    for one in (model, opened):
        one.partial_fit(X[200:N], Y[200:N])
    assert_equal_models(model, opened, X[N:])
    # Saved again, only what changed is written; what nobody needs is gone.
    cluster.save(opened, tmp_path / "model")
    assert len(list((tmp_path / "model").glob("*.npz"))) == len(opened._store.segments)
    assert files & {path.name for path in (tmp_path / "model").iterdir()} >= {"state.tgs"}
    # Into one file, and out of one file into shards.
    tagstream.save_model(opened, tmp_path / "model.tgs")
    single = tagstream.load_model(tmp_path / "model.tgs")
    assert isinstance(single._store, LocalStore)
    state = single.to_state()
    state["params"]["store"] = small(2)
    assert_equal_models(single, OML.from_state(state), X[N:])
    with pytest.raises(ValueError, match="in a RayStore"):
        cluster.save(single, tmp_path / "other")
    with contextlib.suppress(FileNotFoundError):
        next((tmp_path / "model").glob("*.npz")).unlink()
    with pytest.raises(OSError, match="npz"):
        cluster.load(tmp_path / "model", small())


@pytest.mark.slow
def test_a_shard_without_a_node_is_an_error_that_says_what_to_do(small):
    X, Y = draw("dense")
    model = OML(store=small(5, cpus=1.0, timeout=3.0), random_state=0)
    with pytest.raises(ShardLostError, match=r"shard \d must answer within 3 s.*start a node"):
        model.partial_fit(X, Y)
