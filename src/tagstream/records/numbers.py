"""Decimal numbers out of a block of text, many at a time.

`parse_decimals` is the fast path of the ARFF and LIBSVM readers. It knows one thing: numbers
written with ASCII digits, at most one point, an optional sign and an optional exponent, each
followed by one separator. Whatever else it meets makes it give up (``None``), and the caller's
careful reader, which knows line numbers and error messages, takes over. So it never has to explain
itself.

A number with at most 15 digits is an integer below 2⁵³ divided by a power of ten not above 10²²;
both are exact in double precision, so their quotient is the correctly rounded value that ``float``
gives (Clinger, "How to read floating point numbers accurately", 1990). Longer numbers and
exponents go through ``float``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["parse_decimals"]

_PAD = b"0" * 8  # so that the eight bytes before any digit exist
_POINT, _MINUS, _PLUS = b".-+"
_POWER_OF_TEN = 10.0 ** np.arange(23)
# [k] keeps the low half, which is the digit's value, of the last k of eight ASCII digits
_LAST_DIGITS = np.array(
    [0x0F0F0F0F0F0F0F0F >> 8 * (8 - k) << 8 * (8 - k) for k in range(9)], np.uint64
)
_BLOCK = 1 << 17  # bytes read at a time: the arrays made of them should fit the processor's cache


def parse_decimals(
    text: bytes, separators: bytes
) -> tuple[NDArray[np.float64], NDArray[np.uint8]] | None:
    """Read every number of ``text`` and the separator that ends it.

    Parameters
    ----------
    text : bytes
        Numbers, each followed by exactly one separator byte.
    separators : bytes
        The allowed separators, a newline and others below ``"0"`` in ASCII order.

    Returns
    -------
    values : ndarray of shape (n,), float64
    ends : ndarray of shape (n,), uint8
        The separator after each value.
        ``None`` in place of both when the text is anything but numbers and separators.

    Examples
    --------
    >>> values, ends = parse_decimals(b"0 0.5,7 -1e3\\n", b" ,\\n")
    >>> values.tolist(), bytes(ends)
    ([0.0, 0.5, 7.0, -1000.0], b' , \\n')
    >>> parse_decimals(b"0 0.5,seven 1\\n", b" ,\\n") is None
    True
    """
    blocks: list[tuple[NDArray[np.float64], NDArray[np.uint8]]] = []
    at = 0
    while at < len(text) or not blocks:
        cut = text.find(b"\n", at + _BLOCK) + 1 or len(text)
        block = _parse_block(text[at:cut], separators)
        if block is None:
            return None
        blocks.append(block)
        at = cut
    return np.concatenate([b[0] for b in blocks]), np.concatenate([b[1] for b in blocks])


def _parse_block(
    text: bytes, separators: bytes
) -> tuple[NDArray[np.float64], NDArray[np.uint8]] | None:
    if not text or text[-1] not in separators:
        return None
    original = padded = _PAD + text
    n_signs = 0
    if b"-" in text or b"+" in text:
        unchanged = np.frombuffer(original, dtype=np.uint8)
        n_signs = int(np.count_nonzero(_is_sign(unchanged)))
        # a sign becomes a leading zero; whether it stood where a sign may stand is checked below
        padded = original.replace(b"-", b"0").replace(b"+", b"0")
    a = np.frombuffer(padded, dtype=np.uint8)
    marks = np.flatnonzero(a < ord("0"))  # separators and points; the rest should be digits
    kinds = a[marks]
    closes = np.flatnonzero(kinds != _POINT)
    ends = kinds[closes]
    letters = np.flatnonzero(a > ord("9")) if a.max() > ord("9") else marks[:0]
    if not _only(ends, separators) or not _only(a[letters], b"eE"):
        return None

    stop = marks[closes]
    start = np.empty_like(stop)
    start[0] = len(_PAD)
    start[1:] = stop[:-1] + 1
    is_signed: NDArray[np.bool_] | int = 0
    if n_signs:
        first = unchanged[start]
        is_signed = _is_sign(first)
        if n_signs != int(is_signed.sum()) + int(_is_sign(unchanged[letters + 1]).sum()):
            return None

    # the mark before a closing separator is the point of this number or the end of the last one
    n_points = closes.copy()
    n_points[1:] -= closes[:-1] + 1
    point = np.where(n_points == 1, marks[closes - 1], stop)
    n_whole = point - start
    n_fraction = stop - point - n_points
    if n_points.max() > 1 or (n_whole + n_fraction - is_signed).min() < 1:
        return None

    if n_whole.max() == n_whole.min() == 1:
        values = (a[start] & 0x0F).astype(np.float64)
    else:
        values = _eight_digits(padded, point, n_whole)
    longest = n_fraction.max()
    if longest:
        scale = _POWER_OF_TEN.take(n_fraction, mode="clip")
        values *= scale
        values += _eight_digits(padded, stop, n_fraction)
        if longest > 8:
            deep = np.flatnonzero(n_fraction > 8)
            values[deep] += 1e8 * _eight_digits(padded, stop[deep] - 8, n_fraction[deep] - 8)
        values /= scale
    if letters.size or n_whole.max() > 7 or longest > 8:
        odd = (n_whole > 8) | (n_whole + n_fraction > 15)
        odd[np.searchsorted(stop, letters)] = True
        try:
            for i in np.flatnonzero(odd).tolist():
                values[i] = abs(float(original[start[i] : stop[i]]))
        except ValueError:
            return None
        if not np.isfinite(values).all():
            return None
    if n_signs:
        values *= 1.0 - 2.0 * (first == _MINUS)
    return values, ends


def _is_sign(found: NDArray[np.uint8]) -> NDArray[np.bool_]:
    is_sign: NDArray[np.bool_] = (found == _MINUS) | (found == _PLUS)
    return is_sign


def _only(found: NDArray[np.uint8], allowed: bytes) -> bool:
    return not found.tobytes().translate(None, allowed)


def _eight_digits(
    padded: bytes, stop: NDArray[np.intp], n_digits: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the integers spelled by the ``n_digits`` ≤ 8 digits that end before ``stop``.

    Eight ASCII digits are one 64-bit word; three multiplications add up its digits two, four and
    eight at a time. Digits that belong to something else are masked and count as leading zeros.
    """
    words = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))
    w = words[stop - 8]
    w &= _LAST_DIGITS.take(n_digits, mode="clip")
    w *= np.uint64(2561)
    w >>= np.uint64(8)
    w &= np.uint64(0x00FF00FF00FF00FF)
    w *= np.uint64(6553601)
    w >>= np.uint64(16)
    w &= np.uint64(0x0000FFFF0000FFFF)
    w *= np.uint64(42949672960001)
    w >>= np.uint64(32)
    return w.astype(np.float64)
