"""Words and pieces of words of texts in any script, hashed into sparse rows by compiled loops.

A text is normalised (NFKC, then lower case, both Python's own), cut into tokens, and becomes one
row of two blocks: its tokens, and the character n-grams of its tokens.

**Tokens.**  Each code point has a class, see :func:`class_table`.

- A run of letters, digits, marks and ``_`` is a token.  An apostrophe joins if a letter or digit
  follows (*don't*; ``’`` counts as ``'``); a run of ``+`` or ``#`` at the end stays if none follows
  (*c++*, *c#*, but *a+b* is two); a ``.`` in front stays before a letter, unless a letter, a digit
  or another ``.`` stands before it (*.net*, but *asp.net* is two and *well...yes* too).
- Each character of a script that is written without spaces is a token, and so is each symbol that
  is not ASCII (emoji, currency), and each ``!`` and ``?``.
- Joiners, variation selectors and other format characters are taken out before all this.
- Everything else separates.

**N-grams.**  Of `` token ``, with a space on both sides, all runs of 3 to 5 characters; none of
``!`` and ``?``.  In scripts without spaces, runs of 2 and 3 characters.

**Values.**  A feature that occurs c times counts 1 + ln c.  Each block is scaled to unit length,
then both are added and the sum is scaled to unit length.

**Columns.**  A feature has a 64-bit hash h of its code points and its block.  Its column is
⌊(h ≫ 32) p / 2³²⌋, which grows with h, so sorting the hashes sorts the columns; the lowest bit of h
is its sign.  What shares a column adds up.

The classes come from the Unicode version of the Python that runs: characters which are younger
than that version separate words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tagstream.core.compilation import compiled

__all__ = ["hash_texts", "normalize", "shared_words", "token_spans"]

BREAK, LETTER, DIGIT, UNSPACED, SYMBOL, CALL, PLUS, DOT, APOSTROPHE, SKIP = range(10)

# Thai and Lao; Burmese; Khmer; CJK radicals, kana, bopomofo and ideographs; more Burmese; old kana.
# Planes 2 and 3 hold ideographs only.
_UNSPACED = [
    (0x0E00, 0x0F00),
    (0x1000, 0x10A0),
    (0x1780, 0x1800),
    (0x2E80, 0x2FE0),
    (0x3005, 0x3008),
    (0x3021, 0x302E),
    (0x3030, 0x3130),
    (0x31A0, 0x3200),
    (0x3400, 0x4DC0),
    (0x4E00, 0xA000),
    (0xA9E0, 0xAA00),
    (0xAA60, 0xAA80),
    (0xF900, 0xFB00),
    (0x1AFF0, 0x1B170),
]
_TABLE_END = 0x20000  # the table covers planes 0 and 1
_IDEOGRAPHS_END = 0x40000
_TAGS, _TAGS_END = 0xE0000, 0xE1000  # tag characters and variation selectors

_SEEDS = np.array([0x2545F4914F6CDD1D, 0x9FB21C651E98DF25], dtype=np.uint64)  # tokens, n-grams
_SPACE = np.uint32(32)
_STEPS = 32  # by which a hash may be away from its place, on average
_SLICE = 1 << 20  # code points that are scanned in one go, which bounds the working memory


def class_table(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Return the class of each code point of planes 0 and 1, up to all that are among ``codes``."""
    return _class_table(min(1 << int(codes.max(initial=0)).bit_length(), _TABLE_END))


