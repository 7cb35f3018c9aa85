"""The learners."""

from tagstream.models.knn import KNN
from tagstream.models.neighbors import Explanation, Neighbor
from tagstream.models.olansgd import OLANSGD
from tagstream.models.oml import OML
from tagstream.models.osml_elm import OSMLELM
from tagstream.models.published import PublishedOML

__all__ = ["KNN", "OLANSGD", "OML", "OSMLELM", "Explanation", "Neighbor", "PublishedOML"]
