"""Streams whose concepts drift, made on the spot by MOA's meta generator for labels.

A concept is one :class:`MetaMultilabelGenerator` over a generator of MOA (random tree, random RBF
or hyperplane) with a seed of its own.  How concepts follow each other is decided here, as MOA's
``ConceptDriftStream`` does it: item t is drawn from the later concept with the probability
1/(1 + exp(−4(t − t₀)/w)).

* *sudden*: three changes, at ¼, ½ and ¾, width w = 1.
* *gradual*: the same three, w = 500.
* *incremental*: the share of items from the second concept grows in twenty steps, w = 275.
* *recurring*: two concepts that take turns, four times each, w = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from tagstream.paper.results import as_text
from tagstream.paper.table import Table
from tagstream.records.dataset import Dataset

__all__ = ["DRIFTS", "GENERATORS", "STREAMS", "drift_table", "drifting_stream", "stream_named"]

Drift = Literal["none", "sudden", "gradual", "incremental", "recurring"]
DRIFTS: tuple[Drift, ...] = ("sudden", "gradual", "incremental", "recurring")
WIDTHS = {"none": 1.0, "sudden": 1.0, "gradual": 500.0, "incremental": 275.0, "recurring": 1.0}
# A generator's command line by a seed, and the number of labels that MLHAT's streams of it have.
GENERATORS = {
    "tree": ("generators.RandomTreeGenerator -i {seed} -r {seed} -o 10 -u 20", 8),
    "rbf": ("generators.RandomRBFGenerator -i {seed} -r {seed} -a 80 -n 50", 25),
    "hyperplane": ("generators.HyperplaneGenerator -i {seed} -a 30", 8),
}

LENGTH = 50_000
STREAMS = tuple(f"{generator}-{drift}" for generator in GENERATORS for drift in DRIFTS)


def stream_named(name: str, n: int = LENGTH) -> Dataset:
    """Return one of :data:`STREAMS`, such as ``"tree-sudden"``."""
    generator, _, drift = name.partition("-")
    return drifting_stream(generator, cast(Drift, drift), n)


def drift_table(records: Sequence[Mapping[str, Any]], measure: str = "micro_f1") -> Table:
    """Return a measure with plain sums: one row for each learner, one column for each stream."""
    streams = list(dict.fromkeys(record["stream"] for record in records))
    rows: dict[str, dict[str, str]] = {}
    for record in records:
        value = record["result"].get("default", {}).get("plain", {}).get(measure)
        cell = as_text(value) if value is not None and not record["failed"] else "failed"
        rows.setdefault(f"{record['title']} ({record['family']})", {})[record["stream"]] = cell
    lines = [(who, *(cells.get(name, "-") for name in streams)) for who, cells in rows.items()]
    note = "Each item is predicted, then learnt; plain sums over the whole stream."
    return Table(("learner", *streams), tuple(lines), note)


def drifting_stream(
    generator: str,
    drift: Drift,
    n: int = LENGTH,
    *,
    n_labels: int | None = None,
    cardinality: float = 1.5,
    seed: int = 1,
) -> Dataset:
    """Draw a stream that drifts; needs Java and ``tagstream[moa]``.

    Parameters
    ----------
    generator : {"tree", "rbf", "hyperplane"}
    drift : {"none", "sudden", "gradual", "incremental", "recurring"}
    n : int
    n_labels : int, optional
        By default as in the MLHAT study: 8, and 25 for "rbf".
    cardinality : float
        Labels per item that the generator is asked for.
    seed : int

    Returns
    -------
    Dataset
        The same arguments give the same stream.
    """
    if generator not in GENERATORS:
        raise ValueError(f"generator must be one of {', '.join(GENERATORS)}, got {generator!r}")
    if drift not in WIDTHS:
        raise ValueError(f"drift must be one of {', '.join(WIDTHS)}, got {drift!r}")
    command, usual = GENERATORS[generator]
    q = n_labels or usual
    concept = concepts(n, drift, seed)
    made = [
        _generator(command.format(seed=seed + k), q, cardinality, seed + k)
        for k in range(int(concept.max()) + 1)
    ]
    rows = np.array([made[k].nextInstance().getData().toDoubleArray() for k in concept.tolist()])
    return Dataset(
        X=rows[:, q:].copy(),
        Y=rows[:, :q].astype(np.uint8),
        feature_names=tuple(f"x{j}" for j in range(rows.shape[1] - q)),
        label_names=tuple(f"y{j}" for j in range(q)),
        name=f"{generator}-{drift}-{n}",
    )


def concepts(n: int, drift: Drift, seed: int) -> npt.NDArray[np.int64]:
    """Return the concept of each item.

    Examples
    --------
    >>> concepts(8, "sudden", 0).tolist()
    [0, 0, 1, 1, 2, 2, 3, 3]
    >>> concepts(8, "recurring", 0).tolist()
    [0, 1, 0, 1, 0, 1, 0, 1]
    """
    t = np.arange(n)
    rng = np.random.default_rng(seed)
    if drift == "incremental":
        # The share of the second concept grows in twenty steps.
        share = _passed(t, np.linspace(0, n, 22)[1:-1], WIDTHS[drift]).mean(axis=0)
        return np.asarray(rng.random(n) < share, np.int64)
    n_parts = {"none": 1, "sudden": 4, "gradual": 4, "recurring": 8}[drift]
    changes = np.arange(1, n_parts) * n / n_parts
    passed = _passed(t, changes, WIDTHS[drift]) > rng.random((len(changes), n))
    number: npt.NDArray[np.int64] = np.asarray(passed.sum(axis=0), np.int64)
    return number % 2 if drift == "recurring" else number


def _passed(
    t: npt.NDArray[np.int64], changes: npt.NDArray[np.float64], width: float
) -> npt.NDArray[np.float64]:
    """Return for each change the probability that it has happened at each item."""
    from scipy.special import expit

    # Half an item earlier: at width 1 the item at the change is the first of the new concept.
    steepness = 4.0 / width if width > 1 else 1e3
    return np.asarray(expit(steepness * (t - changes[:, None] + 0.5)))


def _generator(command: str, q: int, cardinality: float, seed: int) -> Any:
    from tagstream.compat.moa import moa_object

    made = moa_object(
        "moa.streams.generators.multilabel.MetaMultilabelGenerator "
        f"-s ({command}) -m {seed} -c {q} -z {cardinality}"
    )
    made.prepareForUse()
    return made
