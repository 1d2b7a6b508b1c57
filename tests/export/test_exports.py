"""Every export says what it is of, and read back holds the numbers exactly."""

import io
import json
import re
import sys
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.definitions import errors_of
from poskernel_core.analyses.views import finding_of
from poskernel_core.cli.reports import summary
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import BESIDE, NPZ, Result, Value
from poskernel_core.export import files
from poskernel_core.export.files import (
    bibtex,
    caption,
    citation,
    file_stem,
    identity,
    to_csv,
    to_frame,
    to_html,
    to_json,
    to_npz,
    to_xarray,
)
from poskernel_core.export.notebook import View
from tests.support.made_findings import made
from tests.support.made_results import answer

RUN = {"model": "org/some-model", "revision": None, "model_fingerprint": "0123456789abcdef",
       "corpus": "sample", "windows": 5, "context": 7, "start_token": True, "seed": 0,
       "dtype": "float32", "date": "2026-01-02T03:04:05+00:00"}  # fmt: skip
LAYERS, HEADS, KEYS = 2, 3, 5


COUNT = "Numbers are corrected for bias. Errors count documents, in 10"


@pytest.fixture
def whole():
    random = np.random.default_rng(3)
    return Result(
        analysis="kernel",
        params={"skip": 4, "query": 400},
        values={
            "kernel": random.random((LAYERS, HEADS, KEYS)),
            "etc": random.random((LAYERS, HEADS)),
            "kind": np.array([[0, 1, -1], [1, 1, 0]]),
            "share": np.array(0.1 + 0.2),
        },
        axes={"kernel": ("layer", "head", "key"), "etc": ("layer", "head"),
              "kind": ("layer", "head"), "share": ()},
        units={"kernel": "share of attention", "etc": "tokens", "kind": "kind", "share": "share"},
        errors={"etc": random.random((LAYERS, HEADS)), "share": np.array(0.01)},
        **{part: {"etc": random.random((LAYERS, HEADS))} for part in BESIDE if part != "errors"},
        labels={"kind": ("local", "uniform")},
        coordinates={"key": np.arange(10, 10 + KEYS)},
        provenance=RUN,
    )  # fmt: skip


@pytest.fixture
def head(whole):
    return whole.select(layer=1, head=2)


def read(text: str) -> pd.DataFrame:
    """Before pandas 3, numbers are read with errors unless the exact way is named."""
    exact = {} if pd.__version__ >= "3" else {"float_precision": "round_trip"}
    return pd.read_csv(io.StringIO(text), comment="#", **exact)


def scalars(text: str) -> dict[str, str]:
    lines = (line[2:] for line in text.splitlines() if line.startswith("# "))
    return dict(line.split(": ", 1) for line in lines)


def test_identity(whole, head):
    """Another run has another digest, whatever its date; an axis is no position."""
    about = identity(head)
    assert {"model": "org/some-model", "revision": "main", "layer": 1, "head": 2, "n": 400,
            "skip": 4, "windows": 5, "date": RUN["date"]}.items() <= about.items()  # fmt: skip
    assert about["run"] == identity(whole)["run"]
    assert "head" not in identity(whole)
    full = Result("a", {"query": 3}, {"x": np.zeros(2)}, {"x": ("query",)}, {"x": ""})
    assert "n" not in identity(full)

    def digest(**changed: object) -> str:
        return identity(replace(whole, **changed))["run"]

    assert digest() == digest(provenance=RUN | {"date": "later"})
    others = {"params": whole.params | {"skip": 5}, "analysis": "another",
              "provenance": RUN | {"model_fingerprint": "another"}}  # fmt: skip
    assert 4 == len({digest(), *(digest(**{name: each}) for name, each in others.items())})


def test_file_names():
    for chosen, params, stem in (
        ({"layer": 2, "head": 6}, {"query": 400}, "org_some-model-L2H6-n400-a-curve"),
        ({"layer": 2}, {}, "org_some-model-L2-a-curve"),
        ({"query": 31}, {}, "org_some-model-n31-a-curve"),
        ({}, {"head": "L1H0"}, "org_some-model-L1H0-a-curve"),
        ({}, {}, "org_some-model-a-curve"),
    ):
        one = Result("a", params, {}, {}, {}, provenance=RUN, chosen=chosen)
        assert stem == file_stem(one, "curve")
        assert stem.removesuffix("-curve") == file_stem(one, "a")


def test_csv_of_all_heads(whole):
    text = to_csv(whole)
    table = read(text)
    assert {"org/some-model"} == set(table["model"])
    assert {400} == set(table["n"])
    curves = table.dropna(subset="kernel (share of attention)")
    assert LAYERS * HEADS * KEYS == len(curves)
    assert whole.values["kernel"].ravel().tolist() == curves["kernel (share of attention)"].tolist()
    assert [*range(10, 15)] * 6 == curves["key"].astype(int).tolist()
    heads = table.dropna(subset="etc (tokens)")
    assert whole.values["etc"].ravel().tolist() == heads["etc (tokens)"].tolist()
    beside = {f"etc {called}": getattr(whole, part) for part, called in BESIDE.items()}
    for called, part in beside.items():
        assert part["etc"].ravel().tolist() == heads[called].tolist()
    assert ["etc (tokens)", *beside] == [each for each in table.columns if each.startswith("etc")]
    assert [0, 0, 0, 1, 1, 1] == heads["layer"].tolist()
    assert ["local", "uniform", "", "uniform", "uniform", "local"] == (
        heads["kind (kind)"].fillna("").tolist()
    )
    assert heads["key"].isna().all()


