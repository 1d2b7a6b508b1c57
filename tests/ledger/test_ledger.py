"""The reproduction ledger: right and deliberately broken models, tolerances, gaps, runs."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from poskernel_core.analyses.interventions.spec import Intervention
from poskernel_core.cli import main as cli
from poskernel_core.common.result import Result
from poskernel_core.ledger.compare import brief, check
from poskernel_core.ledger.published import PublishedFigure
from poskernel_core.ledger.reproduce import compare, request_for
from tests.support import builders

pytestmark = pytest.mark.usefixtures("near_worker")


def figure(**fields):
    known = {
        "id": "one", "models": ("m",), "figure": "A figure", "source": "A post",
        "question": "etc", "value": "mass", "published": 0.5,
    }  # fmt: skip
    return PublishedFigure(**known | fields)


def result(values, errors=None, axes=("layer", "head"), **more):
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
        (0.5391, 0.0, 0.0, "agrees"),  # 1.96 standard errors of ours
        (0.5393, 0.0, 0.0, "differs"),
        (0.5691, 0.03, 0.0, "agrees"),
        (0.5693, 0.03, 0.0, "differs"),
        (0.5989, 0.0, 0.1, "agrees"),  # 0.05989 and 0.0392
        (0.61, 0.0, 0.1, "differs"),
        (0.4609, 0.0, 0.0, "agrees"),
        (0.4607, 0.0, 0.0, "differs"),
    ],
)
def test_tolerance(published, absolute, relative, verdict):
    asked = figure(published=published, absolute=absolute, relative=relative,
                   select={"layer": 1, "head": 1})  # fmt: skip

    line = check(asked, TABLE)

    assert verdict == line.verdict
    assert (0.5, 0.02) == (line.ours, line.errors)
    assert (int(verdict == "agrees"), 1) == (line.within, line.points)
    assert abs(published - 0.5) == pytest.approx(line.worst)


def test_few_groups_allow_for_more():
    """Errors over ten groups have intervals of 2.262 of them."""
    ours = replace(TABLE, provenance={"errors": "documents", "groups": 10})
    for published, verdict in ((0.5451, "agrees"), (0.5453, "differs")):
        asked = figure(published=published, absolute=0.0, select={"layer": 1, "head": 1})
        assert verdict == check(asked, ours).verdict


def test_one_wrong_number_of_many():
    row = {"layer": 1}
    right = check(figure(published=[0.41, 0.5, 0.6], absolute=0.0, select=row), TABLE)
    wrong = check(figure(published=[0.41, 0.5, 0.7], absolute=0.0, select=row), TABLE)

    assert ("agrees", 3, 3) == (right.verdict, right.within, right.points)
    assert ("differs", 2, 3) == (wrong.verdict, wrong.within, wrong.points)
    assert 0.1 == pytest.approx(wrong.worst)


def test_cells_shorter_rows_and_gaps():
    cells = check(figure(heads=("L1H2", "L0H1"), published=[0.6, 0.2]), TABLE)
    short = check(figure(published=[0.4, 0.5], select={"layer": 1}), TABLE)
    gap = check(figure(published=[None, 0.5, 0.6], select={"layer": 1}), TABLE)
    one = {"layer": 1, "head": 1}
    ratio = check(figure(published=1.25, select=one, over={"layer": 1, "head": 0}), TABLE)

    assert ("agrees", [0.6, 0.2], [0.02, 0.01]) == (cells.verdict, cells.ours, cells.errors)
    assert ("agrees", [0.4, 0.5]) == (short.verdict, short.ours)
    assert ("agrees", 2, 2) == (gap.verdict, gap.within, gap.points)
    assert ("agrees", 1.25, 0.05) == (
        ratio.verdict, pytest.approx(ratio.ours), pytest.approx(ratio.errors)
    )  # fmt: skip

    ours = result([np.nan, 0.5], [np.nan, 0.1], ("layer",))  # what is missing never agrees
    line = check(figure(published=[0.5, 0.5], absolute=10.0), ours)
    assert ("differs", 1, 2, [None, 0.5]) == (line.verdict, line.within, line.points, line.ours)


def test_words_and_the_largest_cell():
    kinds = result([[0, 1, 1], [1, 0, 1]], labels={"mass": ("local", "uniform")})
    asked = {"heads": ("L0H0", "L1H1", "L1H2")}

    right = check(figure(published=["local", "local", "uniform"], **asked), kinds)
    wrong = check(figure(published=["local", "local", "local"], **asked), kinds)
    largest = figure(published="L1H2", reading="largest head")

    assert ("agrees", "differs", 2) == (right.verdict, wrong.verdict, wrong.within)
    assert "agrees" == check(largest, TABLE).verdict
    assert "differs" == check(largest.model_copy(update={"published": "L1H1"}), TABLE).verdict


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"select": {"layer": 2}}, "No layer 2: expected 0 to 1"),
        ({"heads": ("L0H3",), "published": [0.5]}, "A head is written"),
        ({"value": "other"}, "No value 'other' in 'etc': expected one of mass"),
        ({"published": [[0.5]], "select": {"layer": 0}}, r"Expected \[1, 1\] numbers"),
        ({"published": [0.1] * 4, "select": {"layer": 0}}, r"Expected \[4\] numbers, computed"),
        ({"published": ["a", "b"], "select": {"layer": 0, "head": 0}}, "Expected 2 words, comp"),
        ({"published": "0.5", "select": {"layer": 0, "head": 0}}, "is a number, not a word"),
        ({"select": {"layr": 1}}, "has the axes layer, head, not 'layr'"),
        ({"over": {"text": 1}}, "has the axes layer, head, not 'text'"),
        ({"candidate": " a"}, "has the axes layer, head, not 'candidate'"),
        ({"published": "L0H0", "reading": "largest head", "select": {"layer": 0}}, "every head"),
    ],
)
def test_what_a_result_does_not_hold(fields, words):
    labelled = result((TABLE.values["mass"] * 0).astype(int), labels={"mass": ("a",)})
    words_asked = isinstance(fields.get("published"), list) and fields["published"][0] == "a"
    line = check(figure(**fields), labelled if words_asked else TABLE)

    assert "not computed" == line.verdict
    assert (None, 0, 0) == (line.ours, line.within, line.points)
    assert re.search(words, line.why)


def test_brief():
    for number, error, text in (
        (0.12345, None, "0.123"), (2, None, "2"), (None, None, "None"), ("a", None, "a"),
        (0.12345, 0.02, "0.123 ± 0.020"),
        ([1.0, 2.0, 3.0, 4.0, 5.0], None, "[1, 2, 3, 4, ...]"),
        ([[0.12345, 1.0], [2.0]], [[0.02, None], [1.0]], "[[0.123 ± 0.020, 1], [2.0 ± 1.0]]"),
    ):  # fmt: skip
        assert text == brief(number, error)


def test_a_next_token():
    ours = result(
        [0.7, 0.2], None, ("candidate",), coordinates={"candidate": np.array([31, 7])}
    ).with_text(Intervention.texts[0], [" turtle", " pirate"])
    found = check(figure(published=0.2, candidate=" pirate"), ours)
    assert ("agrees", 0.2) == (found.verdict, found.ours)
    missing = check(figure(published=0.2, candidate=" ninja"), ours)
    assert "not computed" == missing.verdict
    assert "' ninja' is not among the likeliest next tokens" in missing.why


BACK, LENGTH = 3, 13
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
    right = json.loads(ledger(BACK, "--json"))
    broken = json.loads(ledger(BACK + 2, "--json"))

    assert ["agrees"] * 3 == [line["verdict"] for line in right]
    assert ["differs", "differs", "agrees"] == [line["verdict"] for line in broken]
    assert [BACK, BACK + 2] == [lines[0]["ours"] for lines in (right, broken)]
    assert 1.0 == pytest.approx(broken[1]["worst"], abs=1e-3)


def test_a_model_without_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    assert 2 == cli.main(["reproduce", "demo-gpt2", "--as", "gpt3"])
    said = capsys.readouterr()
    known = "there are some of attn-only-2l, distilgpt2, gpt2"
    assert f"No figures were published for 'gpt3'; {known}" in said.err
    assert "" == said.out
    assert 0 == cli.main(["reproduce", "demo-gpt2"])
    assert "No figures were published for 'demo-gpt2'" in capsys.readouterr().out


def test_the_figure_decides_on_its_run():
    asked = figure(run={"start_token": False, "context": 64, "corpus": "bible"})

    request = request_for(asked, "demo-attn-2l", start_token=True, windows=7)

    run = request.run
    assert (False, 64, "bible", 7) == (run.start_token, run.context, run.corpus.name, run.windows)


def test_a_run_that_is_none():
    runs = {"model": "x"}, {"windows": "many"}, {"seed": -3}, {"colour": 1}, {"context": "abc"}
    for run in runs:
        lines = list(compare("demo-gpt2", [figure(run=run), figure(id="two")], lambda _: TABLE))
        assert "not computed" == lines[0].verdict
        assert "The figure's run" in lines[0].why
        assert "two" == lines[1].figure.id
