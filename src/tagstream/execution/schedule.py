"""At which counts of examples a learner does what it does now and then.

All times follow from the number of examples alone, so the state does not depend on how a stream
was cut into calls; and the gaps grow with what is stored, so that the work per example is constant
on average.
"""

from __future__ import annotations

from tagstream.limits import LIMITS, Limits

__all__ = ["FIRST_FIT", "delay", "is_full", "next_choice", "next_fit"]

FIRST_FIT = 20  # examples before the first fit
GROWTH = 8  # a fit follows when an eighth more examples have been seen,
LARGE, LARGE_GROWTH = 4096, 4  # or a quarter where there are many, or as many as the window holds
WINDOWS = 4  # windows between two choices, once the window is full


def is_full(t: int, window: int | None) -> bool:
    """Tell whether the window is full, so that what is stored grows no more."""
    return window is not None and t > window


def next_fit(t: int, window: int | None) -> int:
    """Return the next time after ``t`` examples at which P is fitted again.

    Examples
    --------
    >>> next_fit(0, None), next_fit(20, None), next_fit(8000, None), next_fit(8000, 400)
    (20, 22, 10000, 8100)
    """
    if t < FIRST_FIT:
        return FIRST_FIT
    if window is not None and t > window:
        return t + max(1, window // LARGE_GROWTH)
    return t + t // (GROWTH if t < LARGE else LARGE_GROWTH)


def delay(t: int, window: int | None, *, chooses: bool, limits: Limits = LIMITS) -> int:
    """Return after how many further examples the fit of ``t`` examples takes effect.

    Meanwhile it is made, in steps; it is in effect before the next one begins.

    Examples
    --------
    >>> delay(300, None, chooses=False), delay(300, None, chooses=True)
    (0, 16)
    >>> delay(20_000, None, chooses=False), delay(20_000, 400, chooses=False)
    (312, 0)
    """
    n = t if window is None else min(t, window)
    if n < (limits.chosen_at_once if chooses else limits.fitted_at_once):
        return 0
    return max(n // limits.delay_share, limits.least_delay)


def next_choice(t: int, window: int | None) -> int:
    """Return the time after ``t`` examples from which scaling, lift and ridge are chosen again.

    When what is stored has doubled; a full window, which grows no more, when it was filled anew
    four times.  The choice is made with the next fit.

    Examples
    --------
    >>> next_choice(1000, None), next_choice(20000, 300)
    (2000, 21200)
    """
    return t + WINDOWS * window if window is not None and t > window else 2 * t
