"""Tables of others, head by head: each format, what is missing, and a sentence for each bad one."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.common.errors import BadRequest
from poskernel_core.data.head_tables import MAX_TABLE_BYTES, parse_head_table, read_head_table

SHAPE = (2, 3)


def parsed(text, name="table.csv", shape=SHAPE):
    return parse_head_table(text.encode(), name, shape)


def test_headvis(tmp_path):
    rows = [
        {"layer": layer, "head": head, "self_attention_score": layer + head / 10,
         "qk_distance": None if layer else 3.5, "mine": 7}
        for layer in range(2) for head in range(3)
    ]  # fmt: skip
    (tmp_path / "scatter_data.json").write_text(json.dumps(rows))
    found = pk.read_head_table(tmp_path / "scatter_data.json", SHAPE)

    assert ("scatter_data.json", "HeadVis", "") == (found.source, found.kind, found.model)
    assert ["self_attention_score", "qk_distance", "mine"] == [*found.columns]
    expected = [[0, 0.1, 0.2], [1, 1.1, 1.2]]
    np.testing.assert_allclose(expected, found.columns["self_attention_score"])
    np.testing.assert_allclose([[3.5] * 3, [np.nan] * 3], found.columns["qk_distance"])


def test_retrieval_heads():
    found = parsed('{"0-2": [0.5, 1.0], "1-0": [0.25], "1-1": 1}', "llama_2_7b.json")
    np.testing.assert_allclose(
        [[np.nan, np.nan, 0.75], [0.25, 1, np.nan]], found.columns["llama 2 7b"]
    )
    assert "retrieval-head scores" == found.kind


@pytest.mark.parametrize("divider", ["\t", ",", " ", ";"])
def test_a_matrix(divider):
    rows = [["0.5", "1e-3", "1"], ["0", "0.25", "nan"]]
    text = "\n".join(divider.join(row) for row in rows) + "\n"
    if divider == ";":
        text = text.replace("nan", "")  # nothing, in a file that ends a row so
    (column,) = parsed(text, "full_attention_heads.tsv").columns.values()
    np.testing.assert_allclose([[0.5, 0.001, 1], [0, 0.25, np.nan]], column)


def test_any_table():
    text = "# a comment\nModel,Head,LAYER,score,kind\nllama,2,1,0.5,copying\nllama,0,0,,name\n"
    found = parsed(text)
    assert ("llama", ["score"]) == (found.model, [*found.columns])
    np.testing.assert_allclose([[np.nan] * 3, [np.nan, np.nan, 0.5]], found.columns["score"])


def test_a_table_of_ours(tmp_path):
    from poskernel_core.common.result import Result
    from poskernel_core.export.files import to_csv

    numbers = np.arange(6.0).reshape(SHAPE)
    result = Result("etc", {}, {"etc": numbers}, {"etc": ("layer", "head")}, {"etc": "tokens"},
                    provenance={"model": "demo"})  # fmt: skip
    (tmp_path / "ours.csv").write_text(to_csv(result))

    found = read_head_table(tmp_path / "ours.csv", SHAPE)
    assert "demo" == found.model
    np.testing.assert_array_equal(numbers, found.columns["etc (tokens)"])


def test_without_a_shape():
    found = parsed("layer,head,a\n4,1,2\n0,6,3\n", shape=None)
    assert (5, 7) == found.columns["a"].shape


@given(st.integers(1, 7), st.integers(1, 5), st.data())
def test_what_is_written_is_read(layers, heads, data):
    number = st.one_of(st.none(), st.floats(-1e9, 1e9).map(lambda x: round(x, 3)))
    values = {(layer, head): data.draw(number) for layer in range(layers) for head in range(heads)}
    places = data.draw(st.permutations(sorted(values)))
    rows = [{"head": head, "layer": layer, "x": values[layer, head]} for layer, head in places]
    found = parsed(json.dumps(rows), shape=(layers, heads))
    if found.columns:
        expected = np.full((layers, heads), np.nan)
        for place, value in values.items():
            expected[place] = np.nan if value is None else value
        np.testing.assert_allclose(expected, found.columns["x"])


WHOLE = "layer,head,a\n" + "".join(f"{i},{j},1\n" for i in range(3) for j in range(3))
BAD = {
    "comments alone": ("# layer head\n# 0 0\n", "it holds comments alone"),
    "a head of a table": ("layer,head,a\n", "nothing follows its first line"),
    "empty": ("", "it is empty: expected HeadVis"),
    "no table": ("once upon a time\nthere was a text\n", "its columns are once, upon, a, time"),
    "no columns": ("depth,head,a\n0,0,1\n", "the columns layer and head; its columns are depth"),
    "no numbers": ("layer,head\n0,0\n", "no column of numbers beside layer and head"),
    "words": ("layer,head,a\n0,0,1\n1,0,high\n", "column 'a' holds 'high', which is not a number"),
    "word in a matrix": ("1 2 3\n1 2 x\n", "row 2 holds 'x', which is not a number"),
    "ragged": ("1,2,3\n1,2\n", "row 2 has 2 columns, the first 3"),
    "another model, whole": (WHOLE, "expected 2 layers of 3 heads, got 3 layers of 3 heads"),
    "another model, matrix": ("1 2\n3 4\n", "expected 2 layers of 3 heads, got 2 layers of 2 head"),
    "smaller model": (WHOLE.replace("2,", "1,"), "rows for L1H"),
    "retrieval of another": ('{"31-2": [1]}', "got 32 layers of 3 heads"),
    "twice": ("layer,head,a\n0,0,1\n0,0,2\n", "it has 2 rows for L0H0"),
    "no layer": ("layer,head,a\nfirst,0,1\n", "row 1 has 'first' as layer, expected 0 to 1023"),
    "a wide table": ("layer,head," + ",".join(f"c{i}" for i in range(65)) + "\n0,0" + ",1" * 65,
                     "it has 65 columns of numbers; 64 can be read"),
    "deep JSON": ("[" * 5000 + "]" * 5000, "it is not JSON that can be read"),
    "list of numbers": ("[1, 2]", "expected HeadVis' scatter_data.json"),
    "text of a head": ('{"0-1": ["x"]}', "head 0-1 holds 'x', which is not a number"),
    "no head": ('[{"layer": true, "head": 0, "a": 1}]', "row 1 has 'True' as layer"),
    "zero bytes": ("layer\0head", "it is not text"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_tables(case):
    text, words = BAD[case]
    with pytest.raises(BadRequest) as caught:
        parsed(text, "theirs.csv")

    sentence = str(caught.value)
    assert words in sentence
    assert sentence.startswith("Cannot use the table 'theirs.csv': ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 300


def test_large_and_strange_files(tmp_path):
    with pytest.raises(BadRequest, match="larger than 5 MB"):
        parse_head_table(b"1" * (MAX_TABLE_BYTES + 1), "x", SHAPE)
    with pytest.raises(BadRequest, match="it is not text"):
        parse_head_table(b"\xff\xfe\x00", "x", SHAPE)
    with pytest.raises(BadRequest, match="Cannot read"):
        read_head_table(tmp_path / "nothing.csv", SHAPE)


@given(st.text(alphabet='[]{}",:01-.eE \n\tlayerhead', max_size=80))
def test_any_text(text):
    try:
        found = parse_head_table(text.encode(), "any", None)
    except BadRequest:
        return
    assert found.columns
