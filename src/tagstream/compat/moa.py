"""Learners and streams of MOA and MEKA, called through Java.

The classes come from the archive that the package ``capymoa`` brings (GPL; it is not part of this
library).  They are called one by one with ``trainOnInstance`` and ``getPredictionForInstance``, so
they run under any evaluator of this library; MOA's own multi-label task refuses most of them.

What is needed: Java (Debian: ``default-jre-headless``) and ``pip install tagstream[moa]``.  Of
capymoa only the archive is used: ``pip install --no-deps capymoa jpype1`` is enough.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tagstream.learners.inputs import check_input

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["FromMoa", "java", "moa_object"]

HEAP = "2g"  # the most memory that Java may take


@cache
def java() -> Any:
    """Start Java with MOA's classes, once; return the package ``jpype``.

    Raises
    ------
    ImportError
        If Java, jpype or the archive is not there; it names what to install.
    """
    found = importlib.util.find_spec("capymoa")
    if found is None or importlib.util.find_spec("jpype") is None:
        raise ImportError("learners of MOA need capymoa and jpype1; install tagstream[moa]")
    import jpype

    archive = Path(next(iter(found.submodule_search_locations or [""]))) / "jar" / "moa.jar"
    if not archive.exists():
        raise ImportError(f"capymoa must bring {archive.name}, got no {archive}")
    try:
        jpype.startJVM(
            *(f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-Djava.awt.headless=true"),
            classpath=[str(archive)],
            convertStrings=True,
            interrupt=False,
        )
    except (jpype.JVMNotFoundException, jpype.JVMNotSupportedException, OSError) as error:
        raise ImportError(
            f"learners of MOA need Java, such as Debian's default-jre-headless ({error})"
        ) from None
    lang, io = jpype.JPackage("java").lang, jpype.JPackage("java").io
    nowhere = io.PrintStream(io.OutputStream.nullOutputStream())
    lang.System.setErr(nowhere)  # they print warnings for each item
    lang.System.setOut(nowhere)
    return jpype


def moa_object(command: str) -> Any:
    """Return the object that MOA's command line means, such as ``"trees.HoeffdingTree -g 50"``."""
    jpype = java()
    option = jpype.JPackage("com").github.javacliparser.ClassOption
    try:
        return option.cliStringToObject(command, jpype.JPackage("java").lang.Object.class_, None)
    except jpype.JException as error:
        raise ValueError(f"command must name an object of MOA, got {command!r}: {error}") from None


