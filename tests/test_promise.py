"""Promises: a bar that is tracked on honest scores keeps a promised precision or recall."""

from __future__ import annotations

import numpy as np
import pytest

from shell import posts
from tagstream import KNN, OML, Tagger
from tagstream.data import make_stream
from tagstream.evidence.honest import LEAST, Entries, HonestScores, entries_of
from tagstream.evidence.promise import ENOUGH, track_precision, track_recall


def _entries(rng, n, sharp, shift=0.0):
    """Return scores of one label, and whether it is there: less often than they say by a shift."""
    p = rng.beta(sharp, 0.5, n)
    hits = rng.random(n) < np.clip(p - shift, 0, 1)
    return Entries(np.zeros(n, np.int32), p.astype(np.float32), hits.astype(np.uint8))


def _joined(*parts):
    return Entries(*(np.concatenate(some) for some in zip(*parts, strict=True)))


# ---------------------------------------------------------------------- the track
def naive(entries, promise):
    """Return bar, applied, right by the words of the module, one label."""
    alpha = 1 - promise
    lam = top = np.log(promise / alpha)
    G, closed, trials, applied, right, since = 0.0, False, 0, 0, 0, 0
    g = max(0.5, 10 * np.sqrt(alpha * (1 - alpha)) - 0.5)
    for _, s, hit in zip(*entries, strict=True):
        s = min(max(float(s), 1e-6), 1 - 1e-6)
        if s < 0.5:
            continue
        at = np.log(s / (1 - s))
        on_trial = at >= min(lam, top)
        top += 0.05 * (0.8 if at > top else -0.2)
        if on_trial:
            if trials >= ENOUGH and not closed:
                applied, right = applied + 1, right + int(hit)
            trials += 1
            lam = max(lam + 0.5 * ((1 - hit) - alpha / 2), 0)
            G = min(max(G + (1 - hit) - alpha, 0), 2 * g)
            since += 1
            if g <= G:
                closed, since = True, 0
            elif closed and g / 2 >= G:
                allowed = alpha * (applied + since / 4) + np.sqrt(alpha * (1 - alpha) * applied)
                closed = applied - right > allowed
    return 1 / (1 + np.exp(-min(lam, top))), applied, right, closed


@pytest.mark.parametrize("promise", [0.8, 0.95, 0.99])
def test_the_loop_does_what_the_words_say(promise):
    entries = _entries(np.random.default_rng(0), 3000, 2.0, 0.02)
    found = track_precision(entries, np.array([promise]))
    bar, applied, right, closed = naive(entries, promise)
    assert (found.n_applied[0], found.n_right[0], found.closed[0]) == (applied, right, closed)
    if not closed:
        assert found.bars[0] == pytest.approx(bar)


