"""The contract of learners, for those who write one: ``check_learner(make)``.

Any learner with ``partial_fit`` and ``predict`` is bound by the basic rules, which are what
comparisons rely on.  A learner that is derived from :class:`~tagstream.base.StreamClassifier` is
bound by all rules that its methods call for: one stream has one state, a call that is refused
changes nothing, what is saved and loaded goes on the same, and so on.  :func:`rules_for` lists
them, so that a test may run one at a time.  Nothing here needs pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tagstream.testing import (  # noqa: F401 - each of them adds its rules
    basics,
    corrections,
    inputs,
    labels,
    one_state,
    refusals,
    saving,
    views,
)
from tagstream.testing.rules import RULES, BrokenContractError, Rule, rules_for
from tagstream.testing.states import assert_same_state

__all__ = [
    "RULES",
    "BrokenContractError",
    "Rule",
    "assert_same_state",
    "check_learner",
    "rules_for",
]


def check_learner(make: Callable[..., Any], *, but: Collection[str] = ()) -> None:
    """Check that a learner keeps the contract, as far as it is bound by it.

    Parameters
    ----------
    make : callable
        Returns a fresh learner, the same one each time, with the parameters that it is given: a
        class will do.  What a learner does at fixed times (a first block, a refit) should happen
        within 60 examples.
    but : collection of str
        Names of rules that the learner does not claim to keep.

    Raises
    ------
    BrokenContractError
        At the first rule that does not hold.  The message has its name, and what it says.

    Examples
    --------
    >>> from tagstream import KNN
    >>> len(rules_for(KNN())) > 40
    True
    >>> class Silent:
    ...     def partial_fit(self, X, Y): ...
    ...     def predict(self, X): ...
    >>> check_learner(Silent)
    Traceback (most recent call last):
      ...
    tagstream.testing.rules.BrokenContractError: answers: Answers are 0 and 1, a column ...
    predict must give 0 and 1 of shape (60, 3), got shape ()
    """
    if not __debug__:
        raise RuntimeError("the contract is made of assertions; run Python without -O")
    unknown = {*but} - {rule.name for rule in RULES}
    if unknown:
        raise ValueError(f"but must name rules, got {', '.join(sorted(unknown))}")
    for rule in rules_for(make()):
        if rule.name in but:
            continue
        try:
            rule.check(make)
        except Exception as error:
            said = (rule.check.__doc__ or "").partition("\n")[0]
            raise BrokenContractError(f"{rule.name}: {said}\n{error}") from error
