"""The reproduction ledger: right and deliberately broken models, tolerances, gaps."""

import json
import re

import numpy as np
import pytest

from poskernel_core import cli
from poskernel_core.analyses.base import Result
from poskernel_core.ledger import brief, check, compare, request_for
from poskernel_core.published import Published
from tests import builders

BACK, LENGTH = 3, 13


def figure(**fields):
    """A published figure; by default of a made result."""
    known = {
        "id": "one", "models": ("m",), "figure": "A figure", "source": "A post",
        "question": "etc", "value": "mass", "published": 0.5,
    }  # fmt: skip
    return Published(**known | fields)


def result(values, errors=None, axes=("layer", "head"), **more):
    """A result with one value."""
    return Result(
        analysis="etc",
        params={},
        values={"mass": np.asarray(values)},
        axes={"mass": axes},
        units={"mass": "share"},
        errors={} if errors is None else {"mass": np.asarray(errors)},
        **more,
    )


TABLE = result([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], [[0.01] * 3, [0.02] * 3])


@pytest.mark.parametrize(
    ("published", "absolute", "relative", "verdict"),
    [
        (0.50, 0.0, 0.0, "agrees"),
        (0.5399, 0.0, 0.0, "agrees"),  # two standard errors of ours
        (0.5401, 0.0, 0.0, "differs"),
        (0.5699, 0.03, 0.0, "agrees"),
        (0.5701, 0.03, 0.0, "differs"),
        (0.5999, 0.0, 0.1, "agrees"),  # 0.06 and 0.04
        (0.61, 0.0, 0.1, "differs"),
        (0.4601, 0.0, 0.0, "agrees"),
        (0.4599, 0.0, 0.0, "differs"),
    ],
)
def test_tolerance(published, absolute, relative, verdict):
    """The tolerance and two standard errors, on either side, and nothing more."""
    asked = figure(published=published, absolute=absolute, relative=relative,
                   select={"layer": 1, "head": 1})  # fmt: skip

    line = check(asked, TABLE)

    assert verdict == line.verdict
    assert (0.5, 0.02) == (line.ours, line.errors)
    assert (int(verdict == "agrees"), 1) == (line.within, line.points)
    assert abs(published - 0.5) == pytest.approx(line.worst)


def test_one_wrong_number_of_many():
    """A curve agrees only if every number does; the worst one is told."""
    row = {"layer": 1}
    right = check(figure(published=[0.41, 0.5, 0.6], absolute=0.0, select=row), TABLE)
    wrong = check(figure(published=[0.41, 0.5, 0.7], absolute=0.0, select=row), TABLE)

    assert ("agrees", 3, 3) == (right.verdict, right.within, right.points)
    assert ("differs", 2, 3) == (wrong.verdict, wrong.within, wrong.points)
    assert 0.1 == pytest.approx(wrong.worst)


def test_cells_shorter_rows_and_gaps():
    """One number a head; a published row that ends early; a number that was not published."""
    cells = check(figure(cells=("L1H2", "L0H1"), published=[0.6, 0.2]), TABLE)
    short = check(figure(published=[0.4, 0.5], select={"layer": 1}), TABLE)
    gap = check(figure(published=[None, 0.5, 0.6], select={"layer": 1}), TABLE)

    assert ("agrees", [0.6, 0.2], [0.02, 0.01]) == (cells.verdict, cells.ours, cells.errors)
    assert ("agrees", [0.4, 0.5]) == (short.verdict, short.ours)
    assert ("agrees", 2, 2) == (gap.verdict, gap.within, gap.points)


def test_a_missing_number_of_ours_never_agrees():
    """NaN is not within any tolerance, whatever the error."""
    ours = result([np.nan, 0.5], [np.nan, 0.1], ("layer",))

    line = check(figure(published=[0.5, 0.5], absolute=10.0), ours)

    assert ("differs", 1, 2, [None, 0.5]) == (line.verdict, line.within, line.points, line.ours)


