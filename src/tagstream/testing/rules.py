"""The rules of the contract: each is a check, and says which learners are bound by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["RULES", "BrokenContractError", "Make", "Rule", "refused", "rule", "rules_for"]

Make = Callable[..., Any]


class BrokenContractError(AssertionError):
    """A learner does not do what others rely on."""


@dataclass(frozen=True)
class Rule:
    """A rule of the contract.

    Attributes
    ----------
    check : callable
        Takes a function that makes a fresh learner, ``make(**params)``; raises AssertionError.
    needs : tuple of str
        Attributes of the learners that are bound by it.
    exact : bool
        Whether something is compared to the last bit.
    """

    check: Callable[[Make], None]
    needs: tuple[str, ...]
    exact: bool

    @property
    def name(self) -> str:
        """What the check is called."""
        return self.check.__name__.removeprefix("check_")

    def binds(self, learner: Any) -> bool:
        """Tell whether a learner is bound by the rule."""
        return all(getattr(learner, name, None) for name in self.needs)


RULES: list[Rule] = []


def rule(
    *needs: str, exact: bool = False
) -> Callable[[Callable[[Make], None]], Callable[[Make], None]]:
    """Make a rule of a check."""

    def add(check: Callable[[Make], None]) -> Callable[[Make], None]:
        RULES.append(Rule(check, needs, exact))
        return check

    return add


def rules_for(learner: Any) -> list[Rule]:
    """Return the rules that bind a learner."""
    return [rule for rule in RULES if rule.binds(learner)]


@contextmanager
def refused(*errors: type[Exception], saying: str = "") -> Iterator[None]:
    """Expect an error, ValueError or TypeError unless told, whose message has a pattern in it."""
    expected = errors or (ValueError, TypeError)
    names = " or ".join(error.__name__ for error in expected)
    try:
        yield
    except expected as error:
        if not re.search(saying, str(error)):
            raise AssertionError(f"the error must say {saying!r}, got {error}") from error
    else:
        raise AssertionError(f"{names} must be raised, got none")
