"""Saved models: a file is the model, whole or refused."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import math
import os
import random
import stat
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fuzz_models import put_together, take_apart
from tagstream import Tagger, __version__
from tagstream.base import StreamClassifier
from tagstream.checks import DataError, check_number
from tagstream.data import make_stream
from tagstream.files import persist
from tagstream.models import KNN, OLANSGD, OML, OSMLELM
from tagstream.paper.methods.published import PublishedOML
from tagstream.persist import inspect, load, load_with_extra, remove_leftovers, save
from tagstream.text import Text


class Means(StreamClassifier):
    """Scores a label by the cosine between the item and the mean of the label's items."""

    def __init__(self, power=1.0, random_state=None):
        self.power = power
        self.random_state = random_state

    def _check_params(self):
        check_number("power", self.power, least=0)

    def _start(self):
        self.sums_ = np.zeros((0, self.n_features_in_))
        self.ids_ = []

    def _grow(self, q):
        self.sums_ = np.vstack([self.sums_, np.zeros((q - len(self.sums_), self.n_features_in_))])

    def _learn(self, X, labels, ids):
        dense = X.toarray() if sp.issparse(X) else X
        for row, y in zip(dense, labels.Y, strict=True):
            self.sums_ += np.outer(y, row)
        first = self.n_seen_
        self.ids_ += list(ids) if ids is not None else list(range(first, first + len(dense)))

    def _proba(self, X):
        scores = np.asarray(X @ self.sums_.T)
        return 1 / (1 + np.exp(-np.clip(scores * self.power, -30, 30)))

    def _dump(self):
        return {"sums": self.sums_, "ids": self.ids_, "nested": {"none": None, "pair": (1, "a")}}

    def _load(self, state):
        shape = (len(self.classes_), self.n_features_in_)
        if state["sums"].shape != shape or state["sums"].dtype != np.float64:
            raise ValueError(f"sums must have shape {shape}, got {state['sums'].shape}")
        if len(state["ids"]) != self.n_seen_:
            raise ValueError("ids must have as many entries as n_seen")
        assert state["nested"] == {"none": None, "pair": (1, "a")}
        self.sums_, self.ids_ = state["sums"], state["ids"]


MEANS = {"Means": Means}


def fitted(n=30, seed=0, **kwargs):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    Y = [{"a"} if x[0] > 0 else {"b", "c"} for x in X]
    return Means(**kwargs).partial_fit(X, Y)


def in_memory(model, tmp_path, **kwargs):
    """Return the bytes that ``save`` writes."""
    save(model, tmp_path / "m.tgs", classes=MEANS, **kwargs)
    return (tmp_path / "m.tgs").read_bytes()


def parts(data):
    """Return prefix fields, header and body of a model file."""
    magic, version, length, _ = struct.unpack("<8sII32s", data[:48])
    return magic, version, json.loads(data[48 : 48 + length]), data[48 + length :]


def forged(header, body=b"", version=3, magic=b"tagstrm\n", text=None):
    """Return a file whose checksums are right, whatever its content."""
    if text is None:
        text = json.dumps(header).encode()
    return struct.pack("<8sII32s", magic, version, len(text), hashlib.sha256(text).digest()) + (
        text + body
    )


# ------------------------------------------------------------------ round trip
def test_a_loaded_model_predicts_and_learns_exactly_as_the_saved_one(tmp_path):
    model = fitted()
    save(model, tmp_path / "m.tgs", classes=MEANS)
    again = load(tmp_path / "m.tgs", classes=MEANS)
    X = np.random.default_rng(1).normal(size=(20, 4))
    assert type(again) is Means
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    for m in (model, again):
        m.partial_fit(X, [{"new", "a"}] * 20)
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert again.classes_.tolist() == model.classes_.tolist() == ["a", "b", "c", "new"]
    assert again.n_seen_ == 50


