"""Learning at once, on a made-up stream of texts: corrections hold, new tags are suggested."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from tagstream.metrics import MultiLabelScores
from tagstream.models import OML
from tagstream.paper import Cell, grid, offline, run, scenarios, texts, work
from tagstream.paper.guarantee import RecordedOML, guarantee


def made_up_stream(n, shares, *, n_words=2, noise=0.3, seed=0):
    """Short texts: words of one or two tags, which have these shares, among words of none."""
    rng = np.random.default_rng(seed)
    shares = np.array(shares) / np.sum(shares)
    q = len(shares)
    records = []
    for i in range(n):
        tags = rng.choice(q, 1 + (rng.random() < 0.3), replace=False, p=shares)
        words = [f"topic{t}x{rng.integers(30)}" for t in tags for _ in range(n_words)]
        words += [f"word{rng.integers(200)}" for _ in range(6)]
        text = " ".join(words[j] for j in rng.permutation(len(words)))
        if rng.random() < noise:  # so that there are mistakes to correct
            tags = rng.choice(q, 1, p=shares)
        records.append({"id": f"r{i}", "text": text, "y": [f"tag{t}" for t in tags]})
    return records


SHARES = 1 / np.arange(1, 13)


@pytest.fixture(scope="module")
def stream():
    return made_up_stream(800, SHARES)


# ---------------------------------------------------------------------- the promises
def test_corrected_items_are_right_at_once_and_after_the_next_fit():
    changes = []
    for seed in range(4):
        found = scenarios.correct(
            made_up_stream(800, SHARES, seed=seed),
            OML(random_state=0), n_learnt=480, counts=(5, 15), n_others=150, seed=0,
        )  # fmt: skip
        assert found["counts"] == [5, 15]
        stages = [look[stage] for look in found["looks"] for stage in ("at_once", "refitted")]
        for stage in stages:
            assert stage["same"] >= 0.95
            assert stage["paraphrase"] >= 0.75
        changes.append([stage["others"] - found["before"] for stage in stages])
        assert found["looks"][1]["n_shown"] > found["looks"][0]["n_shown"] >= 5
    # On average: each fit leaves out another sample, which moves 150 items by as much as this.
    assert np.mean(changes, axis=0).min() >= -0.01


def test_a_made_up_tag_is_suggested_after_at_most_five_examples(stream):
    found = scenarios.introduce(
        stream, OML(random_state=0), scenarios.MADE_UP,
        n_learnt=480, counts=(1, 5), n_test=150, n_draws=2,
    )  # fmt: skip
    assert (found["counts"], found["n_positive"]) == ([1, 5], 10)
    balanced = found["rules"]["balanced"]
    assert np.shape(balanced["f1"]) == np.shape(balanced["false_alarms"]) == (2, 2)
    assert min(f1[1] for f1 in balanced["f1"]) >= 0.8
    # Of 150 items: before the next fit the fast map alone speaks for the tag.
    assert max(alarms[1] for alarms in balanced["false_alarms"]) <= 0.02


def test_a_new_tag_beside_tags_that_are_all_alike_is_not_given_to_every_item():
    alike = made_up_stream(800, [1, 1, 1, 1], n_words=3, noise=0.1)
    found = scenarios.introduce(
        alike, OML(random_state=0), scenarios.MADE_UP,
        n_learnt=480, counts=(1, 5), n_test=150, n_draws=1,
    )  # fmt: skip
    assert max(found["rules"]["balanced"]["false_alarms"][0]) <= 0.01


def test_a_tag_that_was_held_back_is_suggested_after_five_examples(stream):
    found = scenarios.introduce(
        stream, OML(random_state=0), "tag1", n_learnt=300, counts=(5,), n_test=100, n_draws=1
    )
    assert found["rules"]["f1"]["f1"][0][0] > 0.3
    assert set(found["rules"]) == {"balanced", "f1", "macro"}


# ---------------------------------------------------------------------- before and after a fit
def clear_labels(n=900, seed=0):
    """Rows of which one column says whether they have label 2, and others labels 0 and 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 12))
    shares = (0.0, 0.3, 1.2)
    return X, np.stack([X[:, j] > shares[j] for j in range(3)], axis=1).astype(np.uint8)


def test_a_new_label_is_found_before_and_after_a_fit():
    X, Y = clear_labels()
    label = 2
    found = scenarios.survive(
        X, Y, OML(random_state=0), label, counts=(10, 20), n_learnt=400, n_test=300, seed=0
    )
    assert [len(found[when]) for when in ("before", "after")] == [2, 2]
    assert found["after"][1]["recall_at_same_price"] > 0.3  # by chance: .01
    again = scenarios.survive(
        X, Y, OML(random_state=0), label, counts=(10, 20), n_learnt=400, n_test=300, seed=0
    )
    assert again == found


def test_what_cannot_be_looked_at_before_a_fit_is_an_error():
    X, Y = clear_labels()
    with pytest.raises(ValueError, match="must leave 20 items to the next fit, got 100"):
        scenarios.survive(X, Y, OML(), 2, counts=(10, 20), n_learnt=100, n_test=300, seed=0)
    with pytest.raises(ValueError, match="must be 900 items without label 2"):
        scenarios.survive(X, Y, OML(), 2, counts=(10, 20), n_learnt=600, n_test=300, seed=0)


