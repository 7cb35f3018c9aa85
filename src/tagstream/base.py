"""The estimator that all learners share."""

from tagstream.learners.estimator import StreamClassifier, View

__all__ = [
    "StreamClassifier",
    "View",
]
