"""The projection P: from inputs into label space, by ridge regression that keeps learning.

    z = Pᵀφ(x) + c

φ(x) is x, scaled or not, or a lift of it (:mod:`~tagstream.projection.features`); which of these,
and how strong the ridge is, is chosen by looking at how well stored examples are predicted by the
others (:mod:`~tagstream.projection.choice`); P and c are then fitted on all of them
(:mod:`~tagstream.projection.ridge`).  Of very many labels it maps into the few directions in which
they vary most (:mod:`~tagstream.projection.reduction`).
"""

from tagstream.projection.choice import choose
from tagstream.projection.features import (
    LIFTS,
    SCALES,
    Choice,
    Lift,
    dense_features,
    make_features,
)
from tagstream.projection.reduction import Reduction
from tagstream.projection.ridge import (
    Design,
    Projection,
    first_block,
    fit,
    fit_without,
    leading_directions,
)

__all__ = [
    "LIFTS",
    "SCALES",
    "Choice",
    "Design",
    "Lift",
    "Projection",
    "Reduction",
    "choose",
    "dense_features",
    "first_block",
    "fit",
    "fit_without",
    "leading_directions",
    "make_features",
]