def test_a_label_that_everything_tells_is_seen_at_its_price():
    class Told:
        classes_ = np.array([7, 2])

        def predict_proba(self, X):
            return np.stack([np.zeros(len(X)), X[:, 0]], axis=1)

        def labels_of(self, scores):
            return scores > 0.5

    scores = np.concatenate([[0.9, 0.4], np.linspace(0, 0.55, 100)])  # the first two have it
    seen = scenarios._seen(Told(), scores[:, None], 2, 2)
    assert seen["recall"] == 0.5
    assert seen["false_alarms"] == np.mean(scores[2:] > 0.5)
    assert seen["recall_at_same_price"] == 0.5


# ---------------------------------------------------------------------- how it is measured
def test_a_tag_is_held_back_whole_and_the_first_test_items_have_it(stream):
    with_tag, ordinary = scenarios._divided(stream, "tag1", 5)
    assert all("tag1" in record["y"] for record in with_tag)
    assert not any("tag1" in record["y"] for record in ordinary)
    assert len(with_tag) + len(ordinary) == len(stream)
    made, rest = scenarios._divided(stream, scenarios.MADE_UP, 5)
    assert all(scenarios.PHRASE in r["text"] and scenarios.MADE_UP in r["y"] for r in made)
    assert {r["id"] for r in made}.isdisjoint(r["id"] for r in rest)
    assert scenarios._judged(np.array([True, False, True, False, False]), 2) == (0.5, 1 / 3)
    scores = np.concatenate([[0.9, 0.1], np.linspace(0, 0.95, 100)])  # two have the tag
    ranked = scenarios._ranked(scores, 2)
    assert ranked["f1_at_same_price"] == 0.0  # one of a hundred may have it, and six come before
    assert ranked["average_precision"] == pytest.approx((1 / 7 + 2 / 92) / 2, rel=0.1)


def test_one_classifier_for_one_tag_goes_the_same_way(stream):
    sgd = SGDClassifier(loss="log_loss", random_state=0)
    found = scenarios.introduce(
        stream, sgd, "tag1", n_learnt=200, counts=(1, 10, 1000), n_test=100, n_draws=3
    )
    assert found["counts"] == [1, 10]  # there are no 1,500 examples
    assert list(found["rules"]) == ["0.5"]
    assert len(found["rules"]["0.5"]["refitted"]) == 3
    assert sgd.t_ - 1 == 200  # the draws go on from copies


def test_too_few_mistakes_are_an_error(stream):
    with pytest.raises(ValueError, match="must be 600 wrong suggestions"):
        scenarios.correct(
            stream[:100], OML(random_state=0), n_learnt=60, counts=(600,), n_others=20, seed=1
        )


def test_a_paraphrase_lacks_a_fifth_of_the_words():
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(20)]
    kept = scenarios.paraphrase(" ".join(words), rng).split()
    assert len(kept) == 16
    assert kept == [word for word in words if word in kept]
    assert len(scenarios.paraphrase("two words", rng).split()) == 1
    assert scenarios.paraphrase("one", rng) == "one"
    assert scenarios.paraphrase("", rng) == ""


# ---------------------------------------------------------------------- in the grid
def test_without_the_text_the_part_is_left_out_with_a_word(tmp_path, monkeypatch):
    monkeypatch.setenv(scenarios.FOLDER, str(tmp_path))
    summary = run(tmp_path / "r", jobs=0, only=["scenarios"])
    assert (summary.n_run, list(summary.missing)) == (0, ["goemotions-dev"])
    assert "TAGSTREAM_TEXT must name a folder" in summary.missing["goemotions-dev"]
    monkeypatch.delenv(scenarios.FOLDER)
    with pytest.raises(FileNotFoundError, match="got nothing"):
        scenarios.text_path("goemotions-dev")


@pytest.mark.parametrize(
    ("part", "method", "setting"),
    [
        ("scenarios", "oml-vote", ()),
        ("scenarios", "oml-vote", (("tag", "tag1"),)),
        ("text", "tagger-vote", ()),
        ("text", "tagger-vote", (("stream", True),)),
        ("newtag", "oml", ()),
    ],
)
def test_a_cell_gives_a_record_that_is_json(part, method, setting, stream, tmp_path, monkeypatch):
    some = stream[:150] if part == "text" else stream
    lines = "".join(json.dumps(record) + "\n" for record in some)
    (tmp_path / "goemotions-dev.jsonl").write_text(lines)
    monkeypatch.setenv(scenarios.FOLDER, str(tmp_path))
    small = {"LEARNT_BEFORE_CORRECTIONS": 300, "CORRECTIONS": (2, 5), "N_OTHERS": 50}
    small |= {"LEARNT_BEFORE_TAG": 200, "N_ORDINARY": 50, "EXAMPLES": (1, 2)}
    small |= {"NEW_TAG_EXAMPLES": (1, 2), "NEW_TAG_LABELS": 1, "MOST_LEARNT": 250}
    for name, value in small.items():
        monkeypatch.setattr(work, name, value)
    scenarios.read_text.cache_clear()
    work._rows_and_labels.cache_clear()
    record = work.run_cell(Cell(part, "goemotions-dev", method, 0, setting), None)
    scenarios.read_text.cache_clear()
    work._rows_and_labels.cache_clear()
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_no_fit_falls_between_the_corrections_of_the_grid_or_the_examples_of_a_tag():
    from tagstream.execution.schedule import next_fit
    from tagstream.paper import plan

    before = plan.LEARNT_BEFORE_CORRECTIONS
    assert before + max(plan.CORRECTIONS) < next_fit(before, None)
    before = plan.LEARNT_BEFORE_TAG
    assert before + max(plan.EXAMPLES) * (1 + scenarios.BETWEEN) < next_fit(before, None)
    assert {cell.dataset for cell in grid() if cell.part == "scenarios"} <= set(scenarios.TEXTS)


