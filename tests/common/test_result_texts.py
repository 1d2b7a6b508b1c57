"""What of a result is text: kept exactly, and selected with the values."""

from dataclasses import replace

import numpy as np
import pytest

from poskernel_core.analyses import find
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result, Value
from poskernel_core.engine.provenance import from_entry, to_entry
from poskernel_core.export.files import to_csv
from poskernel_core.storage.encoding import decode, encode

WORDS = [[" a", "b\0", "c"], ["\n", "", "\N{SNOWMAN}"]]
GROUP = Value("words", ("layer", "rank"), "token", "")


@pytest.fixture
def result():
    value = np.arange(10.0).reshape(2, 5)
    axes, units = {"p": ("layer", "candidate")}, {"p": "share"}
    return Result("made", {}, {"p": value}, axes, units).with_text(GROUP, WORDS)


def test_bytes_of_the_store(result):
    again = from_entry(decode(encode("key", *to_entry(result)), "key"))
    assert WORDS == again.texts["words"].tolist() == again.as_json()["texts"]["words"]
    assert (GROUP.axes, GROUP.unit) == (again.axes["words"], again.units["words"])


def test_biases_in_the_store(result):
    biased = replace(result, biases={"p": np.arange(10.0).reshape(2, 5) / 7})
    header, arrays = to_entry(biased)
    again = from_entry(decode(encode("key", header, arrays), "key"))
    before = from_entry((header, {n: a for n, a in arrays.items() if n != "biases/p"}))

    np.testing.assert_array_equal(biased.biases["p"], again.biases["p"])
    assert {} == before.biases
    np.testing.assert_array_equal(result.values["p"], before.values["p"])


def test_what_was_stored_as_an_estimate():
    """The share of noise is a share, and no estimate: as it is declared now, so it is read."""
    sources = find("position-sources")
    noise, position = np.array([[-0.02, 1.11, np.nan]]), np.array([[0.9, 0.4, 0.2]])
    axes, units = {"noise": ("layer", "head")}, {"noise": "share of Var(a)"}
    stored = Result(
        sources.name, {}, {"noise": noise, "position_share": position},
        axes | {"position_share": ("layer", "head")}, units | {"position_share": "share"},
        {"noise": noise, "position_share": position}, {"noise": noise, "position_share": position},
    )  # fmt: skip
    again = from_entry(to_entry(stored))
    assert [[0, 1, None]] == again.text_of("noise")
    assert {"position_share"} == again.errors.keys() == again.biases.keys()

    made = sources.result(sources.params(), {"noise": noise, "position_share": position})
    assert [[0, 1, None]] == made.text_of("noise")
    with pytest.raises(ValueError, match="not with errors"):
        sources.result(sources.params(), {"noise": noise}, {"noise": noise})


def test_selection(result):
    one = result.select(layer=1)

    assert (WORDS[1], ("rank",)) == (one.words("words"), one.axes["words"])
    assert (WORDS, WORDS[1]) == (result.text_of("words"), one.text_of("words"))
    with pytest.raises(BadRequest, match="'word' in 'etc': expected one of p, words"):
        result.text_of("word")
    assert [] == result.words("tokens")
    with pytest.raises(Exception, match="has no rank to choose"):
        result.select(rank=0)
    assert {} == result.only("p").texts
    named = result.with_text(Value("names", ("candidate",), "name", ""), list("abcde")).only("p")
    assert (["names"], {"p", "names"}) == (list(named.texts), named.axes.keys())
    assert "d" == named.select(candidate=3).texts["names"]


def test_wrong_axes(result):
    with pytest.raises(ValueError, match=r"words: axes \('layer', 'rank'\) for shape \(2,\)"):
        result.with_text(GROUP, ["a", "b"])
    with pytest.raises(ValueError, match="does not declare"):
        type(find("etc")).result(find("etc").params(), {}, texts={"nothing": []})


def test_columns_of_a_table(result):
    named = result.with_text(Value("names", ("layer",), "name", ""), ["one", "two, #"])
    lines = [line for line in to_csv(named).splitlines() if not line.startswith("#")]
    assert '"layer","candidate","p (share)","names"' == lines[0]
    assert ['0,4,4.0,"one"', '1,0,5.0,"two, #"'] == lines[5:7]


def test_what_holds_no_result():
    assert from_entry(({"analysis": "etc", "provenance": {}}, {})) is None
    assert from_entry(({}, {})) is None