def test_csv_of_one_head(head):
    text = to_csv(head)
    table = read(text)
    assert {(1, 2)} == set(zip(table["layer"], table["head"], strict=True))
    assert head.values["kernel"].tolist() == table["kernel (share of attention)"].tolist()
    said = scalars(text)
    assert f"{float(head.values['etc'])!r} tokens" == said["etc"]
    for part, called in BESIDE.items():
        assert f"{float(getattr(head, part)['etc'])!r} tokens" == said[f"etc {called}"]
    assert "share bias" not in said
    assert ("0.30000000000000004 share", "local kind") == (said["share"], said["kind"])
    assert ("main", "4", "2026-01-02T03:04:05+00:00") == tuple(
        said[name] for name in ("revision", "skip", "date")
    )
    assert not any("etc" in column for column in table.columns)


def test_what_is_not_defined_is_blank_and_layers_are_whole(whole):
    """Also where other rows have no layer."""
    masked = whole.values["kernel"].copy()
    masked[0, 1, 2] = np.nan
    alone = {"kernel": masked, "trend": np.arange(KEYS) / 7}
    made = replace(whole, values=whole.values | alone, axes=whole.axes | {"trend": ("key",)},
                   units=whole.units | {"trend": "share"})  # fmt: skip
    text = to_csv(made)
    assert "nan" not in text.lower()
    (gone,) = [
        each
        for _, each in read(text).iterrows()
        if [each["layer"], each["head"], each["key"]] == [0, 1, 12]
    ]
    assert np.isnan(gone["kernel (share of attention)"])
    frame = to_frame(made)
    assert {"Int64"} == {str(frame[name].dtype) for name in ("layer", "head", "key")}
    assert KEYS == frame["layer"].isna().sum()
    assert "float64" == str(frame["trend (share)"].dtype)


def test_data_sets(whole, monkeypatch):
    """Values and what stands beside them have named axes, coordinates and units."""
    data = to_xarray(whole)
    assert {"kernel", "etc", "etc_error", "etc_low", "etc_high"} <= {*data.data_vars}
    assert (("layer", "head"), "tokens") == (data["etc_low"].dims, data["etc_low"].attrs["units"])
    at = data["kernel"].sel(key=12).isel(layer=1, head=2)
    place = whole.coordinates["key"].tolist().index(12)
    assert whole.values["kernel"][1, 2, place] == at.item()
    np.testing.assert_array_equal(whole.lows["etc"], data["etc_low"])
    assert whole.provenance["model"] == data.attrs["model"]
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(BadRequest, match="pip install xarray"):
        to_xarray(whole)


def test_csv_with_a_hash_in_a_word(head):
    table = read(to_csv(replace(head, provenance=RUN | {"model": "a#b"})))
    assert ({"a#b"}, KEYS) == (set(table["model"]), len(table))


@pytest.mark.parametrize("name", ANALYSES)
def test_npz_of_every_question(name, monkeypatch):
    """All that a question declares is in the file, and in a data set: no name stands twice."""
    monkeypatch.setattr(files, "finding_of", lambda made: "")
    question, made = ANALYSES[name], answer(name)
    sure = {v.name: v.is_row for v in question.values if v.has_error}
    beside = {
        part: {
            v: np.asarray(made.values[v] + at)
            for v, row in sure.items()
            if part == "errors" or not row
        }
        for at, part in enumerate(BESIDE)
    }
    made = replace(made, **beside)
    errors = {
        f"{name}_{end}": array
        for part, end in NPZ.items()
        for name, array in getattr(made, part).items()
    }
    assert {"error", "low", "plug_in"} <= {*NPZ.values()}

    with np.load(io.BytesIO(to_npz(made)), allow_pickle=False) as file:
        for arrays in (made.values, errors, made.coordinates):
            for key, array in arrays.items():
                np.testing.assert_array_equal(array, file[key])
        assert identity(made) == json.loads(str(file["identity"]))
        axes = json.loads(str(file["layout"]))["axes"]
        assert {key: [*each] for key, each in made.axes.items()} == axes
    assert {*made.values, *made.texts, *errors, *made.coordinates} == {*to_xarray(made).variables}