class FromMoa(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A multi-label learner of MOA or MEKA as a learner for :mod:`tagstream.evaluate`.

    Rows are handed over as numbers, labels as nominal attributes 0 and 1 in front of them.  All
    labels must be known, and their number is that of the first call.

    Parameters
    ----------
    learner : str
        As on MOA's command line, e.g. ``"moa.classifiers.multilabel.MultilabelHoeffdingTree"``.
    random_state : int, default=1
        Seed of learners that draw.

    Attributes
    ----------
    learner_ : the Java object that has learnt
    n_features_in_, n_labels_ : int
    nbytes_ : int
        What Java's heap has grown by since the learner was made; after a collection.
    """

    def __init__(self, learner: str, random_state: int = 1) -> None:
        self.learner = learner
        self.random_state = random_state

    def _start(self, p: int, q: int) -> None:
        jpype = java()
        self._free_before = _heap_used()
        self._header = _header(jpype, p, q)
        made = moa_object(self.learner)
        option = getattr(made, "randomSeedOption", None)
        if option is not None:  # of those that draw
            option.setValue(self.random_state)
        made.setModelContext(self._header)
        made.prepareForUse()
        made.resetLearning()
        self.learner_, self.n_features_in_, self.n_labels_ = made, p, q

    def fit(self, X: Any, Y: Any) -> Self:
        """Forget everything, then learn the rows in order."""
        self.__dict__.pop("learner_", None)
        return self.partial_fit(X, Y)

    def partial_fit(self, X: Any, Y: Any) -> Self:
        """Learn the rows in order.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, p)
        Y : array of shape (n, q)
            0/1 labels, all of them known.
        """
        rows, labels = check_input(X, self), np.asarray(Y)
        if labels.ndim != 2 or len(labels) != rows.shape[0] or not np.isin(labels, (0, 1)).all():
            raise ValueError(f"Y must have {rows.shape[0]} rows of 0 and 1, got {labels.shape}")
        if not hasattr(self, "learner_"):
            self._start(rows.shape[1], labels.shape[1])
        self._check(rows, labels.shape[1])
        for i in range(rows.shape[0]):
            self.learner_.trainOnInstance(self._example(rows, i, labels[i]))
        return self

    def predict(self, X: Any) -> npt.NDArray[np.uint8]:
        """Return 0/1 labels of shape (n, q): yes if it has as many votes as no, and some."""
        votes = self._votes(X)
        chosen = (votes[..., 1] >= votes[..., 0]) & votes.any(axis=2)
        return np.asarray(chosen, np.uint8)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the share of the votes for yes, of shape (n, q)."""
        votes = np.maximum(self._votes(X), 0.0)
        total = votes.sum(axis=2)
        share = np.divide(votes[..., 1], total, out=np.zeros_like(total), where=total > 0)
        return np.asarray(share, np.float64)

    @property
    def nbytes_(self) -> int:
        """Bytes on Java's heap since the learner was made."""
        check_is_fitted(self, "learner_")
        return max(_heap_used() - self._free_before, 0)

    def _check(self, rows: Any, q: int) -> None:
        given, wanted = (rows.shape[1], q), (self.n_features_in_, self.n_labels_)
        if given != wanted:
            raise ValueError(f"X and Y must have {wanted} columns, got {given}")

    def _votes(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the votes for no and yes, of shape (n, q, 2)."""
        check_is_fitted(self, "learner_")
        rows = check_input(X, self)
        self._check(rows, self.n_labels_)
        votes = np.zeros((rows.shape[0], self.n_labels_, 2))
        nothing = np.zeros(self.n_labels_)
        for i in range(rows.shape[0]):
            answer = self.learner_.getPredictionForInstance(self._example(rows, i, nothing))
            for j in range(
                0 if answer is None else min(answer.numOutputAttributes(), len(nothing))
            ):
                given = list(answer.getVotes(j))[:2]
                votes[i, j, : len(given)] = given
        return votes

    def _example(self, rows: Any, i: int, labels: npt.NDArray[Any]) -> Any:
        jpype = java()
        made = jpype.JPackage("com").yahoo.labs.samoa.instances
        width = self.n_labels_ + self.n_features_in_
        doubles, ints = jpype.JArray(jpype.JDouble), jpype.JArray(jpype.JInt)
        if sp.issparse(rows):
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            there = np.flatnonzero(labels)
            columns = np.concatenate([there, rows.indices[part] + self.n_labels_])
            values = np.concatenate([labels[there].astype(float), rows.data[part]])
            item = made.SparseInstance(
                1.0, doubles(values), ints(columns.astype(np.int32)), int(width)
            )
        else:
            item = made.DenseInstance(1.0, doubles(np.concatenate([labels, rows[i]]).astype(float)))
        item.setDataset(self._header)
        return jpype.JPackage("moa").core.InstanceExample(item)


def _header(jpype: Any, p: int, q: int) -> Any:
    """Return the header of rows with q labels in front of p numbers."""
    made = jpype.JPackage("com").yahoo.labs.samoa.instances
    values = jpype.JPackage("java").util.ArrayList(["0", "1"])
    columns = [made.Attribute(f"y{j}", values) for j in range(q)]
    columns += [made.Attribute(f"x{j}") for j in range(p)]
    header = made.InstancesHeader(
        made.Instances("stream", jpype.JArray(made.Attribute)(columns), 0)
    )
    labels = made.Range(f"1-{q}")
    labels.setUpper(p + q)
    header.setRangeOutputIndices(labels)
    return header


def _heap_used() -> int:
    runtime = java().JPackage("java").lang.Runtime.getRuntime()
    runtime.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())