@cache
def _class_table(end: int) -> npt.NDArray[np.uint8]:
    """Return the class of each code point before ``end``.

    For all of them that takes some 20 ms; a table in the package would be no faster, and would
    disagree with the Unicode version of ``str.lower``.
    """
    categories = map(unicodedata.category, map(chr, range(end)))
    kinds = dict.fromkeys(["Sc", "Sk", "Sm", "So"], SYMBOL) | {"Cf": SKIP}
    kinds |= dict.fromkeys(["Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn"], LETTER)
    kinds |= dict.fromkeys(["Nd", "Nl", "No"], DIGIT)
    table = np.full(_TABLE_END, BREAK, np.uint8)
    table[:end] = [kinds.get(c, BREAK) for c in categories]
    for start, stop in _UNSPACED:
        block = table[start:stop]
        block[(block == LETTER) | (block == DIGIT)] = UNSPACED
    table[:0x80][table[:0x80] == SYMBOL] = BREAK
    table[[ord("_"), ord("."), ord("'"), ord("’")]] = LETTER, DOT, APOSTROPHE, APOSTROPHE
    table[[ord("!"), ord("?"), ord("+"), ord("#")]] = CALL, CALL, PLUS, PLUS
    table[0x200B] = BREAK  # the zero-width space separates words
    table[[0x034F, 0x180B, 0x180C, 0x180D, 0x180F]] = SKIP  # a joiner; Mongolian selectors
    table[0xFE00:0xFE10] = SKIP  # variation selectors
    table.flags.writeable = False
    return table[:end]