def test_saving_a_loaded_model_gives_the_same_bytes(tmp_path):
    first = in_memory(fitted(100), tmp_path)
    again = load(tmp_path / "m.tgs", classes=MEANS)
    assert in_memory(again, tmp_path) == first


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(st.characters(), max_size=6),
)
arrays = st.sampled_from(
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12, dtype=np.int16).reshape(3, 4)[:, ::2],
        np.arange(3, dtype=">i4"),
        np.array([True, False]),
        np.empty((0, 5), np.uint8),
        np.array(3.5),
    ]
)
keys = st.text(st.characters(blacklist_characters="$"), max_size=5)
trees = st.recursive(
    scalars | arrays,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype.newbyteorder(a.dtype.byteorder)
            and a.shape == b.shape
            and bool((a == b).all())
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@given(trees, st.lists(scalars, min_size=64, max_size=80))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_tree_of_plain_values_comes_back_with_its_types(tmp_path, tree, long_list):
    extra = {"tree": tree, "long": long_list}
    save(fitted(3), tmp_path / "m.tgs", extra=extra, classes=MEANS)
    assert same(extra, load_with_extra(tmp_path / "m.tgs", classes=MEANS)[1])


def test_the_memory_order_of_an_array_is_kept(tmp_path):
    extra = {"F": np.asfortranarray(np.eye(3, 4)), "C": np.eye(3, 4)}
    save(fitted(), tmp_path / "m.tgs", extra=extra, classes=MEANS)
    again = load_with_extra(tmp_path / "m.tgs", classes=MEANS)[1]
    assert again["F"].flags.f_contiguous
    assert again["C"].flags.c_contiguous
    assert again["F"].flags.writeable


@pytest.mark.parametrize(
    "names",
    [["a", "ü", "名"], [3, 1, 2], [0.5, 1.5], [True, False], ["a", 1, 2.5], list(range(500))],
)
def test_label_names_of_any_plain_type_come_back(tmp_path, names):
    Y = np.eye(len(names), dtype=int)
    model = Means().partial_fit(np.ones((len(names), 2)), Y, classes=names)
    save(model, tmp_path / "m.tgs", classes=MEANS)
    again = load(tmp_path / "m.tgs", classes=MEANS)
    assert again.classes_.tolist() == names
    assert [type(n) for n in again.classes_.tolist()] == [type(n) for n in names]
    assert again.classes_.dtype == model.classes_.dtype
    assert again.predict(np.ones((1, 2))).dtype == model.predict(np.ones((1, 2))).dtype


def test_ids_of_mixed_types_come_back(tmp_path):
    ids = [f"post-{i}" if i % 3 else i for i in range(99)] + [2**100]
    model = Means().partial_fit(np.ones((100, 2)), [{"a"}] * 100, ids=ids)
    save(model, tmp_path / "m.tgs", classes=MEANS)
    assert load(tmp_path / "m.tgs", classes=MEANS).ids_ == ids


@pytest.mark.parametrize(
    ("extra", "what"),
    [
        ({"f": object()}, "extra.f must be made of .* got object"),
        ({"o": np.array([None])}, "extra.o must be an array of numbers, got dtype object"),
        ({1: 2}, "keys of extra must be strings"),
        ({"a": {"$array": 0}}, "keys of extra.a must be strings without"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_and_nothing_is_written(tmp_path, extra, what):
    with pytest.raises(ValueError, match=what):
        save(fitted(), tmp_path / "m.tgs", extra=extra, classes=MEANS)
    assert list(tmp_path.iterdir()) == []


def test_a_class_that_load_would_not_know_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match=r"must be one of OML, KNN, .* got Means"):
        save(fitted(), tmp_path / "m.tgs")


def test_inspect_tells_the_header_without_reading_the_arrays(tmp_path):
    extra = {"position": 7, "hashing": {"n_features": 2**18}, "array": np.ones(3)}
    data = in_memory(fitted(100, power=2.0), tmp_path, extra=extra)
    (tmp_path / "m.tgs").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # the body is damaged
    info = inspect(tmp_path / "m.tgs")
    assert (info.learner, info.n_seen, info.n_features, info.n_labels) == ("Means", 100, 4, 3)
    assert info.params == {"power": 2.0, "random_state": None}
    assert info.extra == {"position": 7, "hashing": {"n_features": 2**18}, "array": "(not shown)"}
    assert ("<f8", (3, 4)) in info.arrays
    assert info.n_bytes == len(data)
    assert info.format == 3


# ------------------------------------------------------------------ the real learners
LEARNERS = {
    "oml": lambda: OML(random_state=0),
    "oml-vote": lambda: OML(head=False, random_state=0),
    "oml-kernel": lambda: OML(lift="kernel", random_state=0),
    "oml-fourier": lambda: OML(lift="fourier", window=40, random_state=0),
    "oml-window": lambda: OML(window=50, n_components=3, lift=None, random_state=0),
    "oml-lag": lambda: OML(lag=7, window=50, lift=None, random_state=0),
    "oml-convex": lambda: OML(step="convex", head=False, random_state=0),
    "oml-published": lambda: PublishedOML(first_block=40, random_state=0),
    "knn": KNN,
    "knn-head": lambda: KNN(head=True),
    "knn-lag": lambda: KNN(head=True, lag=3, window=50),
    "knn-map": lambda: KNN(vote="map", n_neighbors=4, window=50),
    "osml-elm": lambda: OSMLELM(n_hidden=15, random_state=0),
    "osml-elm-qr": lambda: OSMLELM(n_hidden=15, solver="qr", ridge=0.1, random_state=0),
    "osml-elm-early": lambda: OSMLELM(n_hidden=80, random_state=0),
    "olansgd": OLANSGD,
    "olansgd-core": lambda: OLANSGD(first_block=30),
}


def stream(sparse, n=120):
    data = make_stream(n, p=8, q=6, n_factors=3, sparse=sparse, seed=1)
    Y = data.Y.astype(float)
    Y[5, 2] = Y[50, 1] = np.nan
    return data.X, Y


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_goes_on_exactly_as_before(tmp_path, name, sparse):
    X, Y = stream(sparse)
    model = LEARNERS[name]()
    model.partial_fit(X[:80], Y[:80], classes=list("abcdef"), ids=[f"i{i}" for i in range(80)])
    save(model, tmp_path / "m.tgs")
    again = load(tmp_path / "m.tgs")
    assert again.get_params() == model.get_params()
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    for m in (model, again):
        m.partial_fit(X[80:], Y[80:], classes=list("abcdef"))
        m.partial_fit(X[:3], [{"new"}, {"a", "new"}, set()])
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    save(model, tmp_path / "a.tgs")
    save(again, tmp_path / "b.tgs")
    assert (tmp_path / "a.tgs").read_bytes() == (tmp_path / "b.tgs").read_bytes()


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("oml", {"n_components": 10**7}),
        ("oml-window", {"n_components": 10**12}),
        ("oml-published", {"n_components": 4096}),
        ("oml", {"n_neighbors": 10**6}),
        ("knn-head", {"n_neighbors": 10**6}),
        ("knn", {"n_neighbors": 10**6, "window": 10**15}),
        ("knn-map", {"n_neighbors": 10**6}),
        ("knn", {"vote": "map", "n_neighbors": 10**12}),
        ("osml-elm-early", {"n_hidden": 4096}),
        ("olansgd", {"first_block": 10**12}),
    ],
)
def test_parameters_cannot_ask_for_more_memory_than_the_file_holds(tmp_path, name, params):
    X, Y = stream(False)
    save(LEARNERS[name]().partial_fit(X, Y), tmp_path / "m.tgs")
    _, _, header, body = parts((tmp_path / "m.tgs").read_bytes())
    header["state"]["params"].update(params)
    (tmp_path / "m.tgs").write_bytes(forged(header, body))
    with peak_below(60_000_000), contextlib.suppress(DataError):
        model = load(tmp_path / "m.tgs")
        model.predict_proba(np.repeat(X, 10, axis=0))
        model.partial_fit(X[:3], [{"new"}, set(), {"new"}])


NASTY = [None, True, 0, 1, -1, 7, 10**6, 2**31, 10**30, -0.5, math.inf, math.nan, "", "map"]
NASTY += ["normal", [], {}, [1], {"$array": 0}, {"$array": 3}, {"$tuple": [1, 2]}]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", LEARNERS)
def test_no_learner_lets_a_hostile_state_through_as_another_error(tmp_path, name, sparse):
    X, Y = stream(sparse)
    save(LEARNERS[name]().partial_fit(X, Y), tmp_path / "m.tgs")
    good, path = (tmp_path / "m.tgs").read_bytes(), tmp_path / "h.tgs"
    rng = random.Random(f"{name}{sparse}")
    for _ in range(20):
        _, _, header, body = parts(good)
        places = [(header["state"], key) for key in header["state"]]
        for holder, key in places:
            inner = holder[key]
            if isinstance(inner, dict):
                places += [(inner, k) for k in inner]
            elif isinstance(inner, list):
                places += [(inner, i) for i in range(len(inner))]
        holder, key = rng.choice(places)
        holder[key] = rng.choice(NASTY)
        path.write_bytes(forged(header, body))
        with contextlib.suppress(DataError):
            load(path)


# ------------------------------------------------------------------ format 1 for ever
FORMAT_1_LEARNERS = [path.stem for path in (Path(__file__).parent / "format1").glob("*.tgs")]
FORMAT_1 = """
dGFnc3RybQoBAAAAaAMAABs7GgT048UtuxzMB58n6+IWVnwd+psAV9YGH1cACBTKeyJjbGFzcyI6Ik1lYW5zIiwidGFnc3Ry
ZWFtIjoiMC4xLjAiLCJzdGF0ZSI6eyJwYXJhbXMiOnsicG93ZXIiOjEuMCwicmFuZG9tX3N0YXRlIjpudWxsfSwibl9mZWF0
dXJlcyI6MiwiZmVhdHVyZV9uYW1lcyI6W10sIm5hbWVzIjpbImEiLCJiIiwiYyJdLCJuX3NlZW4iOjcwLCJzcGFyc2UiOmZh
bHNlLCJzaW5nbGUiOmZhbHNlLCJkdHlwZSI6Inx1MSIsImxlYXJuZXIiOnsic3VtcyI6eyIkYXJyYXkiOjB9LCJpZHMiOnsi
JGxpc3QiOnsibiI6NzAsImtpbmQiOnsiJGFycmF5IjoxfSwiaW50Ijp7IiRhcnJheSI6Mn0sImZsb2F0Ijp7IiRhcnJheSI6
M30sIndpZHRoIjp7IiRhcnJheSI6NH0sInRleHQiOnsiJGFycmF5Ijo1fX19LCJuZXN0ZWQiOnsibm9uZSI6bnVsbCwicGFp
ciI6eyIkdHVwbGUiOlsxLCJhIl19fX19LCJleHRyYSI6eyJub3RlIjoid3JpdHRlbiBieSBmb3JtYXQgMSIsIm1peGVkIjp7
IiRsaXN0Ijp7Im4iOjY1LCJraW5kIjp7IiRhcnJheSI6Nn0sImludCI6eyIkYXJyYXkiOjd9LCJmbG9hdCI6eyIkYXJyYXki
Ojh9LCJ3aWR0aCI6eyIkYXJyYXkiOjl9LCJ0ZXh0Ijp7IiRhcnJheSI6MTB9fX19LCJhcnJheXMiOltbIjxmOCIsIkMiLFsz
LDJdXSxbInx1MSIsIkMiLFs3MF1dLFsiPGk4IiwiQyIsWzcwXV0sWyI8ZjgiLCJDIixbMF1dLFsiPGk4IiwiQyIsWzBdXSxb
Inx1MSIsIkMiLFswXV0sWyJ8dTEiLCJDIixbNjVdXSxbIjxpOCIsIkMiLFsxM11dLFsiPGY4IiwiQyIsWzEzXV0sWyI8aTgi
LCJDIixbMTNdXSxbInx1MSIsIkMiLFsyNl1dXSwiYm9keV9ieXRlcyI6MTA4MSwiYm9keV9zaGEyNTYiOiJkZmM2MjMzMTM2
NzIwYWVhMDQ4YjdmNTQzOTllZDdhOTc5NTkxNjAxYzUzYzI1YzcwNzkxYmI2MmRjYTVhOTZiIn0AAAAAAADwPwAAAAAAAAAA
AAAAAAAAAAAAAAAAAADwPwAAAAAAAAAAAAAAAAAA8D8DAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMD
AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAAAAAAAAAAABAAAAAAAAAAIAAAAAAAAAAwAAAAAAAAAEAAAAAAAAAAUA
AAAAAAAABgAAAAAAAAAHAAAAAAAAAAgAAAAAAAAACQAAAAAAAAAKAAAAAAAAAAsAAAAAAAAADAAAAAAAAAANAAAAAAAAAA4A
AAAAAAAADwAAAAAAAAAQAAAAAAAAABEAAAAAAAAAEgAAAAAAAAATAAAAAAAAABQAAAAAAAAAFQAAAAAAAAAWAAAAAAAAABcA
AAAAAAAAGAAAAAAAAAAZAAAAAAAAABoAAAAAAAAAGwAAAAAAAAAcAAAAAAAAAB0AAAAAAAAAHgAAAAAAAAAfAAAAAAAAACAA
AAAAAAAAIQAAAAAAAAAiAAAAAAAAACMAAAAAAAAAJAAAAAAAAAAlAAAAAAAAACYAAAAAAAAAJwAAAAAAAAAoAAAAAAAAACkA
AAAAAAAAKgAAAAAAAAArAAAAAAAAACwAAAAAAAAALQAAAAAAAAAuAAAAAAAAAC8AAAAAAAAAMAAAAAAAAAAxAAAAAAAAADIA
AAAAAAAAMwAAAAAAAAA0AAAAAAAAADUAAAAAAAAANgAAAAAAAAA3AAAAAAAAADgAAAAAAAAAOQAAAAAAAAA6AAAAAAAAADsA
AAAAAAAAPAAAAAAAAAA9AAAAAAAAAD4AAAAAAAAAPwAAAAAAAABAAAAAAAAAAEEAAAAAAAAAQgAAAAAAAABDAAAAAAAAAEQA
AAAAAAAARQAAAAAAAAAAAgMEBQACAwQFAAIDBAUAAgMEBQACAwQFAAIDBAUAAgMEBQACAwQFAAIDBAUAAgMEBQACAwQFAAID
BAUAAgMEBQcAAAAAAAAABwAAAAAAAAAHAAAAAAAAAAcAAAAAAAAABwAAAAAAAAAHAAAAAAAAAAcAAAAAAAAABwAAAAAAAAAH
AAAAAAAAAAcAAAAAAAAABwAAAAAAAAAHAAAAAAAAAAcAAAAAAAAAAAAAAAAABEAAAAAAAAAEQAAAAAAAAARAAAAAAAAABEAA
AAAAAAAEQAAAAAAAAARAAAAAAAAABEAAAAAAAAAEQAAAAAAAAARAAAAAAAAABEAAAAAAAAAEQAAAAAAAAARAAAAAAAAABEAC
AAAAAAAAAAIAAAAAAAAAAgAAAAAAAAACAAAAAAAAAAIAAAAAAAAAAgAAAAAAAAACAAAAAAAAAAIAAAAAAAAAAgAAAAAAAAAC
AAAAAAAAAAIAAAAAAAAAAgAAAAAAAAACAAAAAAAAAMO8w7zDvMO8w7zDvMO8w7zDvMO8w7zDvMO8
"""


def test_a_file_of_format_1_stays_readable(tmp_path):
    (tmp_path / "old.tgs").write_bytes(base64.b64decode(FORMAT_1))
    model, extra = load_with_extra(tmp_path / "old.tgs", classes=MEANS)
    assert extra == {"note": "written by format 1", "mixed": [None, True, 7, 2.5, "ü"] * 13}
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.ids_ == list(range(70))
    want = [[0.88079708, 0.5, 0.5], [0.5, 0.73105858, 0.73105858]]
    np.testing.assert_allclose(model.predict_proba([[2.0, 0.0], [0.0, 1.0]]), want, atol=1e-8)


HERE = Path(__file__).parent
TYPES = {"oml": OML, "knn": KNN, "osml": OSMLELM, "olansgd": OLANSGD}


@pytest.mark.parametrize("name", sorted(FORMAT_1_LEARNERS))
def test_every_learner_saved_in_format_1_stays_readable(name):
    model, extra = load_with_extra(HERE / "format1" / f"{name}.tgs")
    assert extra == {"learner": name}
    assert type(model) is (PublishedOML if name == "oml-published" else TYPES[name.split("-")[0]])
    assert model.classes_.tolist() == list("abcdef")
    assert model.n_seen_ == 60
    known = json.loads((HERE / "format1" / f"{name}.json").read_text())
    np.testing.assert_allclose(model.predict_proba(known["X"]), known["scores"], atol=1e-4)
    model.partial_fit(known["X"], [{"a"}] * 8)
    assert model.n_seen_ == 68


# ------------------------------------------------------------------ format 2 for ever
def corrected():
    """Return a learner of sparse rows with corrections, gaps, and entries that are not known."""
    X, Y = stream(True, 60)
    model = OML(random_state=0).partial_fit(X, Y, ids=[f"i{i}" for i in range(60)])
    model.relabel("i3", {0, 5}).relabel("i40", {2}).forget("i20").forget("i59")
    return model


def tagger():
    """Return a tagger with texts."""
    made = Tagger(OML(random_state=0), Text("light", n_features=512))
    made.extra = {"learner": "tagger"}
    made.learn({"id": f"t{i}", "text": text, "y": tags} for i, (text, tags) in enumerate(TEXTS))
    made.relabel("t1", ["travel", "sea"])
    return made


TEXTS = [
    (f"{word} {other}", [word[:2], other[:2]])
    for word in ("sorting lists", "swimming in May", "ünder the sea", "slow queries", "名前")
    for other in ("at home", "in python", "with friends", "today", "again", "in the city")
]


def write_format_2():
    """Write the fixtures that are missing; one that is there is never written again."""
    folder = HERE / "format2"
    folder.mkdir(exist_ok=True)
    X, Y = stream(False, 60)
    models = {
        name: make().partial_fit(X[:, :4], Y, classes=list("abcdef"))
        for name, make in LEARNERS.items()
    }
    Z, labels = stream(True, 60)
    for name in ("oml", "oml-window", "knn-head", "osml-elm", "olansgd", "oml-published"):
        models[f"{name}-sparse"] = LEARNERS[name]().partial_fit(Z, labels, classes=list("abcdef"))
    models["oml-corrected"] = corrected()
    models["knn-single"] = KNN().fit(X[:, :4], Y[:, 0] == 1)
    for name, model in models.items():
        if (folder / f"{name}.tgs").exists():
            continue
        save(model, folder / f"{name}.tgs", extra={"learner": name})
        rows = Z[:8].toarray() if model._sparse else X[:8, :4]
        known = {"X": rows.tolist(), "scores": model.predict_proba(rows).round(6).tolist()}
        (folder / f"{name}.json").write_text(json.dumps(known) + "\n")
    if (folder / "tagger.tgs").exists():
        return
    made = tagger()
    made.save(folder / "tagger.tgs")
    texts = [text for text, _ in TEXTS[:8]]
    scores = [told.scores for told in made.suggest([{"text": text} for text in texts])]
    (folder / "tagger.json").write_text(json.dumps({"texts": texts, "scores": scores}) + "\n")


FORMAT_2_LEARNERS = sorted(p.stem for p in (HERE / "format2").glob("*.tgs"))


def test_there_is_a_file_of_format_2_of_every_learner():
    assert {*LEARNERS, "oml-sparse", "oml-corrected", "tagger"} <= set(FORMAT_2_LEARNERS)


@pytest.mark.parametrize("name", [n for n in FORMAT_2_LEARNERS if n != "tagger"])
def test_every_learner_saved_in_format_2_stays_readable(name):
    model, extra = load_with_extra(HERE / "format2" / f"{name}.tgs")
    assert extra == {"learner": name}
    assert model.n_seen_ == 60
    known = json.loads((HERE / "format2" / f"{name}.json").read_text())
    np.testing.assert_allclose(model.predict_proba(known["X"]), known["scores"], atol=1e-4)
    labels = np.ones(8, bool) if name == "knn-single" else [{"a"}] * 8
    model.partial_fit(known["X"], labels)
    assert model.n_seen_ == 68


def test_a_model_of_format_2_answers_any_item_as_the_next_one_until_its_next_fit():
    model = load(HERE / "format2" / "oml.tgs")
    known = json.loads((HERE / "format2" / "oml.json").read_text())
    assert not model.answers_any_
    of_next = model.predict_proba(known["X"], next=True)
    np.testing.assert_array_equal(model.predict_proba(known["X"]), of_next)
    model.refit()
    assert model.answers_any_
    assert (model.predict_proba(known["X"]) != model.predict_proba(known["X"], next=True)).any()


def test_a_tagger_saved_in_format_2_stays_readable():
    made = Tagger.open(HERE / "format2" / "tagger.tgs")
    assert made.extra == {"learner": "tagger"}
    known = json.loads((HERE / "format2" / "tagger.json").read_text())
    for text, scores in zip(known["texts"], known["scores"], strict=True):
        told = made.suggest({"text": text}).scores
        for tag, score in scores.items():
            assert told[tag] == pytest.approx(score, abs=1e-4)
    why = made.explain({"text": TEXTS[1][0]})
    assert why.copy_of.text == TEXTS[1][0]


def test_a_file_of_another_version_that_fails_says_who_wrote_it(tmp_path, good):
    def change(header):
        header["tagstream"] = "9.9"
        header["state"]["params"]["later"] = 1

    message = hostile(good, tmp_path, change)
    assert message.endswith(f"; tagstream 9.9 wrote it, this is {__version__}")


# ------------------------------------------------------------------ damage
@contextlib.contextmanager
def peak_below(n_bytes):
    """Check that what is done takes less memory."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n_bytes


def refused(path: Path) -> str:
    """Check that the file is refused in one line, by load and without much memory."""
    with peak_below(1_000_000 + 40 * path.stat().st_size), pytest.raises(DataError) as caught:
        load(path, classes=MEANS)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < 500 + len(str(path))
    return message


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    return in_memory(fitted(100), folder, extra={"position": 3})


def test_every_truncation_is_refused(tmp_path, good):
    path = tmp_path / "m.tgs"
    for n in [*range(60), *range(60, len(good), 37), len(good) - 1]:
        path.write_bytes(good[:n])
        refused(path)


def test_a_tail_is_refused(tmp_path, good):
    path = tmp_path / "m.tgs"
    path.write_bytes(good + b"\0")
    assert "has a tail" in refused(path)


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_flipped_bit_is_found(tmp_path, good, data):
    bit = data.draw(st.integers(0, 8 * len(good) - 1))
    broken = bytearray(good)
    broken[bit // 8] ^= 1 << bit % 8
    path = tmp_path / "m.tgs"
    path.write_bytes(broken)
    refused(path)


@given(st.binary(max_size=400), st.booleans())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@example(b"", False)
@example(b"", True)
def test_random_bytes_are_refused(tmp_path, noise, start_well):
    path = tmp_path / "m.tgs"
    path.write_bytes((b"tagstrm\n\2\0\0\0" if start_well else b"") + noise)
    refused(path)


# ------------------------------------------------------------------ hostile files, sums correct
def hostile(good, tmp_path, change):
    """Return the message for the good file changed by ``change(header)``, checksums renewed."""
    _, _, header, body = parts(good)
    header = change(header) or header
    path = tmp_path / "m.tgs"
    path.write_bytes(forged(header, body))
    return refused(path)


def test_a_newer_format_is_named(tmp_path, good):
    _, _, header, body = parts(good)
    (tmp_path / "m.tgs").write_bytes(forged(header, body, version=4))
    assert "the file format must be 1 to 3, got 4; a newer tagstream" in refused(tmp_path / "m.tgs")


@pytest.mark.parametrize("shape", [[10**12], [2**40, 2**40], [2**47] * 8, [-1, -8], [1.5], ["9"]])
def test_a_huge_or_odd_declared_shape_allocates_nothing(tmp_path, good, shape):
    def change(header):
        header["arrays"][0][2] = shape
        header["body_bytes"] = 8 * int(np.prod([float(n) for n in shape], dtype=float) % 2**62)

    hostile(good, tmp_path, change)


def test_an_array_of_no_rows_cannot_smuggle_in_a_huge_dimension(tmp_path, good):
    def change(header, width):
        header["arrays"].append(["<f8", "C", [0, width]])
        header["state"]["learner"]["sums"] = {"$array": len(header["arrays"]) - 1}

    assert "that fit the file" in hostile(good, tmp_path, lambda h: change(h, 2**48 - 1))
    assert "sums must have shape" in hostile(good, tmp_path, lambda h: change(h, 2**20))


@pytest.mark.parametrize("dtype", ["|O", "O", "<U9", "|V8", "<M8[s]", "<c16", "<f16", 3, None, []])
def test_only_plain_number_arrays_are_read(tmp_path, good, dtype):
    def change(header):
        header["arrays"][0][0] = dtype

    hostile(good, tmp_path, change)


@pytest.mark.parametrize("name", ["Evil", "os.system", "StreamClassifier", None, ["OML"], {}])
def test_a_class_outside_the_list_is_refused(tmp_path, good, name):
    hostile(good, tmp_path, lambda header: header.update({"class": name}))


def test_a_dict_of_marks_that_are_none_is_refused(tmp_path, good):
    hostile(good, tmp_path, lambda header: header.update(extra={"$array": 0, "a": 1}))
    hostile(good, tmp_path, lambda header: header.update(extra={"$other": 0}))


@pytest.mark.parametrize("index", [99, -1, 0.0, True, None, "0", [0]])
def test_a_reference_to_no_array_is_refused(tmp_path, good, index):
    def change(header):
        header["state"]["learner"]["sums"] = {"$array": index}

    hostile(good, tmp_path, change)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("params", {"power": -1}),
        ("params", {"unknown": 1}),
        ("params", [1]),
        ("n_features", -1),
        ("n_features", 10**30),
        ("n_features", 5),
        ("n_features", True),
        ("feature_names", ["x"]),
        ("names", ["a", "a", "a"]),
        ("names", ["a", "b"]),
        ("names", [["a"], ["b"], ["c"]]),
        ("names", "abc"),
        ("n_seen", 101),
        ("n_seen", "100"),
        ("sparse", 1),
        ("single", None),
        ("dtype", "|O"),
        ("dtype", "|V999999999"),
        ("dtype", "nonsense"),
        ("learner", {}),
        ("learner", None),
    ],
)
def test_a_state_that_does_not_fit_the_learner_is_refused(tmp_path, good, field, value):
    hostile(good, tmp_path, lambda header: header["state"].update({field: value}))


def test_one_long_label_name_cannot_widen_many(tmp_path, good):
    names = ["x" * 100_000] + [str(i) for i in range(10_000)]
    hostile(good, tmp_path, lambda header: header["state"].update(names=names))


@pytest.mark.parametrize("missing", ["class", "arrays", "state", "extra", "body_sha256"])
def test_a_header_without_a_field_is_refused(tmp_path, good, missing):
    hostile(good, tmp_path, lambda header: header.pop(missing) and None)


def test_long_lists_whose_parts_disagree_are_refused(tmp_path, good):
    _, _, header, _ = parts(good)
    columns = header["state"]["learner"]["ids"]["$list"]
    for key in columns:
        for value in ({"$array": 0}, 5, None, columns["kind"], columns["int"], columns["text"]):
            if columns[key] == value:
                continue

            def change(header, key=key, value=value):
                header["state"]["learner"]["ids"]["$list"][key] = value

            hostile(good, tmp_path, change)


def test_deep_nesting_is_refused(tmp_path):
    path = tmp_path / "m.tgs"
    for text in (b"[" * 1_000_000, b'{"a":' * 500_000, b"[" * 200_000 + b"]" * 200_000):
        path.write_bytes(forged(None, text=text))
        refused(path)


def test_nesting_that_json_reads_but_we_cannot_walk_is_refused(tmp_path, good):
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    hostile(good, tmp_path, lambda header: header.update(extra=deep, n=1))
    hostile(good, tmp_path, lambda header: header["state"]["learner"].update(sums=deep))


def test_a_huge_header_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "m.tgs"
    with path.open("wb") as file:
        file.write(struct.pack("<8sII32s", b"tagstrm\n", 1, 2**32 - 1, bytes(32)))
        file.truncate(2**33)  # a sparse file: it takes no room on disk
    tracemalloc.start()
    with pytest.raises(DataError, match="the header must be at most"):
        load(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from([{"$array": 0}, {"$list": {}}, {"$tuple": 3}, {"$list": 3}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_value_in_any_place_of_the_header_loads_or_is_refused(tmp_path, good, data):
    _, _, header, body = parts(good)
    places = [(header, k) for k in header]
    for holder, key in places:
        if isinstance(holder[key], dict):
            places += [(holder[key], k) for k in holder[key]]
        elif isinstance(holder[key], list):
            places += [(holder[key], i) for i in range(len(holder[key]))]
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(json_values)
    path = tmp_path / "m.tgs"
    path.write_bytes(forged(header, body))
    with contextlib.suppress(DataError):
        load(path, classes=MEANS)
    with contextlib.suppress(DataError):
        inspect(path)


def everywhere(value):
    return lambda array: np.full_like(array, value)


def first(value):
    def change(array):
        array.ravel()[0] = value
        return array

    return change


MEANINGLESS = [
    # what was found from outside
    ("oml", "space.exponent", 209652396),
    ("oml", "space.exponent", -5000),
    ("oml", "space.V", lambda V: V[:, :-1]),
    ("oml", "space.V", everywhere(1e308)),
    ("oml", "space.V", first(np.nan)),
    ("oml", "space.cumulative_loss", np.nan),
    ("oml", "choice.ridge", np.inf),
    ("oml", "choice.bandwidth", 0.0),
    ("oml", "next_fit", 60),
    ("knn-map", "counts", first(99)),
    ("knn-map", "counts", first(-1)),
    ("knn-map", "tables", first(7)),
    ("knn-map", "next_count", 60),
    ("knn-map", "next_count", 10**30),
    ("olansgd-core", "core.C", everywhere(0.0)),
    ("oml-window", "store.n_forgotten", 10**9),
    ("oml-window", "store.n_forgotten", -1),
    ("knn", "store.n_seen", 61),
    # the convex metric
    ("oml-convex", "space.Q", lambda Q: Q + np.triu(Q, 1) + 1e-9 * np.triu(np.ones_like(Q), 1)),
    ("oml-convex", "space.tally", first(1e6)),
    ("oml-convex", "space.tally", everywhere(-1.0)),
    # the head
    ("oml", "belief.head.A", everywhere(0.0)),
    ("oml", "belief.head.A", lambda A: -A),
    ("oml", "belief.head.A", first(1e300)),
    ("oml", "belief.head.w", everywhere(1e300)),
    ("oml", "belief.head.d", first(-1e300)),
    ("oml", "belief.head.a", first(1e-300)),
    ("oml", "belief.head.now.n", first(2**62)),
    ("oml", "belief.head.now.t", first(2**48)),
    ("oml", "belief.head.now.fast", first(1.5)),
    ("oml-lag", "belief.head.queue_at", everywhere(50)),
    ("oml-lag", "belief.head.queue_at", everywhere(-1)),
    ("oml-lag", "belief.head.queue", first(3)),
    ("oml-lag", "belief.lag", 8),
    ("oml", "belief.votes", [10, 3, 30]),
    ("oml", "belief.votes", [0, 0, 10**9]),
    ("oml", "belief.n_recent", 61),
    ("oml", "belief.factor", first(-1.0)),
    ("oml", "belief.copies.K", everywhere(1e-320)),
    # the fast map
    ("oml-sparse", "belief.fast.width", 10**9),
    ("oml-sparse", "belief.fast.seen", first(-1)),
    ("oml-sparse", "belief.fast.features", lambda f: f[::-1].copy()),
    ("oml-sparse", "belief.fast.features", lambda f: f + 10**6),
    ("oml", "belief.fast.D", lambda D: D[:-1]),
    ("oml", "belief.fast.D", everywhere(3e38)),
    ("oml", "belief.fast.rho", 5e-324),
    ("oml", "belief.fast.added", first(-1.0)),
    ("oml", "belief.fast.fresh", first(2)),
    # the store
    ("oml-sparse", "store.rows.indices", first(10**6)),
    ("oml-sparse", "store.rows.indptr", first(5)),
    ("oml-sparse", "store.rows.indptr", everywhere(2**62)),
    ("oml-sparse", "store.rows.data", first(3e38)),
    ("oml", "store.rows.dense", first(3e38)),
    ("oml", "store.codes", first(3e38)),
    ("oml", "store.labels", everywhere(255)),
    ("oml-corrected", "store.numbers", lambda n: n[::-1].copy()),
    ("oml-corrected", "store.numbers", first(-1)),
    ("oml-corrected", "store.corrected", first(60)),
    ("oml-corrected", "store.corrected", first(-1)),
    ("oml-corrected", "store.ids", ["one"]),
    ("oml", "store.shape", [4, 7]),
    ("oml", "store.shape", [0, 0]),
    # the projection
    ("oml", "projection.P", first(1e300)),
    ("oml-sparse", "projection.columns", first(10**6)),
    ("oml-sparse", "projection.columns", lambda c: c[::-1].copy()),
    ("oml-fourier", "projection.lift.u", first(3e38)),
    ("oml-kernel", "projection.lift.W", lambda W: W[:, :0]),
    ("oml-kernel", "projection.lift.kind", "none"),
    # the others
    ("osml-elm", "hidden.n_hidden", 4097),
    ("osml-elm", "hidden.n_hidden", 16),
    ("osml-elm-qr", "core.S", everywhere(0.0)),
    ("oml-published", "space.V", lambda V: np.vstack([V, V])),
]


@pytest.mark.parametrize(("name", "place", "value"), MEANINGLESS)
def test_a_number_without_meaning_is_refused(tmp_path, name, place, value):
    version, header, arrays = take_apart((HERE / "format2" / f"{name}.tgs").read_bytes())
    holder = header["state"]["learner"]
    *way, last = place.split(".")
    for key in way:
        holder = holder[key]
    if callable(value):
        i = holder[last]["$array"]
        arrays[i] = value(arrays[i])
    else:
        holder[last] = value
    (tmp_path / "m.tgs").write_bytes(put_together(version, header, arrays))
    refused(tmp_path / "m.tgs")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("knn-single", {"names": []}),
        ("knn", {"n_features": 0}),
        ("knn", {"n_features": 2**40}),
        ("oml-sparse", {"n_features": 2**31 - 1}),
        ("olansgd-sparse", {"n_features": 2**31 - 1}),
        ("knn", {"feature_names": [1, 2, 3, 4]}),
        ("knn", {"feature_names": [["a"], ["b"], ["c"], ["d"]]}),
        ("knn", {"n_seen": 2**60}),
    ],
)
def test_a_state_without_meaning_is_refused(tmp_path, name, changes):
    version, header, arrays = take_apart((HERE / "format2" / f"{name}.tgs").read_bytes())
    header["state"].update(changes)
    (tmp_path / "m.tgs").write_bytes(put_together(version, header, arrays))
    refused(tmp_path / "m.tgs")


@pytest.mark.parametrize("extra", [[], "text", 3, None, {"$tuple": []}, {"$array": 0}])
def test_extra_must_be_a_dict(tmp_path, good, extra):
    hostile(good, tmp_path, lambda header: header.update(extra=extra))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("featurizer", []),
        ("featurizer", {"name": [], "state": {}}),
        ("featurizer", {"name": "text", "state": {"version": 1}}),
        ("texts", [1] * 30),
        ("text_ids", [[]] * 30),
        ("text_ids", 3),
        ("n_columns", 2**40),
        ("seen", None),
        ("keep_text", 1),
    ],
)
def test_what_a_tagger_kept_is_checked_too(tmp_path, key, value):
    version, header, arrays = take_apart((HERE / "format2" / "tagger.tgs").read_bytes())
    header["extra"]["tagger"][key] = value
    (tmp_path / "m.tgs").write_bytes(put_together(version, header, arrays))
    with pytest.raises(DataError) as caught:
        Tagger.open(tmp_path / "m.tgs")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hashing", [[], 3, "x", {"n_features": "x"}, {"other": 1}])
def test_a_wrongly_typed_extra_of_format_1_is_no_traceback(tmp_path, hashing):
    version, header, arrays = take_apart((HERE / "format1" / "knn.tgs").read_bytes())
    header["extra"] = {"hashing": hashing, "features": hashing}
    (tmp_path / "m.tgs").write_bytes(put_together(version, header, arrays))
    with contextlib.suppress(DataError):
        Tagger.open(tmp_path / "m.tgs")


# ------------------------------------------------------------------ bombs
def test_no_rows_of_no_features_take_no_memory(tmp_path):
    """Neither takes room in the file, however many rows there are."""
    version, header, arrays = take_apart((HERE / "format2" / "knn.tgs").read_bytes())
    state = header["state"]
    store = state["learner"]["store"]
    for n in (2**27, 2**22, 2**20):
        state.update(names=[], n_features=0, n_seen=n)
        store.update(shape=[0, 0], n_seen=n, ids=None)
        arrays[store["rows"]["dense"]["$array"]] = np.empty((n, 0), np.float32)
        arrays[store["labels"]["$array"]] = np.empty((n, 0), np.uint8)
        (tmp_path / "m.tgs").write_bytes(put_together(version, header, arrays))
        refused(tmp_path / "m.tgs")


def test_a_list_is_decoded_once(tmp_path, good):
    def change(header):
        ids = header["state"]["learner"]["ids"]
        header["state"]["learner"]["ids"] = [ids] * 100

    assert "must be used once" in hostile(good, tmp_path, change)

    def share(header):
        header["extra"] = {"again": header["state"]["learner"]["sums"]}

    assert "must be used once" in hostile(good, tmp_path, share)


# ------------------------------------------------------------------ what is saved can be loaded
def test_the_published_method_can_be_saved_when_labels_grow_after_its_first_block(tmp_path):
    X, _ = stream(False)
    model = PublishedOML(first_block=40, random_state=0).partial_fit(X[:80], [{"a"}, {"b"}] * 40)
    model.partial_fit(X[:4], [{"c"}, {"d"}, {"e", "f"}, {"g"}])
    save(model, tmp_path / "m.tgs")
    again = load(tmp_path / "m.tgs")
    assert again.V_.shape == model.V_.shape == (7, 1)
    assert (again.predict_proba(X) == model.predict_proba(X)).all()


@pytest.mark.parametrize("name", ["oml", "oml-vote", "knn", "knn-head", "oml-published"])
def test_a_changed_number_of_neighbours_is_saved(tmp_path, name):
    X, Y = stream(False)
    model = LEARNERS[name]().partial_fit(X[:80], Y[:80]).set_params(n_neighbors=4)
    save(model, tmp_path / "m.tgs")
    again = load(tmp_path / "m.tgs")
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    for m in (model, again):
        m.partial_fit(X[80:], Y[80:])
    assert (again.predict_proba(X) == model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("knn", {"vote": "map"}),
        ("knn-map", {"vote": "majority"}),
        ("knn-map", {"n_neighbors": 5}),
        ("knn", {"window": 20}),
        ("oml", {"window": 20}),
        ("oml", {"head": False}),
        ("oml", {"step": "convex"}),
        ("oml-published", {"first_block": 10**6}),
    ],
)
def test_parameters_that_no_longer_fit_are_not_saved_over_a_good_file(tmp_path, name, params):
    X, Y = stream(False)
    model = LEARNERS[name]().partial_fit(X, Y)
    save(model, tmp_path / "m.tgs")
    before = (tmp_path / "m.tgs").read_bytes()
    with pytest.raises(ValueError, match="the model could not be loaded again"):
        save(model.set_params(**params), tmp_path / "m.tgs")
    assert os.listdir(tmp_path) == ["m.tgs"]
    assert (tmp_path / "m.tgs").read_bytes() == before


def test_one_long_name_among_many_is_saved_and_takes_no_more_room_than_itself(tmp_path):
    names = [f"tag {i}" for i in range(20_000)] + ["long" * 5_000]
    with peak_below(100_000_000):
        model = KNN().partial_fit(np.eye(2), [{names[0]}, {names[-1]}], classes=names)
        save(model, tmp_path / "m.tgs")
        assert load(tmp_path / "m.tgs").classes_.tolist() == names


# ------------------------------------------------------------------ files that are no files
def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.tgs")


def test_a_directory_and_a_pipe_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(DataError, match="must be a regular file"):
            load(path)


# ------------------------------------------------------------------ atomic writing
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "chmod", "fsync", "replace"])
def test_a_failed_save_leaves_the_last_good_model_and_no_litter(tmp_path, monkeypatch, call, code):
    def fails(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    before = in_memory(fitted(), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(persist.os, call, fails)
        told = rf"the model cannot be saved: {os.strerror(code)}.*m.tgs"
        with pytest.raises(OSError, match=told) as caught:
            save(fitted(50), tmp_path / "m.tgs", classes=MEANS)
    assert caught.value.errno == code
    assert os.listdir(tmp_path) == ["m.tgs"]
    assert (tmp_path / "m.tgs").read_bytes() == before


def test_an_interrupted_save_leaves_no_litter(tmp_path, monkeypatch):
    before = in_memory(fitted(), tmp_path)
    monkeypatch.setattr(persist.os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save(fitted(50), tmp_path / "m.tgs", classes=MEANS)
    assert os.listdir(tmp_path) == ["m.tgs"]
    assert (tmp_path / "m.tgs").read_bytes() == before


def test_a_full_disk_leaves_the_last_good_model(tmp_path):
    """A limit on file sizes stands in for the full disk: writing fails half-way."""
    before = in_memory(fitted(), tmp_path)
    code = """if True:
        import resource, sys
        sys.path.insert(0, sys.argv[1])
        from test_persist import MEANS, fitted, save
        model = fitted(20_000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            save(model, sys.argv[2], classes=MEANS)
        except OSError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "m.tgs")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the model cannot be saved: File too large" in done.stdout
    assert os.listdir(tmp_path) == ["m.tgs"]
    assert (tmp_path / "m.tgs").read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory root cannot write")
def test_a_directory_that_cannot_be_written_is_a_clear_error():
    with pytest.raises(OSError, match=r"the model cannot be saved: .*'/proc/m.tgs'"):
        save(fitted(), "/proc/m.tgs", classes=MEANS)


def test_a_missing_directory_and_a_directory_in_the_way_are_clear_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="the model cannot be saved: No such file"):
        save(fitted(), tmp_path / "none" / "m.tgs", classes=MEANS)
    (tmp_path / "m.tgs").mkdir()
    with pytest.raises(IsADirectoryError, match="the model cannot be saved: it is a directory"):
        save(fitted(), tmp_path / "m.tgs", classes=MEANS)


