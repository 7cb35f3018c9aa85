"""Records in, tags out: what library, command line and service share."""

from __future__ import annotations

import io
import itertools
import threading

import numpy as np
import pytest

from tagstream import KNN, OLANSGD, OML, Tagger
from tagstream.checks import DataError
from tagstream.data import Batch, iter_csv, iter_jsonl
from tagstream.persist import save
from tagstream.tagger import Learnt
from tagstream.testing import assert_same_state
from tagstream.text import Columns, Encoder, Text

TOPICS = {
    "sea": "beach swim sand wave sail harbour",
    "snow": "ski slope ice cold winter sledge",
    "food": "bread cheese soup cook oven taste",
}


def records(n, seed=0, named=True):
    """Short texts about one or two topics."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        tags = rng.choice(list(TOPICS), size=rng.integers(1, 3), replace=False).tolist()
        words = [rng.choice(TOPICS[tag].split()) for tag in tags for _ in range(4)]
        made.append({"text": " ".join(words), "y": tags} | ({"id": f"r{i}"} if named else {}))
    return made


def small(**params):
    """A tagger of votes, quick to learn."""
    return Tagger(OML(head=False, decide=0.5, random_state=0, **params))


def state(tagger):
    return {
        "learner": tagger.learner.to_state() if tagger.n_items else None,
        "texts": dict(tagger._stored_texts()),
        "seen": tagger._seen.copy(),
        "featurizer": None if tagger.featurizer is None else tagger.featurizer.to_state(),
    }


# ---------------------------------------------------------------------- learning and suggesting


def test_it_learns_texts_and_suggests_their_tags():
    tagger = Tagger()
    assert tagger.learn(records(120)) == Learnt(new=120)
    assert tagger.n_items == 120
    assert set(tagger.tags) == set(TOPICS)
    right = 0
    for record in records(40, seed=1):
        told = tagger.suggest({"text": record["text"]})
        right += set(told.tags) == set(record["y"])
        assert told.known
        values = list(told.scores.values())
        assert values == sorted(values, reverse=True)
        assert [tag for tag in told.scores if tag in told.tags] == told.tags
        assert all(0 < value <= 1 for value in values)
    assert right >= 36


@pytest.mark.parametrize("form", ["list", "iterator", "one by one", "batch"])
def test_however_records_come_the_state_is_the_same(form):
    some, whole, other = records(300, seed=2), small(), small()
    whole.learn(some)
    if form == "iterator":
        assert other.learn(iter(some)) == Learnt(new=300)
    elif form == "one by one":
        for record in some:
            assert other.learn(record) == Learnt(new=1)
    elif form == "batch":
        from tagstream.records.record import as_batch

        other.learn(as_batch(some))
    else:
        other.learn(some[:7])
        other.learn(some[7:])
    assert_same_state(state(other), state(whole))


def embed(texts):
    """Count letters and pairs of them: 58 numbers that most texts have."""
    out = np.full((len(texts), 58), 0.1)
    for row, text in zip(out, texts, strict=True):
        for a, b in itertools.pairwise(text):
            row[ord(a) % 29] += 1
            row[29 + (ord(a) + ord(b)) % 29] += 1
    return out


@pytest.mark.parametrize("window", [None, 70])
def test_beside_an_encoder_the_state_does_not_depend_on_cuts_or_on_a_file(window, tmp_path, limits):
    limits(direct=40)  # beyond it by conjugate gradients
    some, whole, other = records(150, seed=2), *(
        Tagger(OML(random_state=0, window=window), featurizer=Encoder(embed)) for _ in range(2)
    )  # fmt: skip
    whole.learn(some)
    for record in some[:90]:
        other.learn(record)
    other.save(tmp_path / "m.tgs")
    other = Tagger.open(tmp_path / "m.tgs", encoder=embed)
    other.learn(some[90:97])
    other.learn(some[97:])
    for tagger in (whole, other):
        tagger.relabel("r140", ["sea", "new"])
        tagger.forget("r120")
        tagger.refit()
    assert_same_state(state(other), state(whole))
    assert whole.suggest({"text": some[140]["text"]}).tags[:2]
    view = whole.view()
    whole.learn(records(20, seed=3, named=False))
    assert view.suggest(some[3]) == other.suggest(some[3])


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_changes_between_records_are_made_in_their_place(size):
    some, whole, other = records(60, seed=3), small(), small()
    whole.learn(some[:30])
    whole.rename("sea", "ocean")
    whole.forget("r4")
    whole.learn(some[30:])
    whole.merge(["sea"], "ocean")
    whole.remove("snow")
    log = [
        *some[:30],
        {"event": "rename", "old": "sea", "new": "ocean"},
        {"event": "forget", "id": "r4"},
        *some[30:],
        {"event": "merge", "tags": ["sea"], "into": "ocean"},
        {"event": "remove", "tag": "snow"},
    ]
    done = Learnt()
    for first in range(0, len(log), size):
        done += other.learn(log[first : first + size])
    assert done == Learnt(new=60)
    assert_same_state(state(other), state(whole))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": "rename", "old": "sea"}, "record 1: rename must have the fields old, new"),
        ({"event": "rename", "old": "sea", "new": 3}, "new must be a string, got 3"),
        ({"event": "merge", "tags": "sea", "into": "x"}, "tags must be a list of strings"),
        ({"event": "burn", "tag": "sea"}, 'a record must have either "x" or "text"'),
    ],
)
def test_a_change_that_does_not_say_what_it_must_changes_nothing(change, message):
    tagger = small()
    tagger.learn(records(30))
    kept = state(tagger)
    with pytest.raises(DataError, match=message):
        tagger.learn([{"text": "swim", "y": ["sea"]}, change])
    assert_same_state(state(tagger), kept)


def test_of_a_file_with_fields_of_other_names_too():
    file = io.BytesIO(b'{"body": "swim", "event": "remove", "y": ["sea"]}\n')
    (batch,) = iter_jsonl(file, text="body", changes=True)
    assert batch.changes is None
    assert batch.items == ["swim"]


def test_a_record_with_a_field_called_event_is_a_record():
    tagger = small()
    told = tagger.learn({"text": "swim", "event": "rename", "y": ["sea"]})
    assert told == Learnt(new=1)
    with pytest.raises(DataError, match='either "x" or "text"'):
        tagger.suggest({"event": "remove", "tag": "sea"})  # a question is no change
    with pytest.raises(ValueError, match="event must be one of"):
        tagger.change("learn", records=[])


def test_a_suggestion_is_that_of_the_checked_rows():
    tagger = Tagger()
    tagger.learn(records(80))
    asked = [record["text"] for record in records(20, seed=5)]
    rows = tagger.featurizer.rows(asked)
    scores = tagger.learner.predict_proba(rows)
    assert np.array_equal(tagger.view()._model.scores_of(rows), scores)
    told = tagger.suggest([{"text": text} for text in asked])
    for suggestion, row in zip(told, scores, strict=True):
        for tag, value in suggestion.scores.items():
            assert value == round(float(row[tagger.tags.index(tag)]), 6)
    with pytest.raises(ValueError, match="rows must have 262144 features, got 7"):
        tagger.learner.scores_of(rows[:, :7])


# ---------------------------------------------------------------------- items that are equal


def with_twins(kind):
    """Return a tagger with three equal items, each corrected to another tag, and what they are."""
    tagger, some = Tagger(), records(70)
    twin = {"text": "beach ski bread"}
    if kind == "x":
        rng = np.random.default_rng(3)
        some = [{"id": r["id"], "x": rng.normal(size=4).tolist(), "y": r["y"]} for r in some]
        twin = {"x": [0.25, -1.5, 0.5, 2.0]}
    tagger.learn(some)
    tags = {"a": ["sea"], "b": ["snow"], "c": ["food"]}
    tagger.learn([{"id": name, **twin, "y": []} for name in tags])
    for name, own in tags.items():
        tagger.relabel(name, own)
    return tagger, twin, tags


@pytest.mark.parametrize("as_next", [False, True])
@pytest.mark.parametrize("kind", ["text", "x"])
def test_of_equal_items_the_one_whose_id_is_asked_about_speaks(kind, as_next):
    tagger, twin, tags = with_twins(kind)
    asked = [{"id": name, **twin} for name in tags]
    for reader in (tagger, tagger.view()):
        told = reader.suggest(asked, next=as_next)
        assert [one.tags for one in told] == [*tags.values()]
        for record, one in zip(asked, told, strict=True):
            alone = reader.suggest(record, next=as_next)
            assert alone.scores == pytest.approx(one.scores, abs=2e-6)
            why = reader.explain(record, next=as_next)
            assert (why.copy_of.id, why.corrected) == (record["id"], True)
            assert [*why.parts] == one.tags
            for tag in one.tags:
                assert why.scores[tag] == pytest.approx(one.scores[tag], abs=2e-6)


@pytest.mark.parametrize("kind", ["text", "x"])
def test_an_id_alone_decides_nothing(kind):
    tagger, twin, tags = with_twins(kind)
    other = {"text": "beach ski cheese"} if kind == "text" else {"x": [0.25, -1.5, 0.5, 2.001]}
    for content, names in ((other, [*tags, "r3", "nobody"]), (twin, ["r3", "nobody"])):
        want, why = tagger.suggest(content), tagger.explain(content)
        for name in names:
            assert tagger.suggest({"id": name, **content}) == want
            assert tagger.explain({"id": name, **content}) == why
        mixed = [content, {"id": "nobody", **content}, {"id": None, **content}]
        assert tagger.suggest(mixed) == tagger.suggest([content] * 3)


@pytest.mark.parametrize("as_next", [False, True])
def test_a_question_with_an_id_changes_nothing_that_is_learnt(as_next):
    tagger, twin, tags = with_twins("text")
    other = with_twins("text")[0]
    for name in tags:
        tagger.suggest({"id": name, **twin}, next=as_next)
        tagger.explain({"id": name, **twin}, next=as_next)
        new = {"id": f"another {name}", **twin, "y": ["sea"]}
        tagger.learn(new)
        other.learn(new)
    assert_same_state(state(tagger), state(other))


def test_learners_without_a_head_or_items_take_ids():
    for learner in (KNN(), OML(head=False, random_state=0), OLANSGD()):
        tagger = Tagger(learner)
        tagger.learn([{"id": i, "x": [i % 5, i % 3], "y": [f"t{i % 2}"]} for i in range(40)])
        assert tagger.suggest({"id": 3, "x": [3, 0]}) == tagger.suggest({"x": [3, 0]})


def test_checked_rows_are_learnt_as_partial_fit_learns_them():
    some = records(60)
    rows = Text().rows([record["text"] for record in some])
    sets = [set(record["y"]) for record in some]
    one, other = OML(random_state=0), OML(random_state=0)
    one.partial_fit(rows, sets)
    for first in range(0, 60, 7):
        other.learn_rows(rows[first : first + 7], sets[first : first + 7])
    assert_same_state(other.to_state(), one.to_state())
    for bad in ((rows[:2, :5], sets[:2]), (rows[:2], sets[:3]), (rows[:2], ["a", "b"])):
        with pytest.raises(ValueError, match="must"):
            other.learn_rows(*bad)
    assert_same_state(other.to_state(), one.to_state())
    with pytest.raises(ValueError, match="n_neighbors must"):
        other.set_params(n_neighbors=0).learn_rows(rows[:1], sets[:1])


def test_one_in_one_out_and_many_in_many_out():
    tagger = small()
    tagger.learn(records(60))
    asked = [{"text": "swim and sail"}, {"text": "ski on ice"}]
    many = tagger.suggest(asked)
    assert many == [tagger.suggest(one) for one in asked]
    assert many == tagger.suggest(iter(asked))
    assert tagger.suggest([]) == []
    assert tagger.suggest(asked[0] | {"y": ["food"], "id": "x"}) == many[0]  # tags are not read
    assert tagger.n_items == 60


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("seed", range(3))
def test_records_that_are_stored_already_are_told_together_as_one_by_one(seed, window):
    rng = np.random.default_rng(seed)
    first, later = records(40), records(40)[20:]
    for i in rng.choice(20, 6, replace=False).tolist():
        change = rng.integers(4)
        if change == 0:
            later[i]["y"] = ["food"] if later[i]["y"] != ["food"] else ["sea"]
        elif change == 1:
            later[i]["y"] = [*later[i]["y"], "never met before"]
        elif change == 2:
            later[i]["text"] = "another text of bread"
        else:
            later[i] = {"text": "swim on ice", "y": ["sea"], "id": "r22"}  # one id twice
    more = [{**one, "id": f"new {k}"} for k, one in enumerate(records(8, seed=9))]
    later[10:10] = more  # of a window they push out some that are still to come
    together, alone = small(window=window), small(window=window)
    for tagger in (together, alone):
        tagger.learn(first)
    done = [alone.learn([one]) for one in later]
    assert together.learn(later) == sum(done[1:], done[0])
    assert done.count(Learnt(unchanged=1)) > 5
    assert_same_state(state(together), state(alone))
    again = together.learn(later[-3:])
    assert again == sum((alone.learn([one]) for one in later[-3:]), Learnt())


def test_items_that_are_known_in_part_are_not_taken_for_unchanged():
    tagger = small()
    tagger.learn(records(30))
    tags = tagger.tags
    values = [np.nan if tag == tags[0] else float(tag in records(30)[4]["y"]) for tag in tags]
    tagger.learner.relabel("r4", np.array(values), classes=tags)
    assert tagger.learn(records(30)) == Learnt(corrected=1, unchanged=29)
    assert tagger.learn(records(30)) == Learnt(unchanged=30)


def test_top_and_decide():
    tagger = small()
    tagger.learn(records(60))
    asked = {"text": "swim ski bread"}
    whole = tagger.suggest(asked, decide=0.0)
    assert len(whole.scores) > 2
    for top in (1, 2, 1000):
        some = tagger.suggest(asked, top=top, decide=0.0)
        assert [*some.scores.items()] == [*whole.scores.items()][:top]
        assert some.tags == [tag for tag in whole.tags if tag in some.scores]
    assert len(tagger.suggest(asked, decide="top1").tags) == 1
    every = tagger.suggest(asked, decide=0.0)
    assert set(every.scores) <= set(every.tags) | set(tagger.tags)
    for bad in (0, -1, 1.5, "two"):
        with pytest.raises(ValueError, match="top must be an integer"):
            tagger.suggest(asked, top=bad)
    with pytest.raises(ValueError, match="decide must be"):
        tagger.suggest(asked, decide="best")


def test_records_without_tags_are_passed_over():
    tagger = small()
    some = records(20)
    bare = [{"text": "nothing is said"}, {"text": "nor here", "y": None}]
    assert tagger.learn([*some, *bare]) == Learnt(new=20, skipped=2)
    assert tagger.learn(bare) == Learnt(skipped=2)
    assert tagger.learn([]) == Learnt()
    assert tagger.learn({"text": "no tag applies", "y": []}) == Learnt(new=1)
    assert tagger.n_items == 21


@pytest.mark.parametrize(
    ("make", "asked"),
    [
        (lambda i: {"x": [float(i % 2), 0.1 * i], "y": ["odd"] if i % 2 else ["even"]}, [1.0, 0.3]),
        (
            lambda i: {
                "x": {"side": float(i % 2), f"n{i}": 0.1},
                "y": ["odd"] if i % 2 else ["even"],
            },
            {"side": 1.0},
        ),
    ],
)
def test_numbers_and_named_values_are_records_too(make, asked):
    tagger = Tagger(KNN(n_neighbors=3))
    tagger.learn([make(i) for i in range(30)])
    assert tagger.suggest({"x": asked}).tags == ["odd"]
    assert tagger.explain({"x": asked}).neighbors[0].text is None


def test_before_anything_was_learnt_nothing_is_suggested():
    tagger = Tagger()
    told = tagger.suggest({"text": "anything"})
    assert (told.tags, told.scores, told.known) == ([], {}, False)
    assert (tagger.tags, tagger.counts, tagger.n_items) == ([], {}, 0)
    assert tagger.view().suggest({"text": "anything"}) == told
    for call in (
        lambda: tagger.explain({"text": "a"}),
        lambda: tagger.relabel(1, ["a"]),
        lambda: tagger.save("nowhere"),
    ):
        with pytest.raises(ValueError, match="must have learnt something"):
            call()


# ---------------------------------------------------------------------- unknown texts


@pytest.mark.parametrize("window", [None, 40])
def test_a_text_of_which_nothing_was_met_falls_back_to_how_frequent_tags_are_and_says_so(window):
    tagger = small(window=window)
    some = records(90)
    tagger.learn(some)
    told, known = tagger.suggest([{"text": "ξυζ ωψχ"}, {"text": "swim in winter"}])
    assert (told.tags, told.known, known.known) == ([], False, True)
    kept = some if window is None else some[-window:]
    shares = {tag: sum(tag in one["y"] for one in kept) / len(kept) for tag in TOPICS}
    assert told.scores == pytest.approx(shares, abs=1e-6)
    why = tagger.explain({"text": "ξυζ ωψχ"})
    assert [*why.scores.items()] == [*told.scores.items()]
    assert (why.voters, why.parts, why.copy_of) == ({}, {}, None)


def test_an_unknown_text_is_told_from_one_whose_features_share_columns_with_known_ones():
    rng = np.random.default_rng(0)
    letters = np.array([*"abcdefghijklm"])
    words = ["".join(rng.choice(letters, 6)) for _ in range(1200)]

    def text(n):
        return " ".join(rng.choice(words, n))

    tagger = Tagger(KNN())
    tagger.learn([{"text": text(8), "y": ["a"]} for _ in range(800)])
    assert 0.03 < tagger._seen.mean() < 0.2  # so many features of any text are there by chance
    others = ["".join(rng.choice([*"ξυζωψχπλ"], 6)) for _ in range(300)]
    strange = [{"text": " ".join(rng.choice(others, 8))} for _ in range(100)]
    assert sum(said.known for said in tagger.suggest(strange)) <= 10
    assert all(said.known for said in tagger.suggest([{"text": text(8)} for _ in range(100)]))
    mixed = [{"text": f"{text(3)} {record['text']}"} for record in strange]
    assert sum(said.known for said in tagger.suggest(mixed)) >= 95
    assert tagger.suggest({"text": words[0]}).known


@pytest.mark.parametrize(
    "tags", [("sea", "sun"), {"sun", "sea"}, frozenset(["sun", "sea"]), np.array(["sea", "sun"])]
)
def test_tags_may_come_as_programs_and_data_frames_have_them(tags):
    tagger = Tagger(KNN())
    assert tagger.learn({"text": "a bright beach", "y": tags}).new == 1
    assert tagger.tags == ["sea", "sun"]
    assert all(type(tag) is str for tag in tagger.tags)
    assert tagger.learn({"text": "a beach", "y": float("nan")}).skipped == 1  # nothing is known
    with pytest.raises(DataError, match="must be a list of strings, got 'sea'"):
        tagger.learn({"text": "a beach", "y": "sea"})


def test_a_bound_is_told_where_there_is_one():
    plain, convex = Tagger(), Tagger(OML(step="convex", random_state=0))
    assert plain.loss_and_bound is convex.loss_and_bound is None
    rng = np.random.default_rng(0)
    noisy = [{"text": r["text"], "y": [str(rng.choice([*TOPICS]))]} for r in records(120)]
    for tagger in (plain, convex):
        tagger.learn(noisy)
    assert plain.loss_and_bound is plain.view().loss_and_bound is None
    view, told = convex.view(), convex.loss_and_bound
    assert told == (convex.learner.squared_loss_, convex.learner.bound_)
    assert 0 < told[0] <= told[1]
    convex.learn(noisy)
    assert view.loss_and_bound == told != convex.loss_and_bound


# ---------------------------------------------------------------------- known ids


def test_a_known_id_is_a_correction():
    tagger, some = Tagger(), records(60)
    tagger.learn(some)
    same = some[7]
    assert tagger.learn(same) == Learnt(unchanged=1)
    assert tagger.learn(same | {"y": ["food", "new"]}) == Learnt(corrected=1)
    assert tagger.n_items == 60
    assert tagger.learner.item("r7")[1] == {"food", "new"}
    assert set(tagger.suggest({"text": same["text"]}).tags) == {"food", "new"}
    why = tagger.explain({"text": same["text"]})
    assert why.corrected
    assert (why.copy_of.id, why.copy_of.text) == ("r7", same["text"])
    near = {n.id: n.distance for n in tagger.explain({"text": same["text"] + " maybe"}).neighbors}
    assert near["r7"] > 0
    assert tagger.explain({"text": same["text"] + " maybe"}).copy_of.distance == near["r7"]


@pytest.mark.parametrize("made", ["1", "?"])
def test_the_same_table_learnt_again_changes_nothing(made):
    table = f"id,f,g,a,b\ni,1,2,1,0\nj,2,3,0,{made}\nk,5,1,0,0\n".encode()
    tagger = Tagger(KNN(1))

    def learn(table):
        (batch,) = iter_csv(io.BytesIO(table), labels=["a", "b"], ids="id")
        return tagger.learn(batch)

    assert learn(table) == Learnt(new=3)
    before = state(tagger)
    assert learn(table) == Learnt(unchanged=3)
    assert_same_state(state(tagger), before)
    # what was not known is told
    assert learn(table.replace(b"?", b"0")) == Learnt(
        corrected=made == "?", unchanged=3 - (made == "?")
    )
    assert tagger.learner.item("j").unknown == set()


def test_columns_must_be_named_where_labels_are_not_known():
    tagger = Tagger(KNN(1))
    with pytest.raises(ValueError, match="label_names must be given"):
        tagger.learn(Batch(np.eye(2), [("a",), ()], unknown=[("b",), ()]))
    assert tagger.featurizer is None


def test_a_number_for_an_id_is_that_of_an_item_without_one_however_they_are_cut():
    some = [{"id": "a", "text": "sea", "y": ["x"]}, {"text": "sun", "y": ["y"]}]
    some += [{"id": 1, "text": "ski", "y": ["z"]}, {"text": "surf", "y": ["x"]}]
    whole, other = Tagger(KNN(1)), Tagger(KNN(1))
    assert whole.learn(some) == Learnt(new=3, corrected=1)
    for record in some:
        other.learn(record)
    assert whole.ids == other.ids == ["a", 1, 3]
    assert_same_state(state(other), state(whole))


def test_a_known_id_with_another_text_takes_the_place_of_the_old_item():
    tagger, some = Tagger(KNN(n_neighbors=1)), records(30)
    tagger.learn(some)
    other = {"id": "r7", "text": "quite another matter", "y": ["else"]}
    assert tagger.learn(other) == Learnt(corrected=1)
    assert sum(tagger.counts.values()) == 1 + sum(len(r["y"]) for r in some if r["id"] != "r7")
    why = tagger.explain(other)
    assert (why.neighbors[0].id, why.neighbors[0].text) == ("r7", "quite another matter")
    assert tagger.suggest(other).tags == ["else"]
    assert tagger._n_characters == sum(map(len, tagger._texts.values()))


def test_an_id_that_is_repeated_within_one_call_is_a_correction_too():
    some = records(12)
    twice = [*some, some[3] | {"y": ["late"]}, some[4], {"id": "r3", "text": "other", "y": ["x"]}]
    one, other = small(), small()
    assert one.learn(twice) == Learnt(new=12, corrected=2, unchanged=1)
    for record in twice:
        other.learn(record)
    assert_same_state(state(one), state(other))


def test_ids_may_be_given_to_some_records_only():
    tagger = small()
    some = [{k: v for k, v in r.items() if k != "id" or i % 2} for i, r in enumerate(records(30))]
    assert tagger.learn(some) == Learnt(new=30)
    assert tagger.learn(some[1] | {"y": ["x"]}) == Learnt(corrected=1)
    assert tagger.learner.has_item("r29")
    assert tagger.learner.has_item(28)


def test_corrections_hold_at_once():
    tagger, some = Tagger(), records(60)
    tagger.learn(some)
    tagger.relabel("r5", ["a", " b "])
    assert set(tagger.suggest(some[5]).tags) == {"a", "b"}
    tagger.forget("r5")
    assert not tagger.learner.has_item("r5")
    assert "r5" not in tagger._texts
    with pytest.raises(KeyError, match="no stored item is called 'r5'"):
        tagger.forget("r5")


def test_tags_are_renamed_merged_and_removed():
    tagger = Tagger(KNN(n_neighbors=3))
    tagger.learn(records(60))
    before = tagger.counts
    tagger.rename("sea", "ocean")
    assert tagger.counts == {("ocean" if t == "sea" else t): n for t, n in before.items()}
    tagger.merge(["ocean", "snow"], "outdoors")
    assert set(tagger.tags) == {"outdoors", "food"}
    tagger.remove("food")
    assert tagger.tags == ["outdoors"]
    for call in (
        lambda: tagger.rename("outdoors", " "),
        lambda: tagger.rename("nothing", "x"),
        lambda: tagger.merge(["nothing"], "x"),
        lambda: tagger.merge("outdoors", "x"),
        lambda: tagger.remove("nothing"),
        lambda: tagger.relabel("r1", "outdoors"),
        lambda: tagger.relabel("r1", [""]),
        lambda: tagger.relabel("r1", [3]),
    ):
        kept = state(tagger)
        with pytest.raises(ValueError, match="must"):
            call()
        assert_same_state(state(tagger), kept)


def test_a_learner_that_keeps_no_items_says_so():
    tagger = Tagger(OLANSGD(first_block=5))
    tagger.learn([{"x": [float(i % 2), 1.0], "y": ["ab"[i % 2]]} for i in range(30)])
    assert tagger.suggest({"x": [1.0, 1.0]}).known
    for call in (
        lambda: tagger.relabel(1, ["a"]),
        lambda: tagger.forget(1),
        lambda: tagger.merge(["a"], "b"),
        tagger.refit,
    ):
        with pytest.raises(ValueError, match=r"keeps no items.*use OML or KNN"):
            call()
    with pytest.raises(ValueError, match="use OML or KNN"):
        tagger.explain({"x": [1.0, 1.0]})
    tagger.rename("a", "A")
    assert tagger.tags == ["A", "b"]


# ---------------------------------------------------------------------- texts


def test_texts_are_kept_for_explanations_if_asked():
    some = records(40)
    for keep in (True, False):
        tagger = Tagger(KNN(n_neighbors=3), keep_text=keep)
        tagger.learn(some)
        texts = {r["id"]: r["text"] for r in some}
        for near in tagger.explain(some[3]).neighbors:
            assert near.text == (texts[near.id] if keep else None)


def test_with_a_window_texts_of_lost_items_go():
    tagger = Tagger(KNN(window=20))
    some = records(900)
    for start in range(0, 900, 50):
        tagger.learn(some[start : start + 50])
    assert len(tagger._texts) <= 2 * 20 + 256 + 50
    assert {f"r{i}" for i in range(880, 900)} <= set(tagger._texts)
    assert tagger._n_characters == sum(map(len, tagger._texts.values()))


def test_the_texts_that_are_saved_do_not_depend_on_the_cuts(tmp_path):
    some, files = records(281, named=False), []
    for cuts in ([0, 281], [0, 270, 281]):  # the second one looks for lost items twice
        tagger = Tagger(KNN(window=1))
        for first, last in itertools.pairwise(cuts):
            tagger.learn(some[first:last])
        tagger.save(tmp_path / "m.tgs")
        files.append((tmp_path / "m.tgs").read_bytes())
    assert files[0] == files[1]


def test_whether_an_id_is_known_does_not_depend_on_the_cuts():
    some = records(60)
    again = [*some[:20], *[r | {"y": ["late"]} for r in some[5:20]], *some[20:50], *some[12:30]]
    whole, other = (Tagger(KNN(window=16)) for _ in range(2))
    counted = whole.learn(again)
    total = Learnt()
    for record in again:
        total += other.learn(record)
    assert total == counted
    assert total.corrected
    assert_same_state(state(other)["learner"], state(whole)["learner"])


def test_an_id_that_the_window_has_lost_may_come_again():
    tagger = Tagger(KNN(window=5, n_neighbors=1))
    some = records(12)
    tagger.learn(some)
    view = tagger.view()
    assert tagger.learn(some[0] | {"text": "come again", "y": ["back"]}) == Learnt(new=1)
    assert tagger.explain({"text": "come again"}).neighbors[0].text == "come again"
    assert tagger._n_characters == sum(map(len, tagger._texts.values()))
    assert view._texts["r0"] == some[0]["text"]


# ---------------------------------------------------------------------- bad records


BAD = [
    {"y": ["a"]},
    {"text": 3, "y": ["a"]},
    {"text": "fine", "y": "a tag"},
    {"text": "fine", "y": [""]},
    {"text": "fine", "y": [3]},
    {"text": "both", "x": [1.0], "y": ["a"]},
    {"x": [1.0, 2.0], "y": ["a"]},  # numbers among texts
    {"text": "half \ud800 a character", "y": ["a"]},
    ["not", "a", "mapping"],
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("before", [0, 30])
def test_a_list_with_a_bad_record_changes_nothing(bad, before):
    tagger, some = Tagger(KNN()), records(60)
    if before:
        tagger.learn(some[:before])
    kept = state(tagger)
    with pytest.raises(ValueError, match=r"record 5|must"):
        tagger.learn([*some[before : before + 5], bad])
    assert_same_state(state(tagger), kept)
    tagger.learn(some[before:])
    assert tagger.n_items == 60


@pytest.mark.parametrize("x", [[1.0], [1.0, 2.0, 3.0], [1.0, float("nan")], [1.0, 1e30]])
@pytest.mark.parametrize("before", [0, 3])
def test_bad_numbers_change_nothing(x, before):
    tagger = Tagger(KNN())
    good = [{"x": [float(i), 1.0], "y": ["a"]} for i in range(6)]
    if before:
        tagger.learn(good[:before])
    kept = state(tagger)
    with pytest.raises(ValueError, match="must"):
        tagger.learn([good[5], {"x": x, "y": ["b"]}])
    assert_same_state(state(tagger), kept)
    if before:
        with pytest.raises(ValueError, match=r"must|features"):
            tagger.suggest({"x": x})


def test_a_query_must_be_a_record():
    tagger = Tagger(KNN())
    tagger.learn(records(5))
    for bad in ({}, {"text": 3}, {"x": [1.0]}, [3], 3):
        with pytest.raises((DataError, ValueError), match="must"):
            tagger.suggest(bad)


# ---------------------------------------------------------------------- views


def test_a_view_stays_while_the_tagger_learns_forgets_and_renames():
    tagger, some = Tagger(), records(60)
    tagger.learn(some[:40])
    view, asked = tagger.view(), [{"text": r["text"]} for r in some]
    told, why, tags = view.suggest(asked), view.explain(asked[7]), view.tags
    assert told == tagger.suggest(asked)
    tagger.learn(some[40:])
    tagger.learn(some[7] | {"text": "something else", "y": ["new"]})
    tagger.relabel("r3", ["newer"])
    tagger.forget("r8")
    tagger.rename("sea", "ocean")
    tagger.remove("food")
    assert view.suggest(asked) == told
    assert view.explain(asked[7]) == why
    assert (view.tags, view.n_items) == (tags, 40)
    assert not hasattr(view, "learn")


def test_readers_beside_a_learning_thread_get_the_answers_of_replayed_states():
    some, asked = records(300, seed=5), [{"text": r["text"]} for r in records(5, seed=6)]
    tagger = small()
    tagger.learn(some[:10])
    views, answers, failures = [tagger.view()], [], []
    done = threading.Event()

    def read():
        try:
            while not done.is_set():
                view = views[-1]
                answers.append((view.n_items, view.suggest(asked), view.tags))
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for start in range(10, 300, 10):  # the one who learns hands out the views
            tagger.learn(some[start : start + 10])
            views.append(tagger.view())
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not failures
    for n, told, tags in answers[:: max(1, len(answers) // 10)]:
        again = small()
        again.learn(some[:n])
        assert again.suggest(asked) == told
        assert again.tags == tags


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("learner", [lambda: OML(random_state=0), lambda: KNN(window=30)])
@pytest.mark.parametrize("keep", [True, False])
def test_what_is_saved_and_opened_goes_on_the_same(tmp_path, learner, keep):
    some, path = records(90, seed=7), tmp_path / "tagger.ts"
    tagger = Tagger(learner(), keep_text=keep)
    tagger.learn(some[:60])
    tagger.relabel("r50", ["new"])
    tagger.forget("r51")
    tagger.extra["note"] = "kept too"
    tagger.save(path)
    again = Tagger.open(path)
    assert_same_state(state(again), state(tagger))
    assert again.extra == {"note": "kept too"}
    assert again.keep_text == keep
    for one in (tagger, again):
        one.learn([*some[60:], some[59] | {"y": ["newer"]}])
    assert_same_state(state(again), state(tagger))
    asked = {"text": "swim in winter"}
    assert again.suggest(asked) == tagger.suggest(asked)
    assert again.explain(asked) == tagger.explain(asked)


def test_a_model_without_a_tagger_is_opened_as_one(tmp_path):
    X = np.array([[0.0, 1.0], [1.0, 0.0]] * 5)
    save(KNN(n_neighbors=1).partial_fit(X, [{"a"}, {"b"}] * 5), tmp_path / "model.ts")
    tagger = Tagger.open(tmp_path / "model.ts")
    assert isinstance(tagger.featurizer, Columns)
    assert tagger.suggest({"x": [1.0, 0.0]}).tags == ["b"]


def test_a_file_that_is_no_tagger_is_refused(tmp_path):
    path = tmp_path / "tagger.ts"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"tagger\.ts"):
        Tagger.open(path)