def test_ratio():
    """A figure relative to another selection, its error divided likewise."""
    line = check(
        figure(published=1.25, select={"layer": 1, "head": 1}, over={"layer": 1, "head": 0}), TABLE
    )

    assert "agrees" == line.verdict
    assert (1.25, 0.05) == (pytest.approx(line.ours), pytest.approx(line.errors))


def test_words_and_the_largest_cell():
    """Kinds are compared as words; the head with the most is named."""
    kinds = result([[0, 1, 1], [1, 0, 1]], labels={"mass": ("local", "uniform")})
    asked = {"cells": ("L0H0", "L1H1", "L1H2")}

    right = check(figure(published=["local", "local", "uniform"], **asked), kinds)
    wrong = check(figure(published=["local", "local", "local"], **asked), kinds)
    largest = figure(published="L1H2", reading="largest cell")

    assert ("agrees", "differs", 2) == (right.verdict, wrong.verdict, wrong.within)
    assert "agrees" == check(largest, TABLE).verdict
    assert "differs" == check(largest.model_copy(update={"published": "L1H1"}), TABLE).verdict


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"select": {"layer": 2}}, "No layer 2: expected 0 to 1"),
        ({"cells": ("L0H3",), "published": [0.5]}, "A cell is written"),
        ({"value": "other"}, "No value 'other' in 'etc': expected one of mass"),
        ({"published": [[0.5]], "select": {"layer": 0}}, r"Expected \[1, 1\] numbers"),
        ({"published": [0.1] * 4, "select": {"layer": 0}}, r"Expected \[4\] numbers, computed"),
        ({"published": ["a", "b"], "select": {"layer": 0, "head": 0}}, "Expected 2 words, comp"),
        ({"published": "0.5", "select": {"layer": 0, "head": 0}}, "is a number, not a word"),
        ({"select": {"layr": 1}}, "has the axes layer, head, not 'layr'"),
        ({"over": {"text": 1}}, "has the axes layer, head, not 'text'"),
        ({"candidate": " a"}, "has the axes layer, head, not 'candidate'"),
        ({"published": "L0H0", "reading": "largest cell", "select": {"layer": 0}}, "every head"),
    ],
)
def test_what_a_result_does_not_hold(fields, words):
    """The line says why; nothing agrees by accident."""
    labelled = result((TABLE.values["mass"] * 0).astype(int), labels={"mass": ("a",)})
    words_asked = isinstance(fields.get("published"), list) and fields["published"][0] == "a"
    line = check(figure(**fields), labelled if words_asked else TABLE)

    assert "not computed" == line.verdict
    assert (None, 0, 0) == (line.ours, line.within, line.points)
    assert re.search(words, line.why)


def test_the_figure_decides_on_its_run():
    """Fields of the figure win over those of the run; a corpus is given by name."""
    asked = figure(run={"start_token": False, "context": 64, "corpus": "bible"})

    request = request_for(asked, "demo-attn-2l", start_token=True, windows=7)

    run = request.run
    assert (False, 64, "bible", 7) == (run.start_token, run.context, run.corpus.name, run.windows)


def test_brief():
    """A number with three digits, the first four of many, words as they are."""
    assert ["0.123", "2", "None", "a"] == [brief(each) for each in (0.12345, 2, None, "a")]
    assert "[1, 2, 3, 4, ...]" == brief([1.0, 2.0, 3.0, 4.0, 5.0])
    assert "[[0.5, 1], [2]]" == brief([[0.5, 1.0], [2.0]])