def normalize(text: str) -> str:
    """Return the text in the form that is scanned: NFKC, then lower case."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).lower()


@compiled
def _classify(
    text: npt.NDArray[np.uint32],
    table: npt.NDArray[np.uint8],
    codes: npt.NDArray[np.uint32],
    classes: npt.NDArray[np.uint8],
    places: npt.NDArray[np.int64],
) -> int:
    """Write the code points that are not skipped, their classes and places; return how many."""
    n = 0
    for i in range(text.shape[0]):
        code = text[i]
        if code < _TABLE_END:
            kind = table[code]
        elif code < _IDEOGRAPHS_END:
            kind = np.uint8(UNSPACED)
        elif _TAGS <= code < _TAGS_END:
            kind = np.uint8(SKIP)
        else:
            kind = np.uint8(BREAK)
        if kind != SKIP:
            codes[n] = 39 if kind == APOSTROPHE else code
            classes[n] = kind
            places[n] = i
            n += 1
    classes[n] = BREAK
    return n


@compiled
def _is_word(kind: np.uint8) -> bool:
    return kind in (LETTER, DIGIT)


@compiled
def _token_end(classes: npt.NDArray[np.uint8], start: int) -> int:
    """Return where the token that starts here ends; ``start`` itself if none starts here.

    ``classes`` must end with a BREAK.
    """
    kind = classes[start]
    if kind in (UNSPACED, SYMBOL, CALL):
        return start + 1
    end = start
    if kind == DOT and classes[start + 1] == LETTER:
        before = classes[start - 1] if start else np.uint8(BREAK)
        if not _is_word(before) and before != DOT:
            end += 1
    if not _is_word(classes[end]):
        return start
    while _is_word(classes[end]) or (classes[end] == APOSTROPHE and _is_word(classes[end + 1])):
        end += 1
    tail = end
    while classes[tail] == PLUS:
        tail += 1
    return end if _is_word(classes[tail]) else tail


@compiled
def _mix(h: np.uint64) -> np.uint64:
    """Spread the bits (the last step of MurmurHash3)."""
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))


@compiled
def _add(h: np.uint64, code: np.uint32) -> np.uint64:
    return (h ^ np.uint64(code)) * np.uint64(0x9E3779B97F4A7C15)


@compiled
def _hash_features(
    codes: npt.NDArray[np.uint32],
    classes: npt.NDArray[np.uint8],
    n: int,
    longest: int,
    tokens: npt.NDArray[np.uint64],
    grams: npt.NDArray[np.uint64],
) -> tuple[int, int]:
    """Write the hashes of all tokens and n-grams of a text; return how many there are of each."""
    n_tokens = n_grams = 0
    start = 0
    while start < n:
        end = _token_end(classes, start)
        if end == start:
            start += 1
            continue
        h = _SEEDS[0]
        for i in range(start, end):
            h = _add(h, codes[i])
        tokens[n_tokens] = _mix(h)
        n_tokens += 1
        kind = classes[start]
        if kind == UNSPACED:
            h = _add(_SEEDS[1], codes[start])
            stop = start + 1
            while stop < start + 3 and classes[stop] == UNSPACED:
                h = _add(h, codes[stop])
                grams[n_grams] = _mix(h)
                n_grams += 1
                stop += 1
        elif kind != CALL:
            for first in range(start - 1, end - 1):
                h = _SEEDS[1]
                for i in range(first, min(first + longest, end + 1)):
                    h = _add(h, codes[i] if start <= i < end else _SPACE)
                    if i >= first + 2:
                        grams[n_grams] = _mix(h)
                        n_grams += 1
        start = end
    return n_tokens, n_grams


@compiled
def _sort_anything(hashes: npt.NDArray[np.uint64]) -> None:
    """Sort hashes by a heap, which takes n log n steps whatever they are."""
    n = hashes.shape[0]
    for step in range(n // 2 + n):
        # First every parent is made the largest of its family, then the largest goes to the end.
        end = n if step < n // 2 else n - 1 - (step - n // 2)
        root = n // 2 - 1 - step if step < n // 2 else 0
        if step >= n // 2:
            hashes[0], hashes[end] = hashes[end], hashes[0]
        h = hashes[root]
        child = 2 * root + 1
        while child < end:
            if child + 1 < end and hashes[child + 1] > hashes[child]:
                child += 1
            if hashes[child] <= h:
                break
            hashes[root] = hashes[child]
            root, child = child, 2 * child + 1
        hashes[root] = h


@compiled
def _sort(hashes: npt.NDArray[np.uint64], spare: npt.NDArray[np.uint64]) -> None:
    """Sort n hashes; ``spare`` has room for n and a half, and for two more.

    They are spread evenly, so that by some leading bits each comes near to where it belongs, and is
    a few steps away.  If they are many more, someone has chosen them so.
    """
    n, bits = hashes.shape[0], 1
    while 4 << bits <= n:
        bits += 1
    shift, size = np.uint64(64 - bits), 1 << bits
    starts, rough = spare[:size], spare[size:]
    for i in range(size):
        starts[i] = 0
    for i in range(n):
        starts[hashes[i] >> shift] += np.uint64(1)
    total = np.uint64(0)
    for i in range(size):
        starts[i], total = total, total + starts[i]
    for i in range(n):
        bucket = hashes[i] >> shift
        rough[starts[bucket]] = hashes[i]
        starts[bucket] += np.uint64(1)
    steps = 0
    for i in range(n):
        h, j = rough[i], i
        while j > 0 and hashes[j - 1] > h:
            hashes[j] = hashes[j - 1]
            j -= 1
        hashes[j] = h
        steps += i - j
        if steps > _STEPS * n:
            for k in range(i + 1, n):
                hashes[k] = rough[k]
            _sort_anything(hashes)
            return


@compiled
def _weigh(
    hashes: npt.NDArray[np.uint64],
    values: npt.NDArray[np.float64],
    spare: npt.NDArray[np.uint64],
) -> int:
    """Sort hashes and keep each once; write the values of the block; return how many."""
    _sort(hashes, spare)
    n = i = 0
    square = 0.0
    while i < hashes.shape[0]:
        j = i + 1
        while j < hashes.shape[0] and hashes[j] == hashes[i]:
            j += 1
        value = 1.0 if j == i + 1 else 1.0 + np.log(float(j - i))
        square += value * value
        hashes[n], values[n] = hashes[i], value
        n += 1
        i = j
    if n:
        scale = 1.0 / np.sqrt(square)
        for i in range(n):
            values[i] *= scale
    return n


@compiled
def _merge(
    a: npt.NDArray[np.uint64],
    a_values: npt.NDArray[np.float64],
    b: npt.NDArray[np.uint64],
    b_values: npt.NDArray[np.float64],
    p: int,
    indices: npt.NDArray[np.int32],
    sums: npt.NDArray[np.float64],
) -> int:
    """Write the columns of both blocks and the sums in them; return how many are not zero."""
    n = i = j = 0
    while i < a.shape[0] or j < b.shape[0]:
        if j == b.shape[0] or (i < a.shape[0] and a[i] <= b[j]):
            h, value = a[i], a_values[i]
            i += 1
        else:
            h, value = b[j], b_values[j]
            j += 1
        column = np.int32(((h >> np.uint64(32)) * np.uint64(p)) >> np.uint64(32))
        if h & np.uint64(1):
            value = -value
        if n and indices[n - 1] == column:
            sums[n - 1] += value
        else:
            if n and sums[n - 1] == 0.0:  # the signs cancelled each other
                n -= 1
            indices[n], sums[n] = column, value
            n += 1
    if n and sums[n - 1] == 0.0:
        n -= 1
    return n


@compiled
def _scan(
    text: npt.NDArray[np.uint32],
    bounds: npt.NDArray[np.int64],
    table: npt.NDArray[np.uint8],
    longest: int,
    p: int,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return data, indices and indptr of the rows of the texts between ``bounds``."""
    m = bounds.shape[0] - 1
    size = 0
    for i in range(m):
        size = max(size, bounds[i + 1] - bounds[i])
    codes, classes = np.empty(size + 1, np.uint32), np.empty(size + 1, np.uint8)
    places = np.empty(size + 1, np.int64)
    # A token of n characters has n 3-grams with its spaces, and fewer that are longer.
    width = longest - 2 if longest > 3 else 2
    tokens, token_values = np.empty(size, np.uint64), np.empty(size)
    grams, gram_values = np.empty(width * size, np.uint64), np.empty(width * size)
    sums = np.empty((width + 2) * size + 2)
    spare = sums.view(np.uint64)  # until there are sums
    data = np.empty((width + 1) * text.shape[0], np.float32)
    indices = np.empty((width + 1) * text.shape[0], np.int32)
    indptr = np.zeros(m + 1, np.int64)
    for i in range(m):
        n = _classify(text[bounds[i] : bounds[i + 1]], table, codes, classes, places)
        a, b = _hash_features(codes, classes, n, longest, tokens, grams)
        a = _weigh(tokens[:a], token_values, spare)
        b = _weigh(grams[:b], gram_values, spare)
        first = indptr[i]
        n = _merge(tokens[:a], token_values, grams[:b], gram_values, p, indices[first:], sums)
        square = 0.0
        for j in range(n):
            square += sums[j] * sums[j]
        scale = 1.0 / np.sqrt(square) if n else 0.0
        for j in range(n):
            data[first + j] = sums[j] * scale
        indptr[i + 1] = first + n
    return data[: indptr[m]].copy(), indices[: indptr[m]].copy(), indptr


