"""What of a result is text: kept exactly, selected with the values, read from earlier entries."""

import numpy as np
import pytest

from poskernel_core.analyses import find
from poskernel_core.common.result import TOKENS, Result, Value
from poskernel_core.engine.provenance import from_entry, to_entry
from poskernel_core.figures.exports import to_csv
from poskernel_core.storage.encoding import decode, encode

WORDS = [[" a", "b\0", "c"], ["\n", "", "\N{SNOWMAN}"]]
GROUP = Value("words", ("layer", "rank"), "token", "")


@pytest.fixture
def result():
    """A number for every layer, five candidates each, and three words."""
    value = np.arange(10.0).reshape(2, 5)
    axes, units = {"p": ("layer", "candidate")}, {"p": "share"}
    return Result("etc", {}, {"p": value}, axes, units).with_text(GROUP, WORDS)


def test_bytes_of_the_store(result):
    """Texts come back as they were, a NUL at their end included."""
    again = from_entry(decode(encode("key", *to_entry(result)), "key"))

    assert WORDS == again.texts["words"].tolist() == again.as_json()["texts"]["words"]
    assert (GROUP.axes, GROUP.unit) == (again.axes["words"], again.units["words"])


def test_selection(result):
    """A text is selected with the values; an axis that texts alone have is none to choose from."""
    one = result.select(layer=1)

    assert (WORDS[1], ("rank",)) == (one.words("words"), one.axes["words"])
    assert [] == result.words("tokens")
    with pytest.raises(Exception, match="has no rank to choose"):
        result.select(rank=0)
    assert {} == result.only("p").texts
    named = result.with_text(Value("names", ("candidate",), "name", ""), list("abcde")).only("p")
    assert (["names"], {"p", "names"}) == (list(named.texts), named.axes.keys())
    assert "d" == named.select(candidate=3).texts["names"]


def test_wrong_axes(result):
    """A text of other axes than were declared is refused."""
    with pytest.raises(ValueError, match=r"words: axes \('layer', 'rank'\) for shape \(2,\)"):
        result.with_text(GROUP, ["a", "b"])
    with pytest.raises(ValueError, match="does not declare"):
        type(find("etc")).result(find("etc").params(), {}, texts={"nothing": []})


def test_columns_of_a_table(result):
    """A text along axes of a table is a column of it; others have no place in it."""
    named = result.with_text(Value("names", ("layer",), "name", ""), ["one", "two, #"])
    lines = [line for line in to_csv(named).splitlines() if not line.startswith("#")]

    assert '"layer","candidate","p (share)","names"' == lines[0]
    assert ['0,4,4.0,"one"', '1,0,5.0,"two, #"'] == lines[5:7]


def earlier(analysis, provenance, **values):
    """An entry as it was written before results had texts; every value has its declared axes."""
    declared = {value.name: value for value in find(analysis).values}
    header = {
        "analysis": analysis, "params": {}, "labels": {}, "provenance": {"seed": 3} | provenance,
        "axes": {name: list(declared[name].axes) for name in values},
        "units": {name: declared[name].unit for name in values},
    }  # fmt: skip
    return from_entry((header, {f"values/{name}": array for name, array in values.items()}))


def test_texts_of_the_provenance():
    """Tokens, names and words move to their place, and nothing of them is left."""
    found = earlier("neuron-trace", {"tokens": [" x", "y"], "heads": ["L0H2"]}, true=np.ones(2))

    assert {"seed": 3} == found.provenance
    assert ([" x", "y"], ["L0H2"]) == (found.words("tokens"), found.words("heads"))
    assert (TOKENS.axes, ("chosen",)) == (found.axes["tokens"], found.axes["heads"])


def test_words_of_token_ids():
    """Each id is spelt where it stood."""
    ids = np.array([[5, 7], [7, 5]])
    words = {"token_words": {"5": " x", "7": "y"}, "listed": {"neuron 3, top": [[" x", 1.2345]]}}
    found = earlier("contextual-neurons", words, top=ids, bottom=ids[::-1])

    assert [[" x", "y"], ["y", " x"]] == found.texts["top_words"].tolist()
    assert [["y", " x"], [" x", "y"]] == found.texts["bottom_words"].tolist()
    assert ["neuron 3, top: ' x' 1.23"] == found.words("strongest")
    assert {"seed": 3} == found.provenance


def test_lists_and_numbers():
    """Both ends of a list become values and words; a neuron's bias is a value."""
    listed = {"up": [[" x", 1.5]], "down": [["y", -2.5]]}
    found = earlier("neuron", {"listed": listed, "bias": 0.25}, contribution=np.ones(3))

    assert ([" x"], ["y"]) == (found.words("top_words"), found.words("bottom_words"))
    assert (1.5, -2.5) == (found.values["top_value"], found.values["bottom_value"])
    assert 0.25 == found.values["bias"]
    assert ("rank",) == found.axes["top_value"]
    assert {"seed": 3} == found.provenance


def test_an_unknown_question():
    """An earlier entry of a question that is no longer there is no result."""
    assert from_entry(({"analysis": "gone", "provenance": {}}, {})) is None
