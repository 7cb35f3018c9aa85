"""The learners."""

from tagstream.engine.asked import Asked
from tagstream.learners.knn import KNN
from tagstream.learners.neighbors import Explanation, Neighbor
from tagstream.learners.oml import OML
from tagstream.paper.methods.olansgd import OLANSGD
from tagstream.paper.methods.osml_elm import OSMLELM
from tagstream.paper.methods.published import PublishedOML

__all__ = [
    "KNN",
    "OLANSGD",
    "OML",
    "OSMLELM",
    "Asked",
    "Explanation",
    "Neighbor",
    "PublishedOML",
]
