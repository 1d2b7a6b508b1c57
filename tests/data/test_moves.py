"""How moves, layers and heads are written; and windows that are made."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.errors import BadRequest
from poskernel_core.data.made import doubled, repeated_windows
from poskernel_core.data.moves import parse_cells, parse_layers, parse_moves

# 0 is the start token; "pirate" is two tokens, "turtle" stands twice, there are two "ninja"s.
WORDS = [
    "<|endoftext|>", "The", " ninja", " saw", " a", " turtle", ",", " a", " pir", "ate", ".",
    " The", " turtle", " fled", " the", " ninja", "\n",
]  # fmt: skip

MOVES = {  # a text, and what it says; words of the sentence where it says nothing
    "9>4": {9: [4]},
    "9>9": {9: [9]},
    "9>4, 9>2, 9>4": {9: [4, 2]},
    "pirate>ninja": {8: [2]},
    "fled>pirate": {13: [9]},
    "turtle>ninja": {5: [2], 12: [2]},
    "10>pirate": {10: [9]},
    "10>pirate, fled>8, 10>The": {10: [9, 1], 13: [8]},
    "ninja><|endoftext|>": {2: [0], 15: [0]},
    "ninja>ninja": {2: [2], 15: [15]},
    "": "got none",
    "9": "written row>key",
    "ninja turtle": "written row>key",
    "9>10": "comes after it",
    "turtle>9": "comes after it",
    "17>4": "outside the prompt: choose 0 to 16",
    "shark>4": "no word 'shark'",
    "9>shark": "no word 'shark'",
    "8>pirate": "no word 'pirate' at or before position 8",
    "NINJA>3": "no word 'NINJA'",
    "ate>2": "no word 'ate'",
    "pir>2": "no word 'pir'",
    "9>nin": "no word 'nin'",
    "²>1": "no word '²'",
}
NO_LAYERS = dict.fromkeys(("", "7", "0-7", "a", "-2", "3-1", "0-1-2", "0-²"), "[Ll]ayers")
LAYERS = {
    "0-3": [0, 1, 2, 3], "0-2, 5": [0, 1, 2, 5], "5,0": [0, 5], "0 - 1": [0, 1], **NO_LAYERS,
}  # fmt: skip
CELLS = {
    "L0H3": [(0, 3)], "L1H4, L0H3": [(0, 3), (1, 4)], "l0h3 L0H3,L6H10": [(0, 3), (6, 10)],
} | dict.fromkeys(("", "L7H0", "L0H11", "3", "L0H3 and L1H4"), "L0H")  # fmt: skip


def moves(text):
    return parse_moves(text, WORDS)


def layers(text):
    return parse_layers(text, 7)


def cells(text):
    return parse_cells(text, 7, 11)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [(parse, *each) for parse, table in ((moves, MOVES), (layers, LAYERS), (cells, CELLS))
     for each in table.items()],
)  # fmt: skip
def test_what_is_written(parse, text, expected):
    if not isinstance(expected, str):
        assert expected == parse(text)
        return
    with pytest.raises(BadRequest, match=expected) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_word_that_begins_another():
    """`the` is not `there`, whose first token reads the same; a comma ends a word."""
    words = [" the", "re", " is", " the", ",", " end"]
    assert {3: [0]} == parse_moves("the>0", words)
    assert {5: [3]} == parse_moves("end>the", words)


def test_layers_far_outside():
    tracemalloc.start()
    with pytest.raises(BadRequest, match="layers from 0 to 6"):
        parse_layers("0-1000000", 7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@given(st.integers(2, 40), st.integers(1, 7), st.integers(0, 99), st.none() | st.integers(0, 41))
def test_repeated_windows(vocabulary, context, seed, avoid):
    choice = vocabulary - (avoid is not None and avoid < vocabulary)
    count = min(choice, 5)

    windows = repeated_windows(vocabulary, context=context, windows=count, avoid=avoid, seed=seed)

    assert (count, context) == windows.shape
    assert (windows == windows[:, :1]).all()
    tokens = set(windows[:, 0].tolist())
    assert count == len(tokens)
    assert avoid not in tokens
    assert tokens <= set(range(vocabulary))
    again = repeated_windows(vocabulary, context=context, windows=count, avoid=avoid, seed=seed)
    np.testing.assert_array_equal(windows, again)
    other = repeated_windows(293, context=context, windows=7, avoid=avoid, seed=seed + 1)
    mine = repeated_windows(293, context=context, windows=7, avoid=avoid, seed=seed)
    assert {*other[:, 0].tolist()} != {*mine[:, 0].tolist()}
    every = repeated_windows(vocabulary, context=context, windows=choice + 1, avoid=avoid)
    assert choice - choice % min(10, choice) == len(every) == len(set(every[:, 0].tolist()))


@pytest.mark.parametrize("vocabulary", [501, 811])
def test_fewer_repeated_windows_are_the_first(vocabulary):
    given = {"context": 3, "avoid": 7, "seed": 5}
    every = repeated_windows(vocabulary, windows=vocabulary - 1, **given)
    assert {*range(vocabulary)} - {7} == {*every[:, 0].tolist()}
    for windows in (1, 64, 500, vocabulary - 2):
        found = repeated_windows(vocabulary, windows=windows, **given)
        np.testing.assert_array_equal(every[:windows], found)


@pytest.mark.parametrize(
    ("every", "first", "expected"),
    [
        (2, 0, [10, 11, 11, 13, 13, 15, 15]),
        (2, 1, [10, 11, 12, 12, 14, 14, 16]),
        (3, 0, [10, 11, 12, 12, 14, 15, 15]),
        (3, 1, [10, 11, 12, 13, 13, 15, 16]),
        (7, 0, [10, 11, 12, 13, 14, 15, 16]),
        (50, 1, [10, 11, 12, 13, 14, 15, 16]),
    ],
)
def test_doubled(every, first, expected):
    windows = np.array([[10, 11, 12, 13, 14, 15, 16], [20, 21, 22, 23, 24, 25, 26]])
    found = doubled(windows, every, first=first)
    assert [expected, [token + 10 for token in expected]] == found.tolist()
    assert 11 == windows[0, 1]
    assert 12 == windows[0, 2]