def test_the_file_is_synced_before_it_takes_its_name_and_the_directory_after(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle):
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    monkeypatch.setattr(persist.os, "fsync", note_fsync)
    monkeypatch.setattr(persist.os, "replace", lambda a, b: (calls.append("rename"), replace(a, b)))
    save(fitted(), tmp_path / "m.tgs", classes=MEANS)
    assert calls == ["file", "rename", "folder"]


def test_the_mode_of_an_existing_file_and_a_link_to_it_are_kept(tmp_path):
    save(fitted(), tmp_path / "real.tgs", classes=MEANS)
    (tmp_path / "real.tgs").chmod(0o640)
    (tmp_path / "link.tgs").symlink_to("real.tgs")
    save(fitted(50), tmp_path / "link.tgs", classes=MEANS)
    assert (tmp_path / "link.tgs").is_symlink()
    assert stat.S_IMODE((tmp_path / "real.tgs").stat().st_mode) == 0o640
    assert load(tmp_path / "real.tgs", classes=MEANS).n_seen_ == 50


def test_a_private_model_is_private_from_its_first_byte_on(tmp_path, monkeypatch):
    path = tmp_path / "m.tgs"
    save(fitted(), path, classes=MEANS)
    path.chmod(0o600)
    modes = []

    def note(temporary, flags, mode=0o777):
        handle = os_open(temporary, flags, mode)
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return handle

    os_open = os.open
    umask = os.umask(0)
    try:
        monkeypatch.setattr(persist.os, "open", note)
        save(fitted(50), path, classes=MEANS)
    finally:
        monkeypatch.undo()
        os.umask(umask)
    assert modes[0] == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can do it")