def hash_texts(texts: Sequence[str], p: int, *, longest: int = 5) -> sparse.csr_matrix:
    """Return one row per text, each of unit length, or empty if the text has no token.

    Parameters
    ----------
    texts : sequence of n str
        Valid Unicode: without lone surrogates.
    p : int
        Number of columns.
    longest : int
        Length of the longest n-grams, at least 3.

    Returns
    -------
    CSR matrix of shape (n, p), float32, with sorted columns
        A row depends on its own text only.

    Examples
    --------
    >>> X = hash_texts(["C++ or C#?", "c++", "…"], 2**18)
    >>> X.shape, X.getnnz(axis=1).tolist(), round(float(X[0].multiply(X[1]).sum()), 2)
    ((3, 262144), [16, 7, 0], 0.6)
    """
    parts, indptr, n_entries = [], [np.zeros(1, np.int64)], 0
    start = 0
    while start < len(texts):
        some: list[str] = []
        size = 0
        while start + len(some) < len(texts) and (not some or size < _SLICE):
            some.append(normalize(texts[start + len(some)]))
            size += len(some[-1])
        bounds = np.zeros(len(some) + 1, np.int64)
        np.cumsum([len(text) for text in some], out=bounds[1:])
        codes = np.frombuffer("".join(some).encode("utf-32-le"), np.uint32)
        data, indices, ends = _scan(codes, bounds, class_table(codes), longest, p)
        parts.append((data, indices))
        indptr.append(ends[1:] + n_entries)
        n_entries += len(data)
        start += len(some)
    X = sparse.csr_matrix(
        (
            np.concatenate([data for data, _ in parts] or [np.empty(0, np.float32)]),
            np.concatenate([indices for _, indices in parts] or [np.empty(0, np.int32)]),
            np.concatenate(indptr),
        ),
        shape=(len(texts), p),
    )
    X.has_canonical_format = True
    return X


