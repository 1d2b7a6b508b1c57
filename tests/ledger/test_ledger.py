"""The reproduction ledger: right and deliberately broken models, tolerances, gaps."""

import re
from dataclasses import replace

import numpy as np
import pytest

from poskernel_core.analyses.interventions.spec import Intervention
from poskernel_core.common.result import Result
from poskernel_core.ledger.compare import brief, check
from poskernel_core.ledger.published import PublishedFigure


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