def test_a_file_of_another_user_stays_that_users(tmp_path):
    path = tmp_path / "m.tgs"
    save(fitted(), path, classes=MEANS)
    path.chmod(0o640)
    os.chown(path, 12345, 23456)
    save(fitted(50), path, classes=MEANS)
    now = path.stat()
    assert (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) == (12345, 23456, 0o640)


def test_where_the_group_cannot_be_kept_another_group_may_not_read(tmp_path, monkeypatch):
    path = tmp_path / "m.tgs"
    save(fitted(), path, classes=MEANS)
    path.chmod(0o664)

    def another(target):
        seen = real(target)
        fields = [*seen]
        fields[5] += os.fspath(target) == os.path.realpath(path)  # st_gid
        return os.stat_result(fields)

    def refuse(*_):
        raise PermissionError

    real = os.stat
    monkeypatch.setattr(persist.os, "stat", another)
    monkeypatch.setattr(persist.os, "chown", refuse)
    save(fitted(50), path, classes=MEANS)
    monkeypatch.undo()
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_leftovers_of_killed_saves_are_removed_and_nothing_else(tmp_path):
    ours = tmp_path / f".m.tgs.{'0' * 32}.tmp"
    others = ["m.tgs", ".m.tgs.tmp", f".n.tgs.{'0' * 32}.tmp", ".m.tgs.notes.tmp"]
    for path in [ours, *(tmp_path / name for name in others)]:
        path.touch()
    assert remove_leftovers(tmp_path / "m.tgs") == 1
    assert sorted(os.listdir(tmp_path)) == sorted(others)
    assert remove_leftovers(tmp_path / "none" / "m.tgs") == 0


if __name__ == "__main__":
    write_format_2()
