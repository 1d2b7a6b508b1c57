"""Where a head attends most sharply, read off the example texts."""

import numpy as np
import pytest

from poskernel_core.analyses.headvis.figures import examples_table, sharpest
from poskernel_core.common.result import Value
from tests.support.made_results import result

WORDS = ["<s>", " a", " b", "\n", " c"]
TEXTS, LENGTH, EXAMPLES, RANKS = 3, 7, 4, 2


@pytest.fixture
def found():
    """Two heads; of the second, texts 5 and 9 are kept, and two places are empty."""
    heads = (1, 2, EXAMPLES)
    attention = np.full((*heads, LENGTH, RANKS), 0.01)
    key = np.zeros((*heads, LENGTH, RANKS), dtype=int)
    attention[0, 1, 2, 6], key[0, 1, 2, 6] = (0.4, 0.3), (0, 2)  # key 0 does not count
    attention[0, 1, 2, 0], key[0, 1, 2, 0] = (0.9, 0.0), (0, 1)  # nor query 0
    attention[0, 1, 0, 5], key[0, 1, 0, 5] = (0.8, 0.1), (4, 1)
    values = {
        "example_text": np.full(heads, -1),
        "max_activation": np.full(heads, np.nan),
        "top_key": key,
        "top_attention": attention,
        "token": np.array([[0, 1, 2, 3, 4, 1, 2], [0, 4, 4, 4, 4, 4, 4], [0, 2, 1, 2, 1, 2, 1]]),
    }
    values["example_text"][0, 1, [0, 2]] = 9, 5
    values["max_activation"][0, 1, [0, 2]] = 0.8, 0.3
    found = result("head-examples", {}, values, coordinates={"text": np.array([5, 7, 9])})
    return found.with_text(Value("words", ("word",), "token", ""), WORDS)


def test_the_sharpest_first(found):
    first, second = sharpest(found, 0, 1)
    assert (first.attention, first.query, first.key) == (0.8, 5, 4)
    assert first.words == ("<s>", " b", " a", " b", " a", " b", " a")
    assert (second.attention, second.query, second.key) == (0.3, 6, 2)
    assert second.around(2) == ("<s> a", " b", "\n c a b")
    assert sharpest(found, 0, 1, most=1) == [first]
    assert sharpest(found, 0, 0) == []


def test_as_a_table(found):
    cells = examples_table(sharpest(found, 0, 1)).data[0].cells.values
    assert list(cells[0]) == ["0.800", "0.300"]
    assert list(cells[3]) == ["1", "4"]
