"""What the service needs of a tagger, and of the views that its readers ask."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Tagger", "TaggerType", "View", "usual_tagger"]


class View(Protocol):
    """What readers need of a tagger: an unchanging picture of it."""

    @property
    def tags(self) -> list[str]:
        """All tags."""

    @property
    def counts(self) -> dict[str, int]:
        """How many items have each."""

    @property
    def descriptions(self) -> dict[str, str]:
        """What is said about tags."""

    @property
    def n_items(self) -> int:
        """How many items were learnt."""

    def ask(self, records: Any, *, next: bool = False) -> Any:
        """Return what is found out about records, to be given back in their place."""

    def suggest(
        self, records: Any, top: int | None = None, decide: Any = None, *, next: bool = False
    ) -> Any:
        """Return suggestions."""

    def explain(self, record: Any, *, next: bool = False) -> Any:
        """Return why."""


class Tagger(Protocol):
    """What the writer needs of a tagger."""

    learner: Any

    def learn(self, records: Any, *, asked: Any = None) -> Any:
        """Learn records; ``asked`` is what the ``ask`` of a view returned for them, if it did."""

    def change(self, event: str, **what: Any) -> None:
        """Forget an item; rename, merge or remove tags."""

    def save(self, path: Any) -> None:
        """Save to a file, as a whole or not at all."""

    def view(self) -> View:
        """Return an unchanging picture."""


class TaggerType(Protocol):
    """A class of taggers."""

    def __call__(self) -> Tagger:
        """Return an empty tagger."""

    def open(self, path: Any) -> Tagger:
        """Return the tagger of a file."""


def usual_tagger() -> TaggerType:
    """Return the tagger that is served where nobody names another."""
    from tagstream.tagger import Tagger as usual

    made: TaggerType = usual
    return made
