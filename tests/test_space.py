"""The state of V: how it grows, turns, encodes, and is saved; its rounds are in test_metric."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tagstream.labels.read import Labels
from tagstream.metric.space import FULL_RANK, Space
from tagstream.store.sums import LocalExamples


def labels(rng, n, q, share=0.4):
    return Labels((rng.random((n, q)) < share).astype(np.uint8), None)


def played(q=5, n=60, d=None, seed=0, encodes=True):
    """A space that has learnt something."""
    rng = np.random.default_rng(seed)
    space = Space(d)
    space.grow(q)
    mine, theirs = labels(rng, n, q), labels(rng, n, q)
    space.turn(LocalExamples.of(np.zeros((n, 1), np.float32), mine))
    space.play(rng.random((n, q)), mine, theirs, np.zeros(n, bool), step_max=0.05)
    if encodes:
        space.renew()
    return space


def distances(space, Z):
    codes = space.encode(Z).astype(float) * space.scale
    return np.linalg.norm(codes[:, None] - codes[None], axis=2)


@pytest.mark.parametrize("d", [None, 3, 9])
def test_v_starts_as_an_isometry(d):
    space = Space(d)
    space.grow(6)
    expected = np.eye(6)[:, : 6 if d is None else min(d, 6)]
    np.testing.assert_array_equal(space.V, expected)
    assert space.d == expected.shape[1]


def test_by_default_v_is_square_up_to_a_limit():
    space = Space()
    space.grow(FULL_RANK + 20)
    assert space.V.shape == (FULL_RANK + 20, FULL_RANK)


@pytest.mark.parametrize("d", [None, 3])
def test_growth_changes_no_distance_and_keeps_what_was_learnt(d):
    space, Z = played(d=d), np.random.default_rng(1).random((9, 5))
    before, V = distances(space, Z), space.V.copy()
    space.grow(8)
    np.testing.assert_array_equal(space.V[:5, : V.shape[1]], V)
    wide = np.pad(Z, ((0, 0), (0, 3)))
    np.testing.assert_allclose(distances(space, wide), before, rtol=1e-6)
    if d is None:  # a new label has a direction of its own
        np.testing.assert_array_equal(space.V[5:, 5:], np.eye(3))
        assert not space.V[5:, :5].any()


def test_growing_by_nothing_changes_nothing():
    space = played()
    before = space.dump()
    space.grow(5)
    for name, value in space.dump().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize(("d", "kept"), [(None, [4, 0, 2]), (3, [4, 0, 2, 1])])
def test_labels_that_are_left_out_take_their_rows_with_them(d, kept):
    space = played(d=d)
    V = space.V.copy()
    space.keep(kept)
    np.testing.assert_array_equal(space.V, V[np.ix_(kept, kept)] if d is None else V[kept])
    assert space.V.shape == space.basis.shape == space.codec.shape
    space.grow(6)
    assert space.V.shape == (6, 6 if d is None else 3)


@pytest.mark.parametrize("kept", [[4, 0, 2], [3], []])
def test_a_narrow_metric_with_a_direction_for_every_label_starts_anew(kept):
    space = played(d=3)
    space.keep(kept)
    np.testing.assert_array_equal(space.V, np.eye(len(kept)))
    space.grow(4)
    np.testing.assert_array_equal(space.V, np.eye(4)[:, :3])


@pytest.mark.parametrize("d", [None, 3])
def test_all_labels_may_go_and_others_come(d):
    space = played(d=d)
    space.keep([])
    assert space.V.shape == (0, 0)
    space.grow(2)
    np.testing.assert_array_equal(space.V, np.eye(2))


def test_codes_are_v_times_z_though_v_is_tiny_or_huge():
    rng = np.random.default_rng(2)
    Z = rng.random((7, 4))
    for power in (-300, 0, 300):
        space = Space()
        space.grow(4)
        space.V = rng.normal(size=(4, 4)) * 2.0**power
        space.renew()
        codes = space.encode(Z)
        assert codes.dtype == np.float32
        assert np.isfinite(codes).all()
        np.testing.assert_allclose(codes.astype(float) * space.scale, Z @ space.V, rtol=1e-5)


@pytest.mark.exact
def test_the_code_of_an_item_does_not_depend_on_the_others():
    space, Z = played(), np.random.default_rng(3).random((31, 5))
    whole = space.encode(Z)
    for i in range(31):
        np.testing.assert_array_equal(space.encode(Z[i : i + 1])[0], whole[i])


def test_codes_are_made_with_the_copy_until_it_is_renewed():
    space, Z = played(), np.random.default_rng(4).random((6, 5))
    before = space.encode(Z)
    space.V *= 3
    np.testing.assert_array_equal(space.encode(Z), before)
    space.renew()
    np.testing.assert_allclose(space.encode(Z) * space.scale, Z @ space.V, rtol=1e-5)


@pytest.mark.exact
def test_rounds_do_not_depend_on_how_they_are_cut():
    rng = np.random.default_rng(5)
    Z, mine, theirs = rng.random((50, 5)), labels(rng, 50, 5), labels(rng, 50, 5)
    alone = rng.random(50) < 0.1
    made = []
    for cuts in ([], [1, 2, 30], range(1, 50)):
        space = Space()
        space.grow(5)
        for part in np.split(np.arange(50), cuts):
            mine_now, theirs_now = Labels(mine.Y[part], None), Labels(theirs.Y[part], None)
            space.play(Z[part], mine_now, theirs_now, alone[part], step_max=0.1)
        made.append(space.dump())
    for other in made[1:]:
        for name, value in other.items():
            np.testing.assert_array_equal(value, made[0][name])


def test_a_snapshot_stays_while_its_owner_learns():
    space, Z = played(), np.random.default_rng(6).random((6, 5))
    picture = space.snapshot()
    before, codes = copy.deepcopy(picture.dump()), picture.encode(Z)
    rng = np.random.default_rng(7)
    space.play(
        rng.random((9, 5)), labels(rng, 9, 5), labels(rng, 9, 5), np.zeros(9, bool), step_max=1.0
    )
    space.renew()
    space.grow(7)
    space.keep([1, 2])
    np.testing.assert_array_equal(picture.encode(Z), codes)
    for name, value in picture.dump().items():
        if name != "V":  # which rounds change in place, and readers do not look at
            np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("d", [None, 3])
@pytest.mark.parametrize("encodes", [False, True])
def test_what_is_dumped_and_loaded_is_the_same(d, encodes):
    space = played(d=d, encodes=encodes)
    again = Space(d)
    again.load(copy.deepcopy(space.dump()), 5, encodes=encodes)
    for name, value in again.dump().items():
        np.testing.assert_array_equal(value, space.dump()[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("V", np.zeros((4, 5))),
        ("V", np.zeros((5, 6))),
        ("V", np.full((5, 5), 1e300)),
        ("V", np.full((5, 5), np.nan)),
        ("basis", np.zeros((5, 4))),
        ("codec", np.zeros((0, 0))),
        ("codec", np.zeros((5, 5), np.float32)),
        ("exponent", 209652396),
        ("exponent", 1.5),
        ("n_updates", "many"),
        ("loss", float("nan")),
        ("cumulative_loss", -1.0),
    ],
)
def test_a_state_of_no_meaning_is_refused(name, value):
    state = played().dump() | {name: value}
    with pytest.raises(ValueError, match="must"):
        Space().load(state, 5, encodes=True)