@pytest.mark.parametrize("told", [{}, {"errors": "documents", "groups": 10}])
def test_every_export_says_what_errors_count(head, told):
    head = replace(head, provenance=RUN | told)
    sentence = errors_of(head)
    page = unescape(to_html([], head, "curve"))
    with np.load(io.BytesIO(to_npz(head)), allow_pickle=False) as file:
        within = [json.loads(str(file["error_counts"])), json.loads(to_json(head))["error_counts"]]
    inside = re.search(r'<script type="application/json" id="about">(.*?)</script>', page)[1]

    assert sentence.startswith(COUNT if told else "Errors count queries")
    assert [sentence] * 4 == [*within, scalars(to_csv(head))["errors"],
                              json.loads(inside)["error_counts"]]  # fmt: skip
    assert f"<p>{caption(head)}. {sentence}</p>" in page
    bare = replace(head, errors={})
    assert "errors" not in scalars(to_csv(bare))
    assert f"<p>{caption(bare)}</p>" in unescape(to_html([], bare, "curve"))


@pytest.mark.parametrize("twice", ["key", "etc_error", "etc_bias", "word"])
def test_a_name_that_stands_twice(whole, twice):
    whole = whole.with_text(Value("word", (), "word", ""), "a")

    with pytest.raises(ValueError, match=f"{twice}.*as well"):
        replace(
            whole,
            values=whole.values | {twice: np.array(1.0)},
            axes={twice: (), **whole.axes},
            units={twice: "", **whole.units},
        )


def test_json(head):
    found = json.loads(to_json(head))
    for part in BESIDE:
        assert float(getattr(head, part)["etc"]) == found[part]["etc"]
    assert head.values["kernel"].tolist() == found["values"]["kernel"]
    assert {"layer": 1, "head": 2} == found["at"]
    assert identity(head) == found["identity"]
    assert "finding" not in found


def test_every_export_states_the_finding():
    at = {"chosen": {"layer": 3, "head": 4}, "provenance": RUN | {"device": "cpu"}}
    sinks = made("sinks", {"alpha": [0.625, 0.01, 0.02]}, {"alpha": 0.01}, **at)
    said = finding_of(sinks)
    assert said
    assert said == json.loads(to_json(sinks))["finding"]
    with np.load(io.BytesIO(to_npz(sinks))) as file:
        assert said == json.loads(str(file["finding"]))
    page = unescape(to_html([], sinks, "sinks"))
    assert f"<p>{said}</p>" in page
    view = View(sinks)
    assert said in view.html(library=False)
    assert said in repr(view).splitlines()
    assert said in summary(sinks).splitlines()


def test_html(head):
    figures = [go.Figure(go.Scatter(y=head.values["kernel"])) for _ in range(2)]
    page = to_html(figures, head, "curve", title="A <curve>")
    title = unescape(re.search(r"<title>(.*?)</title>", page)[1])
    assert "org/some-model, L1H2, n = 400: A <curve>" == title
    assert caption(head) in unescape(re.search(r"<p>(.*?)</p>", page)[1])
    assert all(each in caption(head) for each in ("L1H2", "n 400", "skip 4", RUN["date"]))
    inside = re.search(r'<script type="application/json" id="about">(.*?)</script>', page)[1]
    assert identity(head) == json.loads(inside)["identity"]
    assert 2 == page.count('class="plotly-graph-div"')
    assert 1 == len(re.findall(r"\* plotly\.js v", page))
    assert 2 == page.count('"showSendToCloud": false')
    assert "org_some-model-L1H2-n400-kernel-curve" in page
    assert '<script src="http' not in page


def test_heads_that_are_compared_are_named():
    found = Result(
        analysis="compare-kernels",
        params={"heads": "L2H6@a,L0H1@b;context=64", "query": 40},
        values={"distance": np.zeros((2, 2))},
        axes={"distance": ("pin", "other"), "heads": ("pin",)},
        units={"distance": "share", "heads": "head"},
        texts={"heads": np.array(["L2H6@a", "L0H1@b;context=64"], dtype=object)},
        provenance=RUN | {"model": "a, b"},
    )
    both = "L2H6@a, L0H1@b;context=64"

    assert "a_b-L2H6-L0H1-n40-compare-kernels-kernels" == file_stem(found, "kernels")
    assert caption(found).startswith(f"{both}, model a, b")
    assert 1 == caption(found).count("L2H6")
    for text in (citation(found, "Kernels"), bibtex(found, "Kernels"), to_csv(found)):
        assert both in text


def test_citations(head):
    """What TeX reads is escaped, and the braces balance, also where a name has one."""
    for text in (citation(head, "A curve"), bibtex(head, "A curve")):
        for part in ("A curve", "org/some-model", "L1H2", identity(head)["run"], "2026-01-02"):
            assert part in text
    assert re.match(r"@software\{poskernel-[0-9a-f]{12},\n", bibtex(head, "A curve"))
    run = head.provenance | {"model": r"a{b_c\d%e&f#g"}
    entry = bibtex(replace(head, provenance=run), "50 % of L1_H2 & more~^$")
    assert r"a\textbraceleft{}b\_c\textbackslash{}d\%e\&f\#g" in entry
    assert r"50 \% of L1\_H2 \& more\textasciitilde{}\textasciicircum{}\$" in entry
    assert entry.count("{") == entry.count("}")