@compiled
def _find_tokens(
    text: npt.NDArray[np.uint32], table: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the code points that are not skipped, their places, and the tokens' bounds (n, 2)."""
    size = text.shape[0]
    codes, classes = np.empty(size + 1, np.uint32), np.empty(size + 1, np.uint8)
    places = np.empty(size + 1, np.int64)
    bounds = np.empty((size, 2), np.int64)
    n = _classify(text, table, codes, classes, places)
    m = start = 0
    while start < n:
        end = _token_end(classes, start)
        if end > start:
            bounds[m, 0], bounds[m, 1] = start, end
            m += 1
            start = end
        else:
            start += 1
    return codes, places, bounds[:m].copy()


def _origins(text: str) -> list[int]:
    """Return for each character of the normalised text the place in ``text`` it comes from.

    Characters that can combine with the one before them are normalised together with it.  Only
    marks and the vowels and final consonants of Hangul can.
    """
    starts: list[int] = []
    for i, character in enumerate(text):
        first = unicodedata.normalize("NFKC", character)[0]
        joins = unicodedata.category(first)[0] == "M" or "\u1160" <= first <= "\u11ff"
        if not starts or not joins:
            starts.append(i)
    origins: list[int] = []
    for start, stop in zip(starts, [*starts[1:], len(text)], strict=True):
        origins += [start] * len(normalize(text[start:stop]))
    return [*origins, len(text)]


def token_spans(text: str) -> list[tuple[str, int, int]]:
    """Return the tokens of a text, each with its place: ``text[start:stop]`` is how it is written.

    Examples
    --------
    >>> token_spans("I’m in C++")
    [("i'm", 0, 3), ('in', 4, 6), ('c++', 7, 10)]
    """
    scanned = np.frombuffer(normalize(text).encode("utf-32-le"), np.uint32)
    codes, places, bounds = _find_tokens(scanned, class_table(scanned))
    origins = list(range(len(text) + 1)) if text.isascii() else _origins(text)
    spans = []
    for start, end in bounds.tolist():
        token = codes[start:end].tobytes().decode("utf-32-le")
        last = int(places[end - 1])
        stop = last + 1
        while origins[stop] == origins[last]:  # a character that became several
            stop += 1
        spans.append((token, origins[int(places[start])], origins[stop]))
    return spans


def shared_words(a: str, b: str) -> list[tuple[int, int]]:
    """Return where in ``b`` the tokens stand that ``a`` has as well, ``!`` and ``?`` left out.

    Spans that touch, as in scripts without spaces, are one.

    Parameters
    ----------
    a, b : str

    Returns
    -------
    list of (start, stop), ascending
        ``b[start:stop]`` is what both texts share.

    Examples
    --------
    >>> b = "A quiet BEACH, far away"
    >>> [b[start:stop] for start, stop in shared_words("The beach was quiet.", b)]
    ['quiet', 'BEACH']
    """
    known = {token for token, _, _ in token_spans(a)} - {"!", "?"}
    spans: list[tuple[int, int]] = []
    for token, start, stop in token_spans(b):
        if token not in known:
            continue
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], stop
        else:
            spans.append((start, stop))
    return spans