@pytest.mark.parametrize("promise", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_the_promise_is_kept_whether_scores_are_right_or_boast(promise, shift):
    for seed in range(20):
        entries = _entries(np.random.default_rng(seed), 4000, 3.0, shift)
        found = track_precision(entries, np.array([promise]))
        n = int(found.n_applied[0])
        if n >= 100:
            error = np.sqrt(promise * (1 - promise) / n)
            assert found.n_right[0] / n >= promise - 2 * error


def test_a_label_that_turns_wrong_is_no_longer_applied_after_a_few_errors():
    rng = np.random.default_rng(1)
    good = _entries(rng, 3000, 8.0)
    bad = good._replace(hits=np.zeros(3000, np.uint8))
    before = track_precision(good, np.array([0.95]))
    after = track_precision(_joined(good, bad), np.array([0.95]))
    assert before.n_applied[0] > 1000
    assert after.n_applied[0] - before.n_applied[0] <= 5
    assert after.closed[0]
    assert after.bars[0] == np.inf
    again = track_precision(_joined(good, bad, good), np.array([0.95]))
    assert not again.closed[0]


def test_before_thirty_trials_nothing_is_applied():
    sure = Entries(
        np.zeros(ENOUGH - 1, np.int32),
        np.full(ENOUGH - 1, 0.99, np.float32),
        np.ones(ENOUGH - 1, np.uint8),
    )
    found = track_precision(sure, np.array([0.95]))
    assert found.trials[0] == ENOUGH - 1
    assert found.bars[0] == np.inf


def test_labels_do_not_touch_each_other():
    rng = np.random.default_rng(2)
    a, b = _entries(rng, 900, 3.0), _entries(rng, 900, 2.0, 0.2)
    mixed = Entries(
        np.tile(np.array([0, 1], np.int32), 900),
        np.stack([a.scores, b.scores], 1).ravel(),
        np.stack([a.hits, b.hits], 1).ravel(),
    )
    both = track_precision(mixed, np.array([0.9, 0.9]))
    assert both.bars[0] == track_precision(a, np.array([0.9])).bars[0]
    assert both.n_right[1] == track_precision(b, np.array([0.9])).n_right[0]


def test_the_share_of_items_that_reach_the_bar_is_the_promised_recall():
    rng = np.random.default_rng(3)
    scores = rng.beta(2, 2, 5000).astype(np.float32)
    entries = Entries(np.zeros(5000, np.int32), scores, np.ones(5000, np.uint8))
    bar = track_recall(entries, 1, 0.9)[0]
    assert abs(np.mean(scores >= bar) - 0.9) < 0.08


# ---------------------------------------------------------------------- honest scores
def test_what_is_kept_of_scores():
    p = np.array([[0.9, LEAST - 0.01, 0.2], [LEAST, 0.5, 0.1]])
    found = entries_of(p, np.array([[0, 0, 1], [2, 1, 0]], np.uint8))
    assert found.columns.tolist() == [0, 2, 1]
    assert found.hits.tolist() == [0, 1, 1]


def test_the_latest_are_kept_however_they_were_added():
    rng = np.random.default_rng(0)
    n = 100_000
    whole = Entries(
        rng.integers(0, 9, n).astype(np.int32),
        rng.random(n).astype(np.float32),
        rng.integers(0, 2, n).astype(np.uint8),
    )
    one, other = HonestScores(), HonestScores()
    one.add(whole)
    for first in range(0, n, 77):
        other.add(Entries(*(part[first : first + 77] for part in whole)))
    assert one.n == other.n == n
    for a, b in zip(one.entries, other.entries, strict=True):
        assert (a == b).all()
    again = HonestScores.load(one.dump(), 9)
    assert (again.entries.scores == one.entries.scores).all()
    with pytest.raises(ValueError, match="columns"):
        HonestScores.load(one.dump(), 5)
    one.keep([[3], [1, 2]])
    assert {*one.entries.columns.tolist()} == {0, 1}


@pytest.mark.parametrize(("window", "most"), [(1, 4096), (1000, 8000), (10**6, 32_768)])
def test_a_window_keeps_fewer_scores_in_memory_that_stays_flat(window, most):
    n = 70_000
    scores = np.linspace(0.3, 1, n, dtype=np.float32)
    made = HonestScores(window)
    for first in range(0, n, 70):
        part = scores[first : first + 70]
        made.add(Entries(np.zeros(70, np.int32), part, np.ones(70, np.uint8)))
        assert made.nbytes <= 9 * 2 * most
    for one in (made, made.snapshot(), HonestScores.load(made.dump(), 1, window)):
        assert (one.entries.scores == scores[-most:]).all()


@pytest.mark.parametrize("window", [None, 60])
def test_how_a_stream_is_cut_does_not_matter_to_what_is_watched(window):
    stream = make_stream(300, seed=0)
    whole, single = (OML(random_state=0, decide="precision90", window=window) for _ in range(2))
    whole.partial_fit(stream.X, stream.Y)
    for first in range(0, 300, 7):
        single.partial_fit(stream.X[first : first + 7], stream.Y[first : first + 7])
    assert repr(whole.to_state()) == repr(single.to_state())
    assert whole._belief.honest_any.n > whole._belief.honest_next.n / 2


@pytest.mark.parametrize("begun", [1, 12, 150])
def test_a_model_that_was_saved_before_it_began_to_watch_goes_the_same_way(tmp_path, begun):
    records = posts(200)
    one = Tagger(OML(random_state=0))
    one.learn(records[:begun])
    one.save(tmp_path / "before.tgs")
    other = Tagger.open(tmp_path / "before.tgs")
    files = []
    for tagger in (one, other):
        tagger.promise(tagger.tags[0], promise=0.8)
        tagger.save(tmp_path / "watching.tgs")
        for made in (tagger, Tagger.open(tmp_path / "watching.tgs")):
            made.learn(records[begun:])
            made.save(tmp_path / "after.tgs")
            files.append((tmp_path / "after.tgs").read_bytes())
    assert len({*files}) == 1


def test_scores_of_a_stream_are_those_that_were_said_before_learning():
    stream = make_stream(200, seed=0)
    model = OML(random_state=0).partial_fit(stream.X[:150], stream.Y[:150])
    n = model._belief.honest_next.n
    said = model.predict_proba(stream.X[150:151], next=True)
    model.partial_fit(stream.X[150:151], stream.Y[150:151])
    found = model._belief.honest_next.entries
    expected = entries_of(said, stream.Y[150:151].astype(np.uint8))
    k = model._belief.honest_next.n - n
    assert found.scores[-k:].tolist() == pytest.approx(expected.scores.tolist(), abs=1e-6)


# ---------------------------------------------------------------------- arrays
def test_predict_keeps_a_promised_precision_and_recall():
    stream = make_stream(3000, seed=0)
    model = OML(random_state=0).fit(stream.X[:2000], stream.Y[:2000])
    X, Y = stream.X[2000:], stream.Y[2000:] > 0
    sure = model.predict(X, decide="precision95") > 0
    plain = model.predict(X) > 0
    assert sure.sum() > 0
    assert (Y & sure).sum() / sure.sum() >= 0.93
    assert sure.sum() < plain.sum() + 500
    reached = model.predict(X, decide="recall90") > 0
    assert (Y & reached).sum() / Y.sum() >= 0.85


def test_a_promise_needs_a_head():
    with pytest.raises(ValueError, match="without a head"):
        KNN(3, decide="precision95").fit([[0.0], [1.0]], [{"a"}, {"b"}])
    with pytest.raises(ValueError, match="such as 'precision95'"):
        OML(decide="precision5").fit([[0.0], [1.0]], [{"a"}, {"b"}])
    model = OML(head=False).fit([[0.0], [1.0]], [{"a"}, {"b"}])
    with pytest.raises(ValueError, match="without a head"):
        model.predict([[0.0]], decide="recall90")


# ---------------------------------------------------------------------- a tagger
@pytest.fixture(scope="module")
def promised():
    tagger = Tagger(OML(random_state=0))
    tagger.learn(posts(100))
    tagger.promise("sea", "auto", 0.9)
    tagger.promise("food", "never")
    tagger.learn(posts(400, seed=5, first=100))
    return tagger


def test_auto_is_part_of_the_suggested_tags(promised):
    told = promised.suggest([{"text": r["text"]} for r in posts(100, seed=9)])
    assert any(one.auto for one in told)
    for one in told:
        assert {*one.auto} <= {*one.tags}
        assert {*one.auto} <= {"sea"}
        assert "food" not in one.tags
    assert any(one.scores.get("food", 0) > 0.5 for one in told)


def test_what_is_promised_and_kept_is_told(promised):
    sea, food = promised.promises
    assert (sea.tag, sea.mode, sea.promise, sea.why) == ("sea", "auto", 0.9, "")
    assert sea.n >= 30
    assert sea.kept > 0.9
    assert (food.tag, food.mode, food.promise) == ("food", "never", None)


def test_promises_are_saved_and_follow_renames(promised, tmp_path):
    promised.save(tmp_path / "m.tgs")
    again = Tagger.open(tmp_path / "m.tgs")
    assert again.promises == promised.promises
    again.rename("sea", "ocean")
    assert [kept.tag for kept in again.promises] == ["ocean", "food"] or {
        kept.tag for kept in again.promises
    } == {"ocean", "food"}
    again.promise("food", "suggest")
    assert [kept.tag for kept in again.promises] == ["ocean"]


def test_a_young_promise_says_what_is_missing():
    tagger = Tagger(OML(random_state=0))
    tagger.learn(posts(40))
    tagger.promise("sea")
    (kept,) = tagger.promises
    assert kept.bar is None
    assert "of 30 scores" in kept.why
    before = repr(tagger.learner.to_state())
    with pytest.raises(ValueError, match="mode must be one of"):
        tagger.promise("sea", "always")
    with pytest.raises(ValueError, match="promise must be"):
        tagger.promise("sea", "auto", 1.5)
    with pytest.raises(ValueError, match="got 'sae'"):
        tagger.promise("sae")
    assert repr(tagger.learner.to_state()) == before