# ---------------------------------------------------------------------- a tagger beside TF-IDF
def test_a_hold_out_of_text_is_that_of_evaluate_holdout(stream):
    from tagstream.evaluation import evaluate
    from tagstream.text import Text

    Y, column = texts.label_matrix(stream)
    assert list(column) == sorted(column)
    X = Text().rows([record["text"] for record in stream])
    whole = evaluate.holdout(OML(random_state=1), X, Y, folds=3, k=(1, 3))
    found = texts.holdout_of_text(stream, OML(random_state=1), folds=3, fold=1)
    assert found["n_train"] + found["n_test"] == len(stream)
    ours = MultiLabelScores.from_counts(found["counts"]).as_dict()
    for measure in ("micro_f1", "precision_at_1", "precision_at_3"):
        assert ours[measure] == pytest.approx(whole.folds[1].measures[measure], abs=1e-6)


def test_a_stream_of_text_is_that_of_evaluate_prequential(stream):
    from tagstream.evaluation import evaluate
    from tagstream.text import Text

    some = stream[:150]
    Y, _ = texts.label_matrix(some)
    X = Text().rows([record["text"] for record in some])
    whole = evaluate.prequential(OML(random_state=0), X, Y, k=(1, 3))
    found = texts.stream_of_text(some, OML(random_state=0))
    assert found["n_items"] == 150
    ours = MultiLabelScores.from_counts(found["counts"]).as_dict()
    # Before a tag was met its column is not there; a text of which nothing is known gets no tag.
    assert ours["micro_f1"] == pytest.approx(whole.measures["micro_f1"], abs=0.02)


def test_what_tfidf_is_made_with_is_chosen_inside_the_training_part(stream):
    fitted = offline.TfidfLogistic(strengths=(1.0, 30.0)).fit(
        [record["text"] for record in stream], texts.label_matrix(stream)[0]
    )
    assert set(fitted.chosen_) == {"C", "threshold", "micro_f1"}
    assert fitted.chosen_["C"] in (1.0, 30.0)
    found = texts.holdout_of_text(stream, offline.TfidfLogistic((30.0,)), folds=3, fold=0)
    assert found["chosen"]["C"] == 30.0
    assert MultiLabelScores.from_counts(found["counts"])["micro_f1"] > 0.4
    assert json.loads(json.dumps(found, allow_nan=False)) == found


# ---------------------------------------------------------------------- the guarantee
def test_recorded_rounds_are_those_that_were_played():
    from tagstream import records as data
    from tagstream.metric import convex

    stream = data.make_stream(200, seed=0)
    run = RecordedOML(step="convex", step_max=0.01, random_state=0)
    plain = OML(step="convex", step_max=0.01, random_state=0).fit(stream.X, stream.Y)
    run.partial_fit(stream.X[:77], stream.Y[:77]).partial_fit(stream.X[77:], stream.Y[77:])
    assert run.squared_loss_ == plain.squared_loss_
    rounds, tally = run.rounds_, run.tally_
    still = convex.losses_of(np.eye(stream.Y.shape[1]), rounds)
    # Rounds between equal label sets have no margin, and no loss.
    assert (still**2).sum() == pytest.approx(tally.identity_squared)
    assert convex.bound_for(
        np.eye(stream.Y.shape[1]), rounds, 0.01, largest=tally.largest
    ) == pytest.approx(plain.bound_)


def test_the_loss_stays_below_both_bounds_all_along():
    from tagstream import records as data

    stream = data.make_stream(300, seed=1)
    found = guarantee(stream.X, stream.Y, OML(step="convex", random_state=0))
    loss, still, known, best = (
        np.array(found["curve"][name])
        for name in ("squared_loss", "identity_loss", "bound", "best_bound")
    )
    assert (loss <= known + 1e-3).all()
    assert (loss <= best + 1e-3).all()
    assert (still <= known + 1e-3).all()
    assert found["best"]["bound"] <= found["bound"] * (1 + 1e-3)
    assert best[-1] == pytest.approx(found["best"]["bound"])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