KNOWN = [
    {
        "id": "offset", "figure": "How far back L0H0 looks", "value": "largest_offset",
        "select": {"condition": 1, "layer": 0, "head": 0}, "published": BACK,
    },
    {
        "id": "row", "figure": "L0H0 from query 9", "value": "pattern", "absolute": 1e-3,
        "select": {"condition": 0, "layer": 0, "head": 0, "query": 9},
        "published": [0.0] * 6 + [1.0] + [0.0] * 3,
    },
    {
        "id": "uniform", "figure": "L0H1 from query 9", "value": "pattern", "relative": 1e-3,
        "select": {"condition": 0, "layer": 0, "head": 1, "query": 9}, "published": [0.1] * 10,
    },
]  # fmt: skip


@pytest.fixture
def ledger(tmp_path, monkeypatch, capsys):
    """The ledger of a model that looks back so far, as the command line prints it."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    common = {
        "models": ["known"], "source": "by construction", "question": "position-vs-token",
        "run": {"start_token": True}, "params": {"length": LENGTH, "samples": 4},
    }  # fmt: skip
    file = tmp_path / "figures.json"
    file.write_text(json.dumps([common | each for each in KNOWN]))

    def one(back, *options, name="known"):
        model = builders.look_back(tmp_path / f"back-{back}", back)
        code = cli.main(["reproduce", str(model), "--as", name, "--figures", str(file), *options])
        assert 0 == code
        return capsys.readouterr().out

    return one


@pytest.mark.slow
def test_a_right_and_a_broken_model(ledger):
    """A model with the known answers agrees in all; one that looks back otherwise does not."""
    right = json.loads(ledger(BACK, "--json"))
    broken = json.loads(ledger(BACK + 2, "--json"))

    assert ["agrees"] * 3 == [line["verdict"] for line in right]
    assert ["differs", "differs", "agrees"] == [line["verdict"] for line in broken]
    assert [BACK, BACK + 2] == [lines[0]["ours"] for lines in (right, broken)]
    assert 1.0 == pytest.approx(broken[1]["worst"], abs=1e-3)


@pytest.mark.slow
def test_the_ledger_in_words(ledger):
    """Every figure with its source, both numbers and the count; a model without figures says so."""
    text = ledger(BACK)

    assert "agrees        offset: How far back L0H0 looks" in text
    assert "by construction" in text
    assert "3 published figures: 3 agrees" in text


def test_figures_of_another_name(tmp_path, capsys):
    """A name that nothing was published of is probably mistyped: one sentence, exit code 2."""
    assert 2 == cli.main(["reproduce", "demo-gpt2", "--as", "gpt3"])

    said = capsys.readouterr()
    assert "No figures were published of 'gpt3'; there are some of NeelNanda" in said.err
    assert "" == said.out


def test_a_model_without_figures(tmp_path, capsys, monkeypatch):
    """It says so; nothing is computed."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))

    assert 0 == cli.main(["reproduce", "demo-gpt2"])
    assert "No figures were published of 'demo-gpt2'" in capsys.readouterr().out


@pytest.mark.parametrize(
    "run", [{"model": "x"}, {"windows": "many"}, {"seed": -3}, {"colour": 1}, {"context": "abc"}]
)
def test_a_run_that_is_none(run):
    """The line says so, and the others are computed."""
    lines = list(compare("demo-gpt2", [figure(run=run), figure(id="two")], lambda _: TABLE))

    assert "not computed" == lines[0].verdict
    assert "The figure's run" in lines[0].why
    assert "two" == lines[1].figure.id


def test_a_next_token():
    """The probability of one of the likeliest next tokens, by its text."""
    ours = result(
        [0.7, 0.2], None, ("candidate",),
        coordinates={"candidate": np.array([31, 7])},
        provenance={"candidates": [" turtle", " pirate"]},
    )  # fmt: skip
    asked = figure(published=0.2, candidate=" pirate")

    assert ("agrees", 0.2) == (check(asked, ours).verdict, check(asked, ours).ours)
    missing = check(figure(published=0.2, candidate=" ninja"), ours)
    assert "not computed" == missing.verdict
    assert "' ninja' is not among the likeliest next tokens" in missing.why
