"""The learners that can be run beside each other, by name.

Each is made with its defaults, by the same rule for all: nothing is tuned on the streams.  What a
learner is made of is imported when it is made, so a missing package costs only its own learners.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

__all__ = ["LEARNERS", "Learner", "learner_named"]

DECISIONS = ("f1", "hamming", "macro")  # besides the default one


@dataclass(frozen=True)
class Learner:
    """A learner and how it is made.

    Attributes
    ----------
    name, title, family : str
    make : callable
        Called with a seed; returns a fresh learner.
    rules : tuple of str
        Decisions that are measured besides that of ``predict``, from the same scores.
    takes_unknown : bool
        Whether labels may be unknown (NaN).  Else an unknown label is taught as absent.
    note : str
        What a reader must know, such as "its rows are scaled".
    """

    name: str
    title: str
    family: str
    make: Callable[[int], Any]
    rules: tuple[str, ...] = ()
    takes_unknown: bool = False
    note: str = ""


def _ours(method: str, seed: int, **params: Any) -> Any:
    from tagstream.learners import registry

    model = registry.learner(method)()
    if "random_state" in model.get_params():
        params["random_state"] = seed
    return model.set_params(**params)


def _sgd(seed: int) -> Any:
    from sklearn.linear_model import SGDClassifier
    from sklearn.multioutput import MultiOutputClassifier

    return MultiOutputClassifier(SGDClassifier(loss="log_loss", random_state=seed))


def _perceptrons(seed: int) -> Any:
    from sklearn.linear_model import Perceptron
    from sklearn.multioutput import MultiOutputClassifier

    return MultiOutputClassifier(Perceptron(random_state=seed))


def _bernoulli(seed: int) -> Any:
    from sklearn.multioutput import MultiOutputClassifier
    from sklearn.naive_bayes import BernoulliNB

    return MultiOutputClassifier(BernoulliNB())


def _river(module: str, name: str, seed: int, *, scaled: bool = False, **params: Any) -> Any:
    """Return binary relevance over a classifier of river."""
    try:
        from river import multioutput, preprocessing
    except ImportError:
        raise ImportError("learners of river need river; install tagstream[river]") from None
    from tagstream.compat.river import FromRiver

    if not hasattr(multioutput, "PerOutputClassifier"):
        raise ImportError("binary relevance of river needs river 0.26 or newer")
    if params.pop("seeded", False):
        params["seed"] = seed
    base = getattr(importlib.import_module(f"river.{module}"), name)(**params)
    model = multioutput.PerOutputClassifier(base)
    return FromRiver(preprocessing.StandardScaler() | model if scaled else model)


def _moa(command: str, seed: int) -> Any:
    from tagstream.compat.moa import FromMoa, java

    java()  # say at once what is missing
    return FromMoa(command, random_state=seed)


def _br(base: str) -> str:
    return f"moa.classifiers.multitarget.BasicMultiLabelLearner -l ({base})"


def _meka(name: str) -> str:
    return (
        "moa.classifiers.multilabel.MEKAClassifier -l "
        f"(meka.classifiers.multilabel.incremental.{name})"
    )


_MOA = {
    "moa-br-ht": ("BR of Hoeffding trees", "MOA", _br("trees.HoeffdingTree")),
    "moa-br-knn": ("BR of kNN", "MOA", _br("lazy.kNN")),
    "moa-br-nb": ("BR of naive Bayes", "MOA", _br("bayes.NaiveBayes")),
    "moa-br-arf": ("BR of adaptive random forests", "MOA", _br("meta.AdaptiveRandomForest")),
    "moa-amrules": (
        *("AMRules", "MOA"),
        "moa.classifiers.rules.multilabel.AMRulesMultiLabelClassifier",
    ),
    "moa-mlht": (
        *("MultilabelHoeffdingTree", "MOA"),
        "moa.classifiers.multilabel.MultilabelHoeffdingTree",
    ),
    "moa-isoup": ("ISOUPTree", "MOA", "moa.classifiers.multilabel.trees.ISOUPTree"),
    "meka-br": ("BRUpdateable", "MEKA", _meka("BRUpdateable")),
    "meka-cc": ("CCUpdateable", "MEKA", _meka("CCUpdateable")),
    "meka-ps": ("PSUpdateable", "MEKA", _meka("PSUpdateable")),
    "meka-rt": ("RTUpdateable", "MEKA", _meka("RTUpdateable")),
}

LEARNERS = {
    learner.name: learner
    for learner in (
        Learner(
            "oml", "OML", "tagstream", partial(_ours, "oml"), rules=DECISIONS, takes_unknown=True
        ),
        Learner(
            *("oml-window", "OML, window 2,000", "tagstream", partial(_ours, "oml", window=2000)),
            takes_unknown=True,
        ),
        Learner("knn", "kNN", "tagstream", partial(_ours, "knn"), takes_unknown=True),
        Learner(
            "osml-elm", "OSML-ELM", "tagstream", partial(_ours, "osml-elm"), takes_unknown=True
        ),
        Learner("olansgd", "OLANSGD", "tagstream", partial(_ours, "olansgd"), takes_unknown=True),
        Learner("sklearn-sgd", "logistic regression (SGD)", "scikit-learn", _sgd),
        Learner("sklearn-perceptron", "perceptrons", "scikit-learn", _perceptrons),
        Learner("sklearn-nb", "naive Bayes (Bernoulli)", "scikit-learn", _bernoulli),
        Learner(
            *("river-logistic", "BR of logistic regression", "river"),
            partial(_river, "linear_model", "LogisticRegression", scaled=True),
            note="rows are scaled on the way",
        ),
        Learner(
            *("river-nb", "BR of naive Bayes", "river"),
            partial(_river, "naive_bayes", "GaussianNB"),
        ),
        Learner(
            *("river-ht", "BR of Hoeffding trees", "river"),
            partial(_river, "tree", "HoeffdingTreeClassifier"),
        ),
        Learner(
            *("river-hat", "BR of adaptive Hoeffding trees", "river"),
            partial(_river, "tree", "HoeffdingAdaptiveTreeClassifier", seeded=True),
        ),
        *(
            Learner(name, title, family, partial(_moa, command))
            for name, (title, family, command) in _MOA.items()
        ),
    )
}


def learner_named(name: str) -> Learner:
    """Return a learner by its name here, or by ``MODULE:CLASS``.

    The latter is imported and called: with a seed if it has a parameter ``random_state``, else
    without anything.  An attribute ``takes_unknown`` says that labels may be NaN.

    Examples
    --------
    >>> learner_named("knn").title
    'kNN'
    >>> learner_named("tagstream.models:KNN").make(0)
    KNN()
    """
    if name in LEARNERS:
        return LEARNERS[name]
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ValueError(
            f"learner must be MODULE:CLASS or one of {', '.join(LEARNERS)}, got {name!r}"
        )
    made = importlib.import_module(module)
    if not callable(getattr(made, attribute, None)):
        raise ValueError(f"learner must be a class of {module}, got {attribute!r}")
    cls = getattr(made, attribute)
    own = bool(getattr(cls, "takes_unknown", False)) or hasattr(cls, "to_state")
    rules = DECISIONS if attribute == "OML" and hasattr(cls, "labels_of") else ()
    return Learner(name, attribute, module, partial(_called, cls), rules, own)


def _called(cls: Any, seed: int) -> Any:
    import inspect

    seeded = "random_state" in inspect.signature(cls).parameters
    return cls(random_state=seed) if seeded else cls()
