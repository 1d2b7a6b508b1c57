"""The pictures of a text of the reader's own: what the browser gets, and the figures."""

import base64
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.drawing import figure_of
from poskernel_core.analyses.own_text import figures as draw
from poskernel_core.common.result import texts_array
from tests.support.made_results import result

LAYERS, HEADS, LENGTH, SKIP = 2, 3, 7, 2
TOKENS = ["<s>", " a", "b\n", "\u202e", "\x00", "<b>", " "]


def heads():
    """All heads on a text; layer 1 has none."""
    found = result(
        "own-text",
        {
            "pattern": (LAYERS, HEADS, LENGTH, LENGTH),
            "position_share": (LAYERS, HEADS),
            "content_share": (LAYERS, HEADS),
        },
        coordinates={"query": np.arange(LENGTH), "key": np.arange(LENGTH)},
    )
    for array in found.values.values():
        array[1] = np.nan
    return found


def head(length=LENGTH, first=0):
    """One head on a text, from the query `first` on."""
    rows, random = length - first, np.random.default_rng(3)
    queries = np.arange(first, length)
    pattern = np.tril(random.uniform(0.1, 1, (length, length)))
    pattern = (pattern / pattern.sum(axis=1, keepdims=True))[first:]
    future = np.arange(length) > queries[:, None]
    position, content = (
        np.where(future, np.nan, random.normal(size=(rows, length))) for _ in range(2)
    )
    kernel = np.exp(position)
    kernel[:, :SKIP] = np.nan
    kernel /= np.nansum(kernel, axis=1, keepdims=True)
    codes = {
        "score": position + content,
        "position": position,
        "content": content,
        "pattern": pattern,
        "kernel": kernel,
    }
    tokens = [TOKENS[at % len(TOKENS)] for at in range(length)]
    found = result("own-text-head", {}, codes, coordinates={"query": queries})
    found.params["head"] = "L0H1"
    found.texts["tokens"] = texts_array(tokens)
    found.axes["tokens"], found.units["tokens"] = ("pos",), "token"
    return found


def test_patterns_of_all_heads_in_bytes():
    found = heads()
    packed = draw.packed_patterns(found)
    cells = np.frombuffer(base64.b64decode(packed["cells"]), np.uint8)
    cells = cells.reshape(LAYERS, HEADS, LENGTH, LENGTH)

    assert (LAYERS, HEADS, LENGTH, [1]) == tuple(
        packed[name] for name in ("layers", "heads", "side", "bare")
    )
    pattern = found.values["pattern"][0]
    top = packed["top"]
    assert 0.98 <= (pattern[:, *np.tril_indices(LENGTH)] <= top).mean()
    np.testing.assert_allclose((cells[0] / 255) ** 2, np.minimum(pattern / top, 1), atol=2 / 255)
    assert not cells[1].any()
    assert draw.head_labels(found)[1][2] == "L1H2: no heads in this layer"


@pytest.mark.parametrize("first", [0, 3])
def test_one_head_in_words(first):
    found = head(first=first)
    packed = draw.packed_head(found)
    shares = np.frombuffer(base64.b64decode(packed["cells"]), "<u2") / 65535
    rows = np.split(shares, np.cumsum(np.arange(first, LENGTH) + 1)[:-1])

    assert (first, LENGTH - first) == (packed["first"], packed["rows"])
    for n, row in enumerate(rows):
        expected = found.values["pattern"][n, : first + n + 1]
        np.testing.assert_allclose(row, expected, atol=1e-5)
    assert "\\u202e" == packed["tokens"][3]


@given(st.text())
def test_tokens_show_what_they_hold(text):
    shown = draw.token_text(text)

    hidden = ("Cc", "Cf", "Cs", "Co", "Cn")
    assert not any(unicodedata.category(letter) in hidden for letter in shown)
    assert draw.token_text("hé<b>") == "hé<b>"
    assert draw.token_text(" \x1b\n") == "␣\\u001b⏎"


def test_the_row_of_a_query():
    found = head().select(query=5)
    figure = draw.row_figure(found)
    drawn = {trace.name: np.asarray(trace.y, float) for trace in figure.data}

    seen = slice(SKIP, 6)
    np.testing.assert_allclose(
        drawn["position a"] + drawn["content c"], drawn["score s = a + c"], atol=1e-9
    )
    score = found.values["score"][seen]
    np.testing.assert_allclose(drawn["score s = a + c"], score - score.mean())
    np.testing.assert_allclose(drawn["kernel K, by position alone"], found.values["kernel"][seen])
    pattern = found.values["pattern"][seen]
    np.testing.assert_allclose(drawn["actual attention A"], pattern / pattern.sum())
    assert "&lt;b&gt;" in figure.data[0].customdata[3]


def test_a_query_with_nothing_to_see():
    figure = draw.row_figure(head().select(query=1))
    assert all(len(trace.x) == 0 for trace in figure.data)


def test_long_rows_are_lines():
    """Bars would be finer than pixels."""
    figure = draw.row_figure(head(300).select(query=299))
    assert {"scatter"} == {trace.type for trace in figure.data}


def test_figures_of_results():
    for found in (heads(), head(), head().select(query=5)):
        assert figure_of(found).data
