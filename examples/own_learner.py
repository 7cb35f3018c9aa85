"""Test, then train: a learner of your own beside tagstream's.

A learner needs ``partial_fit`` and ``predict``; with ``predict_proba`` the measures of ranking are
computed, too.
"""

import numpy as np

import tagstream as ts


class Frequent:
    """Suggests the labels that more than a third of the items had."""

    def __init__(self, n_labels):
        self.counts, self.n = np.zeros(n_labels), 0

    def partial_fit(self, X, Y, classes=None):
        self.counts = self.counts + np.asarray(Y).sum(axis=0)
        self.n += len(Y)
        return self

    def predict_proba(self, X):
        return np.tile(self.counts / max(self.n, 1), (X.shape[0], 1))

    def predict(self, X):
        return (self.predict_proba(X) > 1 / 3).astype(np.uint8)


stream = ts.make_stream(600, seed=0)
for name, learner in {
    "frequent": Frequent(stream.Y.shape[1]),
    "knn": ts.KNN(),
    "oml": ts.OML(),
}.items():
    result = ts.prequential(learner, stream.X, stream.Y)
    print(f"{name:10} micro-F1 {result.measures['micro_f1']:.3f}")
