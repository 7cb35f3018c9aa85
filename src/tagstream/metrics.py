"""Streaming measures of multi-label predictions."""

from tagstream.evaluation.metrics import MultiLabelScores

__all__ = [
    "MultiLabelScores",
]
