"""The pictures of a text of the reader's own: what the browser gets, and the figures."""

import base64
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.own_text import figures as draw
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import texts_array
from tests.support.made_results import result

LENGTH, SKIP = 7, 2
TOKENS = ["<s>", " a", "b\n", "\u202e", "\x00", "<b>", " "]


def head(length=LENGTH, first=0):
    """One head on a text, from the query `first` on."""
    random, queries = np.random.default_rng(3), np.arange(first, length)
    pattern = np.tril(random.uniform(0.1, 1, (length, length)))
    pattern = (pattern / pattern.sum(axis=1, keepdims=True))[first:]
    future = np.arange(length) > queries[:, None]
    position, content = (np.where(future, np.nan, random.normal(size=future.shape)) for _ in "ac")
    kernel = np.exp(position)
    kernel[:, :SKIP] = np.nan
    kernel /= np.nansum(kernel, axis=1, keepdims=True)
    codes = {"score": position + content, "position": position, "content": content,
             "pattern": pattern, "kernel": kernel}  # fmt: skip
    found = result("own-text-head", {}, codes, coordinates={"query": queries})
    found.params["head"] = "L0H1"
    found.texts["tokens"] = texts_array([TOKENS[at % len(TOKENS)] for at in range(length)])
    found.axes["tokens"], found.units["tokens"] = ("pos",), "token"
    return found


def test_patterns_of_all_heads_in_bytes():
    """Layer 1 has no heads."""
    shares = dict.fromkeys(("position_share", "content_share"), (2, 3))
    found = result("own-text", shares | {"pattern": (2, 3, LENGTH, LENGTH)})
    for array in found.values.values():
        array[1] = np.nan
    assert figure_of(found).data
    packed = draw.packed_patterns(found)
    cells = np.frombuffer(base64.b64decode(packed["cells"]), np.uint8).reshape(2, 3, LENGTH, LENGTH)

    sizes = [packed[name] for name in ("layers", "heads", "side", "bare")]
    assert [2, 3, LENGTH, [1]] == sizes
    pattern, top = found.values["pattern"][0], packed["top"]
    assert 0.98 <= (pattern[:, *np.tril_indices(LENGTH)] <= top).mean()
    np.testing.assert_allclose((cells[0] / 255) ** 2, np.minimum(pattern / top, 1), atol=2 / 255)
    assert not cells[1].any()
    assert draw.head_labels(found)[1][2] == "L1H2: no heads in this layer"


@pytest.mark.parametrize("first", [0, 3])
def test_one_head_in_words(first):
    found = head(first=first)
    packed = draw.packed_head(found)
    shares = np.frombuffer(base64.b64decode(packed["cells"]), "<u2") / 65535

    assert (first, LENGTH - first) == (packed["first"], packed["rows"])
    rows = [row[: first + n + 1] for n, row in enumerate(found.values["pattern"])]
    np.testing.assert_allclose(shares, np.concatenate(rows), atol=1e-5)
    assert "\\u202e" == packed["tokens"][3]


@given(st.lists(st.integers(0, 0x10FFFF).map(chr), max_size=7).map("".join))
def test_tokens_show_what_they_hold(text):
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn")
    assert not any(unicodedata.category(letter) in hidden for letter in draw.token_text(text))
    assert ["hé<b>", "␣\\u001b⏎"] == [*map(draw.token_text, ("hé<b>", " \x1b\n"))]


def test_the_row_of_a_query():
    found = head().select(query=5)
    figure, seen = draw.one_row(found), slice(SKIP, 6)
    drawn = {trace.name: np.asarray(trace.y, float) for trace in figure.data}
    score, pattern = (found.values[name][seen] for name in ("score", "pattern"))
    whole = drawn["position a"] + drawn["content c"]
    for rows in (whole, drawn["score s = a + c"]):
        np.testing.assert_allclose(rows, score - score.mean(), atol=1e-9)
    np.testing.assert_allclose(drawn["kernel K, by position alone"], found.values["kernel"][seen])
    np.testing.assert_allclose(drawn["actual attention A"], pattern / pattern.sum())
    assert "&lt;b&gt;" in figure.data[0].customdata[3]


def test_a_query_with_nothing_to_see():
    nothing = draw.one_row(head().select(query=1))
    assert all(len(trace.x) == 0 for trace in nothing.data)
    assert figure_of(head()).data
