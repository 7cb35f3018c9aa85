"""The text features as a scikit-learn transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from tagstream.features.featurizers import Text

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TextFeatures"]


class TextFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Turns texts into the rows that a :class:`~tagstream.Tagger` makes of them.

    It learns nothing: ``fit`` only checks the parameters.

    Parameters
    ----------
    preset : "full" or "light"
        Pieces of three to five characters, or of three only; see :class:`tagstream.text.Text`.
    n_features : int
        Number of columns p.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from tagstream import OML
    >>> model = make_pipeline(TextFeatures(), OML(random_state=0))
    >>> texts = ["Where to swim in May?", "How do I sort a list in place?"]
    >>> model.fit(texts, [{"travel"}, {"python"}]).predict(texts).tolist()
    [[1, 0], [0, 1]]
    """

    def __init__(self, preset: str = "full", n_features: int = 2**18) -> None:
        self.preset = preset
        self.n_features = n_features

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters."""
        Text(self.preset, self.n_features)
        return self

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Return one row per text, of unit length.

        Parameters
        ----------
        X : sequence, array or series of n texts

        Returns
        -------
        CSR matrix of shape (n, p), float32
        """
        if isinstance(X, str):
            raise ValueError(f"X must be a sequence of texts, got the text {X!r:.60}")
        return Text(self.preset, self.n_features).rows([*X])

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags
