"""What a tagger knows of stored items: doubts, candidates, refusals, exclusive tags."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shell import posts
from tagstream import KNN, OML, DataError, Tagger


def small(n=150, seed=0, **options):
    tagger = Tagger(OML(random_state=0, **options))
    tagger.learn(posts(n, seed))
    return tagger


@pytest.fixture(scope="module")
def spoilt():
    """Return a tagger with three items whose tags are wrong, and their ids."""
    records = posts(200, seed=1)
    other = {"sea": "code", "food": "sea", "code": "food"}
    wrong = [r for r in records if len(r["y"]) == 1][:3]
    for record in wrong:
        record["y"] = [other[record["y"][0]]]
    tagger = Tagger(OML(random_state=0))
    tagger.learn(records)
    return tagger, {record["id"]: record["y"][0] for record in wrong}


# ---------------------------------------------------------------------- review
def test_items_with_wrong_tags_come_first(spoilt):
    tagger, wrong = spoilt
    found = tagger.review(3)
    assert {doubt.id for doubt in found} == {*wrong}
    for doubt in found:
        assert doubt.remove == (wrong[doubt.id],)
        assert len(doubt.add) == 1
        assert doubt.scores[doubt.add[0]] > doubt.scores[doubt.remove[0]]
        assert doubt.id not in [near.id for near in doubt.neighbors]
        assert doubt.text
        assert doubt.neighbors[0].text
    assert [d.doubt for d in found] == sorted((d.doubt for d in found), reverse=True)


def test_a_view_reviews_as_the_tagger_does_and_nothing_changes(spoilt):
    tagger, _ = spoilt
    before = repr(tagger.learner.to_state())
    assert tagger.view().review(5) == tagger.review(5)
    assert repr(tagger.learner.to_state()) == before


def test_progress_is_told(spoilt):
    told = []
    spoilt[0].review(1, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (200, 200)


def test_what_was_refused_is_not_proposed_again():
    tagger = small()
    tagger.relabel("p3", [])
    (doubt,) = [d for d in tagger.review(200) if d.id == "p3"]
    for tag in doubt.add:
        tagger.refuse(tag, ["p3"])
    assert not any(set(d.add) & set(doubt.add) for d in tagger.review(200) if d.id == "p3")


def test_a_learner_without_items_says_so():
    from tagstream import OLANSGD

    tagger = Tagger(OLANSGD())
    tagger.learn(posts(20))
    with pytest.raises(ValueError, match="must keep items"):
        tagger.review()
    with pytest.raises(ValueError, match="must have learnt"):
        Tagger().review()


# ---------------------------------------------------------------------- candidates
def test_items_that_lost_a_tag_are_found_again():
    tagger = small(200)
    had = [r["id"] for r in posts(200) if "sea" in r["y"]]
    lost = had[::10]
    for name in lost:
        tagger.relabel(name, {*tagger.learner.item(name).labels} - {"sea"})
    found = tagger.candidates("sea", len(lost))
    assert len({c.id for c in found} & {*lost}) >= len(lost) - 1
    assert all("sea" not in c.tags for c in found)
    assert all("sea" in near.labels for c in found for near in c.why)
    assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)


def test_candidates_are_accepted_and_refused_many_at_once():
    tagger = small(100)
    found = [r["id"] for r in posts(100) if "sea" not in r["y"]][:6]
    n = tagger.counts["sea"]
    assert tagger.accept("sea", found[:3]) == 3
    assert tagger.accept("sea", found[:3]) == 0
    assert tagger.refuse("sea", found[3:]) == 3
    assert tagger.refuse("sea", found[3:]) == 0
    assert tagger.counts["sea"] == n + 3
    assert not {c.id for c in tagger.candidates("sea", 100)} & {*found}


def test_an_unknown_tag_or_item_changes_nothing():
    tagger = small(60)
    with pytest.raises(ValueError, match="tag must be one that was learnt, got 'sae'"):
        tagger.candidates("sae")
    before = repr(tagger.learner.to_state())
    with pytest.raises(KeyError, match="nobody"):
        tagger.accept("sea", ["p1", "nobody"])
    assert repr(tagger.learner.to_state()) == before


def test_knn_knows_too():
    tagger = Tagger(KNN(5))
    tagger.learn(posts(80))
    tagger.relabel("p7", [])
    assert "p7" in [d.id for d in tagger.review(80)]


# ---------------------------------------------------------------------- "not this tag"
def test_a_refused_tag_is_not_offered_until_the_text_changes():
    tagger = small()
    record = {"id": "n1", "text": "swim beach wave sand tide"}
    assert tagger.suggest(record).tags == ["sea"]
    assert tagger.learn({**record, "y": ["food"], "no": ["sea"]}).new == 1
    told = tagger.suggest(record)
    assert "sea" not in told.tags
    assert "sea" in tagger.suggest({**record, "id": "n2", "text": "swim beach wave"}).tags
    again = {**record, "text": "swim beach wave sand"}
    assert tagger.learn({**again, "y": []}).corrected == 1
    assert tagger._policy.refused == {}


def test_refused_alone_leaves_the_other_tags_unknown():
    tagger = small()
    assert tagger.learn({"id": "n1", "text": "swim beach", "no": ["sea"]}).new == 1
    item = tagger.learner.item("n1")
    assert item.labels == set()
    assert item.unknown == {"food", "code"}


def test_refused_alone_keeps_what_is_known_of_a_stored_item():
    tagger = small()
    record = posts(150)[0]
    assert tagger.learn({**record, "y": None, "no": record["y"][:1]}).corrected == 1
    item = tagger.learner.item(record["id"])
    assert item.labels == {*record["y"][1:]}
    assert item.unknown == set()


def test_a_refusal_counts_as_a_correction_and_only_once():
    tagger = small()
    record = next(r for r in posts(150) if r["y"] == ["sea"])
    refusing = {**record, "no": ["food"]}
    assert tagger.learn(refusing).corrected == 1
    assert tagger.learn(refusing).unchanged == 1
    assert tagger.learn({**record, "y": ["sea", "food"]}).corrected == 1
    assert tagger._policy.refused == {}  # it was given after all


def test_a_tag_in_both_is_an_error_and_changes_nothing():
    tagger = small(60)
    before = repr(tagger.learner.to_state())
    bad = {"id": "b", "text": "tide", "y": ["sea"], "no": ["sea"]}
    with pytest.raises(DataError, match="record 1: a tag must be in y or in no, got 'sea' in both"):
        tagger.learn([*posts(1, first=900), bad])
    with pytest.raises(DataError, match="no must be a list of strings"):
        tagger.learn({"text": "tide", "y": [], "no": [3]})
    assert repr(tagger.learner.to_state()) == before


def test_refusals_survive_rename_merge_a_file_and_a_view(tmp_path):
    tagger = small()
    view = tagger.view()
    record = posts(150)[0]
    tagger.refuse("sea", [record["id"]])
    assert view._policy.refused == {}
    tagger.rename("sea", "ocean")
    tagger.save(tmp_path / "m.tgs")
    again = Tagger.open(tmp_path / "m.tgs")
    assert again._policy.refused == {record["id"]: ("ocean",)}
    again.merge(["ocean", "food"], "both")
    assert again._policy.refused == {record["id"]: ("both",)}
    again.remove("both")
    assert again._policy.refused == {}


def test_how_records_with_refusals_are_cut_does_not_matter():
    records = posts(80)
    for i in (5, 30, 31):
        records[i]["no"] = [t for t in ("sea", "food", "code") if t not in records[i]["y"]][:1]
    records[40] = {"id": "p40", "text": records[40]["text"], "no": ["sea"]}
    one, other = Tagger(OML(random_state=0)), Tagger(OML(random_state=0))
    one.learn(records)
    for record in records:
        other.learn(record)
    assert repr(one.learner.to_state()) == repr(other.learner.to_state())
    assert one._policy.to_state() == other._policy.to_state()


# ---------------------------------------------------------------------- exclusive tags
def test_only_the_highest_of_exclusive_tags_is_suggested():
    tagger = small()
    record = {"text": "swim beach wave soup bread cook"}
    assert {*tagger.suggest(record, decide=0.2).tags} >= {"sea", "food"}
    tagger.exclusive(["sea", "food"])
    told = tagger.suggest(record, decide=0.2)
    best = max(("sea", "food"), key=told.scores.__getitem__)
    assert [tag for tag in told.tags if tag in ("sea", "food")] == [best]
    tagger.not_exclusive(["sea"])
    assert {*tagger.suggest(record, decide=0.2).tags} >= {"sea", "food"}


def test_a_record_with_two_of_them_is_refused_naming_both():
    tagger = small(60)
    tagger.exclusive(["sea", "food", "code"])
    before = repr(tagger.learner.to_state())
    with pytest.raises(DataError, match="at most one of sea and food, got both"):
        tagger.learn([{"text": "a", "y": ["sea"]}, {"text": "b", "y": ["food", "sea"]}])
    with pytest.raises(DataError, match="at most one of sea and code"):
        tagger.relabel("p1", ["sea", "code"])
    assert repr(tagger.learner.to_state()) == before


def test_the_message_says_which_record_has_two_of_them(run):
    tagger = small(60)
    tagger.exclusive(["sea", "food"])
    both = {"text": "swim soup", "y": ["sea", "food"]}
    with pytest.raises(DataError, match=r"^item 'n7' must have at most one of sea and food"):
        tagger.learn([{"text": "a", "y": []}, {"id": "n7", **both}])
    with pytest.raises(DataError, match=r"^the item 'swim soup' must have at most one"):
        tagger.learn(both)


def test_review_shows_items_with_two_of_them_first_and_proposes_one_at_most():
    tagger = small()
    both = [name for name in tagger.ids if {"sea", "food"} <= {*tagger.item(name).tags}]
    assert len(both) > 2
    plain = tagger.review(1000)
    tagger.exclusive(["sea", "food"])
    found = tagger.review(1000)
    assert {one.id for one in found[: len(both)]} == {*both}
    for one in found:
        assert not {"sea", "food"} <= {*one.tags, *one.add} - {*one.remove}
        assert one.doubt >= 0
    doubts = [one.doubt for one in found[len(both) :]]
    assert doubts == sorted(doubts, reverse=True)
    tagger.not_exclusive(["sea", "food"])
    assert tagger.review(1000) == plain


def test_a_tag_that_no_other_item_has_does_not_look_wrong():
    tagger = small()
    tagger.learn({"id": "only", "text": "a quiet evening", "y": ["chess"]})
    (found,) = [one for one in tagger.review(1000) if one.id == "only"] or [None]
    assert found is None or "chess" not in found.remove
    one = Tagger()
    one.learn({"text": "low tide", "y": ["sea"]})
    assert one.review() == []


def test_who_has_a_tag_that_excludes_another_is_no_candidate_for_it():
    tagger = small()
    both = [name for name in tagger.ids if {"sea", "food"} <= {*tagger.item(name).tags}]
    tagger.relabel(both[0], ["food"])
    tagger.relabel(both[1], [])
    assert {*both[:2]} <= {one.id for one in tagger.candidates("sea", 1000)}
    tagger.exclusive(["sea", "food"])
    found = tagger.candidates("sea", 1000)
    assert both[0] not in {one.id for one in found}
    assert both[1] in {one.id for one in found}
    assert tagger.accept("sea", [found[0].id]) == 1


def test_groups_follow_renames_and_merges_and_are_saved(tmp_path):
    tagger = small(60)
    tagger.exclusive(["sea", "food", "code"])
    tagger.rename("sea", "ocean")
    tagger.save(tmp_path / "m.tgs")
    again = Tagger.open(tmp_path / "m.tgs")
    assert again.exclusive_groups == [("ocean", "food", "code")]
    again.merge(["food", "code"], "code")
    assert again.exclusive_groups == [("ocean", "code")]
    again.remove("code")
    assert again.exclusive_groups == []
    with pytest.raises(ValueError, match="at least two different tags"):
        again.exclusive(["ocean", "ocean"])


# ---------------------------------------------------------------------- the command line
def test_commands_check_list_accept_and_refuse(tmp_path, capsys):
    import json

    from shell import SMALL, write_jsonl
    from tagstream.cli.app import run

    records = posts(120, seed=1)
    wrong = records[5]
    wrong["y"] = ["code"] if wrong["y"] != ["code"] else ["sea"]
    model = str(tmp_path / "m.tgs")
    assert run(["learn", write_jsonl(tmp_path / "p.jsonl", records), "-m", model, *SMALL]) == 0
    capsys.readouterr()
    assert run(["check", model, "-n", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == "p5"
    assert run(["check", model]) == 0
    assert "should go" in capsys.readouterr().out
    assert run(["tags", "refuse", model, wrong["y"][0], "p5"]) == 0
    assert "refused for 1 item" in capsys.readouterr().err
    assert run(["tags", "accept", model, "sea", "p5", "p6"]) == 0
    assert run(["tags", "candidates", model, "sea", "--json"]) == 0
    assert "p5" not in [entry["id"] for entry in json.loads(capsys.readouterr().out)]
    assert run(["tags", "exclusive", model, "food", "code"]) == 0
    assert run(["tags", "exclusive", model]) == 0
    assert "food, code" in capsys.readouterr().out
    assert run(["tags", "candidates", model, "sae"]) == 1
    assert "must be one that was learnt" in capsys.readouterr().err
    assert run(["tags", "accept", model, "sea", "nobody"]) == 1
    assert "got 'nobody'" in capsys.readouterr().err


# ---------------------------------------------------------------------- what to tag next
def test_halves_take_turns_and_near_copies_wait():
    from tagstream.knows.next_items import is_random, order_items

    tagger = small(120)
    new = [{"id": r["id"], "text": r["text"]} for r in posts(60, seed=8, first=500)]
    new.insert(1, {**new[0], "id": "twin"})
    places = tagger.next_items(new, 40)
    assert len({*places}) == 40
    halves = [is_random(new[i]["id"]) for i in places]
    assert abs(sum(halves) - 20) <= 2
    assert not {0, 1} <= {*places[:30]}  # nearly the same
    told = tagger.suggest(new)
    likely = tagger.next_items(new, 5, "tag:sea")
    assert told[likely[0]].scores["sea"] == max(one.scores.get("sea", 0) for one in told)
    assert tagger.next_items(new[2:5], 3, "arrival") == [0, 1, 2]
    with pytest.raises(ValueError, match="order must be one of mixed"):
        tagger.next_items(new, 5, "best")
    with pytest.raises(ValueError, match="tag that was learnt"):
        tagger.next_items(new, 5, "tag:sae")
    ids, p = [*range(200)], np.full((200, 1), 0.5)
    one, other = (order_items(ids, p, ["a"], [n], "random") for n in (1, 9))
    assert one == other != ids


def test_next_command_prints_records(tmp_path, capsys):
    import json

    from shell import SMALL, records_of, write_jsonl
    from tagstream.cli.app import run

    model = str(tmp_path / "m.tgs")
    run(["learn", write_jsonl(tmp_path / "p.jsonl", posts(60)), "-m", model, *SMALL])
    new = [{"id": r["id"], "text": r["text"]} for r in posts(30, seed=8, first=500)]
    capsys.readouterr()
    path = write_jsonl(tmp_path / "n.jsonl", new)
    assert run(["next", path, "-m", model, "-n", "5"]) == 0
    found = records_of(capsys.readouterr().out)
    assert len(found) == 5
    assert all(json.dumps(r["text"]) and "labels" in r for r in found)
    assert run(["next", path, "-m", model, "--order", "best"]) == 1


# ---------------------------------------------------------------------- why, in words
def test_words_that_speak_for_and_against_are_named():
    tagger = small(200)
    why = tagger.explain({"text": "swim beach wave the soup"})
    assert "sea" in why.words
    told = why.words["sea"]
    assert max(told, key=told.get) in ("swim", "beach", "wave")
    assert told.get("soup", -1) < 0
    assert "the" not in [word for word, change in told.items() if change > 0.5]
    said = str(why)
    assert said.startswith("sea (")
    assert "for it: " in said
    assert "nearest items have it" in said


def test_named_values_are_left_out_by_their_names():
    tagger = Tagger(OML(random_state=0))
    tagger.learn([{"x": {"wind": i % 2, "size": 1.0}, "y": ["sail"] * (i % 2)} for i in range(60)])
    why = tagger.explain({"x": {"wind": 1, "size": 1.0}})
    assert why.words["sail"]["wind"] > 1
    dense = Tagger(OML(random_state=0))
    dense.learn([{"x": [i % 2, 1.0], "y": ["sail"] * (i % 2)} for i in range(60)])
    assert dense.explain({"x": [1, 1.0]}).words == {}
    assert "sail" in str(dense.explain({"x": [1, 1.0]}))


# ---------------------------------------------------------------------- two tags that are one
def test_a_tag_that_was_split_at_random_is_found():
    records = posts(240, seed=2)
    for i, record in enumerate(records):
        if i % 3 == 0:
            record["y"] = ["ocean" if tag == "sea" else tag for tag in record["y"]]
    tagger = Tagger(OML(random_state=0))
    tagger.learn(records)
    first = tagger.similar_tags(5)[0]
    assert first.pair == ("sea", "ocean")
    assert first.meaning > 0.8 > first.name
    assert first.n_merged == first.counts[0] + first.counts[1] - first.n_both
    assert all(text for some in first.examples.values() for _, text in some)
    assert {*tagger.tags} >= {"sea", "ocean"}  # nothing was merged


def test_tags_that_stand_together_are_two_things():
    records = posts(120, seed=2)
    for record in records:
        if "sea" in record["y"]:
            record["y"] = [*record["y"], "outside"]
    tagger = Tagger(OML(random_state=0))
    tagger.learn(records)
    assert not any({*found.pair} == {"sea", "outside"} for found in tagger.similar_tags(10))


def test_near_copies_with_different_tags_are_a_group():
    tagger = small(80)
    one = posts(80)[3]
    tagger.learn([{**one, "id": "c1", "y": []}, {**one, "id": "c2"}])
    (found, *_) = tagger.duplicates()
    assert {*found.ids} >= {one["id"], "c1", "c2"}
    assert {*found.differing} == {*one["y"]}
    assert 0.9 <= found.similarity <= 1
    tagger.relabel("c1", one["y"])
    assert not any("c1" in group.ids for group in tagger.duplicates())
    assert any("c1" in group.ids for group in tagger.duplicates(conflicting=False))


def test_commands_for_twins_and_copies(tmp_path, capsys):
    from shell import SMALL, write_jsonl
    from tagstream.cli.app import run

    records = posts(60)
    records.append({**records[3], "id": "c1", "y": []})
    model = str(tmp_path / "m.tgs")
    run(["learn", write_jsonl(tmp_path / "p.jsonl", records), "-m", model, *SMALL])
    capsys.readouterr()
    for command in (["tags", "similar", model], ["duplicates", model]):
        assert run(command) == 0
        assert run([*command, "--json"]) == 0
    assert "c1" in capsys.readouterr().out


def test_commands_that_find_nothing_say_so(run):
    line = '{"id": 1, "text": "low tide", "y": ["sea"]}\n'
    assert run("learn", "-", "-m", "m.tgs", stdin=line)[0] == 0
    for command, told in (
        (["check", "m.tgs"], "no item looks wrong\n"),
        (["tags", "candidates", "m.tgs", "sea"], "no other item looks as if it should have sea\n"),
        (["tags", "similar", "m.tgs"], "no two tags look like one\n"),
        (["duplicates", "m.tgs"], "no items are nearly the same and have different tags\n"),
        (["duplicates", "m.tgs", "--all"], "no items are nearly the same\n"),
    ):
        assert run(*command) == (0, "", told)
        assert run(*command, "--quiet") == (0, "", "")
        assert run(*command, "--json") == (0, "[]\n", "")


# ---------------------------------------------------------------------- what nothing is known of
NEW = ["swim beach wave", "a drone fell", "drone battery empty", "repair of a drone", "chess club"]


def test_records_of_which_nothing_is_known_come_in_groups():
    found = small().unfamiliar([{"text": text} for text in NEW])
    assert [group.places for group in found] == [(1, 2, 3), (4,)]
    assert [group.words[:1] for group in found] == [("drone",), ()]
    assert all(0 <= group.score < 0.2 for group in found)
    assert small().unfamiliar([{"text": text} for text in NEW], 1) == found[:1]
    assert small().unfamiliar([]) == []
    assert small().unfamiliar([{"text": ""}])[0].places == (0,)
    every = small().unfamiliar([{"text": text} for text in NEW], least=1.0)
    assert sorted(i for group in every for i in group.places) == [*range(5)]


def test_named_values_and_numbers_have_groups_too():
    for x in ([{"colour": "red"}, {"colour": "blue"}], [[0.0, 5.0], [5.0, 0.0]]):
        tagger = Tagger(OML(random_state=0))
        tagger.learn([{"x": x[0], "y": []}] * 30)
        found = tagger.unfamiliar([{"x": x[1]}, {"x": x[1]}, {"x": x[0]}])
        assert sorted(i for group in found for i in group.places) == [0, 1, 2]


def test_the_command_lists_them(run):
    from shell import SMALL, write_jsonl

    write_jsonl(Path("p.jsonl"), posts(60))
    write_jsonl(Path("new.jsonl"), [{"id": f"n{i}", "text": text} for i, text in enumerate(NEW)])
    assert run("learn", "p.jsonl", "-m", "m.tgs", *SMALL)[0] == 0
    code, out, err = run("unfamiliar", "new.jsonl", "-m", "m.tgs")
    assert (code, err) == (0, "")
    assert "n1, n2, n3" in out
    told = json.loads(run("unfamiliar", "new.jsonl", "-m", "m.tgs", "--json")[1])
    assert [(one["ids"], one["words"][:1]) for one in told] == [
        (["n1", "n2", "n3"], ["drone"]),
        (["n4"], []),
    ]
    write_jsonl(Path("old.jsonl"), [{"text": NEW[0]}])
    told = run("unfamiliar", "old.jsonl", "-m", "m.tgs")
    assert told == (0, "", "something is known of each record\n")


# ---------------------------------------------------------------------- tags over time
def test_there_are_few_false_alarms_and_a_change_is_noticed():
    from tagstream.evidence.honest import Entries
    from tagstream.knows.health import find_alarms

    rng = np.random.default_rng(0)
    n, n_false, delays = 10_000, 0, []
    for rate in (0.05, 0.2, 0.4) * 4:
        hits = (rng.random(n) > rate).astype(np.uint8)
        entries = Entries(np.zeros(n, np.int32), np.full(n, 0.8, np.float32), hits)
        n_false += len(find_alarms(entries, 1).columns)
        turned = entries._replace(hits=np.r_[hits[:5000], 1 - hits[5000:]].astype(np.uint8))
        late = [t - 5000 for t in find_alarms(turned, 1).decisions if t > 5000]
        if rate < 0.4:
            delays.append(late[0])
    assert n_false <= 12  # one in 10,000 decisions
    assert max(delays) < 100


def test_health_tells_quality_with_an_interval_and_drift():
    tagger = small(300)
    found = {one.tag: one for one in tagger.tag_health()}
    sea = found["sea"]
    assert sea.n == tagger.counts["sea"]
    assert sea.decisions > 50
    value, low, high = sea.precision
    assert low <= value <= high
    assert value > 0.8
    assert not sea.drifting
    other = {"sea": "code", "code": "food", "food": "sea"}
    turned = [{**r, "y": [other[tag] for tag in r["y"]]} for r in posts(120, seed=7, first=600)]
    tagger.learn(turned)
    assert any(one.drifting for one in tagger.tag_health())
    assert tagger.view().tag_health() == tagger.tag_health()
