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
        # ours is 0.5, its 90 % interval 0.4671 to 0.5329, that of 95 % 0.4608 to 0.5392
        (0.50, 0.034, 0.0, "agrees"),
        (0.50, 0.032, 0.0, "undecided"),
        (0.51, 0.044, 0.0, "agrees"),
        (0.51, 0.042, 0.0, "undecided"),
        (0.58, 0.042, 0.0, "undecided"),
        (0.58, 0.040, 0.0, "differs"),
        (0.42, 0.040, 0.0, "differs"),
        (0.40, 0.0, 0.1, "differs"),
        (0.50, 0.0, 0.1, "agrees"),
        (0.50, 0.0, 0.0, "undecided"),
    ],
)
def test_tolerance(published, absolute, relative, verdict):
    asked = figure(published=published, absolute=absolute, relative=relative,
                   select={"layer": 1, "head": 1})  # fmt: skip

    line = check(asked, TABLE)

    assert (verdict, 0.5, 0.02) == (line.verdict, line.ours, line.errors)
    assert abs(published - 0.5) == pytest.approx(line.difference)
    assert absolute + relative * published == pytest.approx(line.tolerance)


def test_few_groups_have_wider_intervals():
    """Of errors over four groups the 90 % interval is 2.353 of them, that of 95 % 3.182."""
    ours = replace(TABLE, provenance={"errors": "documents", "groups": 4})
    for absolute, verdict in ((0.0472, "agrees"), (0.0469, "undecided")):
        asked = figure(published=0.5, absolute=absolute, select={"layer": 1, "head": 1})
        assert verdict == check(asked, ours).verdict
    for absolute, verdict in ((0.0365, "undecided"), (0.0362, "differs")):
        asked = figure(published=0.6, absolute=absolute, select={"layer": 1, "head": 1})
        assert verdict == check(asked, ours).verdict


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("windows", [4, 10, 60, 500])
def test_figures_made_up(windows, wrong):
    """Of wrong figures, and of true ones, at most 5 % get the wrong verdict, however few texts."""
    random, truth, samples = np.random.default_rng(7), 0.3, 300
    groups = min(10, windows)
    each = random.normal(truth, 0.2, (windows, samples)).reshape(groups, -1, samples).mean(axis=1)
    error = each.std(axis=0, ddof=1) / np.sqrt(groups)
    told = {"errors": "documents", "groups": groups, "windows": windows}
    ours = result(each.mean(axis=0), error, ("head",), provenance=told)
    tolerance = 0.02 + 0.1 * truth
    published = truth + 3 * tolerance * wrong

    asked = [figure(published=published, absolute=tolerance, select={"head": head})
             for head in range(samples)]  # fmt: skip
    lines = [check(one, ours) for one in asked]
    verdicts = [line.verdict for line in lines]
    assert 0.05 * samples >= verdicts.count("agrees" if wrong else "differs")
    if windows == 500:
        assert 0.2 * samples >= verdicts.count("undecided")
    needed = [line.windows for line in lines if line.verdict == "undecided"]
    assert all(number > windows for number in needed)
    assert windows > 10 or np.median(needed) < 1000


def test_a_curve_is_one_number():
    row = {"layer": 1}
    right = check(figure(published=[0.41, 0.5, 0.6], absolute=0.05, select=row), TABLE)
    wrong = check(figure(published=[0.41, 0.5, 0.9], absolute=0.05, select=row), TABLE)

    assert (right.verdict, wrong.verdict) == ("agrees", "differs")
    assert (pytest.approx(0.01 / 3), pytest.approx(0.31 / 3)) == (
        right.difference,
        wrong.difference,
    )
    # entries without the published number in their interval are at least so far away
    assert pytest.approx((0.3 - 0.0392) / 3) == wrong.low


def test_cells_shorter_rows_and_gaps():
    cells = check(figure(heads=("L1H2", "L0H1"), published=[0.6, 0.2], absolute=0.1), TABLE)
    short = check(figure(published=[0.4, 0.5], select={"layer": 1}, absolute=0.1), TABLE)
    gap = check(figure(published=[None, 0.5, 0.6], select={"layer": 1}, absolute=0.1), TABLE)
    one = {"layer": 1, "head": 1}
    over = {"layer": 1, "head": 0}
    ratio = check(figure(published=1.25, select=one, over=over, absolute=0.1), TABLE)

    assert ("agrees", [0.6, 0.2], [0.02, 0.01]) == (cells.verdict, cells.ours, cells.errors)
    assert ("agrees", [0.4, 0.5]) == (short.verdict, short.ours)
    assert ("agrees", 0.0) == (gap.verdict, gap.difference)
    assert ("agrees", 1.25, 0.05) == (
        ratio.verdict, pytest.approx(ratio.ours), pytest.approx(ratio.errors)
    )  # fmt: skip

    ours = result([np.nan, 0.5], [np.nan, 0.1], ("layer",))  # what is missing never agrees
    line = check(figure(published=[0.5, 0.5], absolute=10.0), ours)
    assert ("differs", None, [None, 0.5]) == (line.verdict, line.difference, line.ours)
    unknown = check(figure(published=[0.5], absolute=10.0), result([0.5], [np.nan], ("layer",)))
    assert ("undecided", None) == (unknown.verdict, unknown.low)


def test_words():
    kinds = result([[0, 1, 1], [1, 0, 1]], labels={"mass": ("local", "uniform")})
    asked = {"heads": ("L0H0", "L1H1", "L1H2")}

    right = check(figure(published=["local", "local", "uniform"], **asked), kinds)
    wrong = check(figure(published=["local", "local", "local"], **asked), kinds)
    assert ("agrees", "differs") == (right.verdict, wrong.verdict)


@pytest.mark.parametrize(
    ("published", "error", "verdict"),
    [("L1H2", 0.02, "agrees"), ("L1H2", 0.04, "undecided"), ("L1H1", 0.02, "differs"),
     ("L1H1", 0.04, "undecided"), ("L1H0", 0.04, "differs")],
)  # fmt: skip
def test_the_largest_head(published, error, verdict):
    """0.6 and 0.5 differ if their errors together are below 0.1 / 1.96."""
    ours = replace(TABLE, errors={"mass": np.full((2, 3), error)})
    line = check(figure(published=published, reading="largest head"), ours)
    assert (verdict, ["L1H2"]) == (line.verdict, line.ours)


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
    assert (None, None) == (line.ours, line.difference)
    assert re.search(words, line.why)


def test_brief():
    for number, error, text in (
        (0.12345, None, "0.123"), (-7e-7, None, "−7×10⁻⁷"),
        (2, None, "2"), (None, None, "None"), ("a", None, "a"),
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
    assert 0.2 == pytest.approx(broken[1]["difference"], abs=1e-3)


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
