"""The measures that the grid of all heads is coloured by: each has words, numbers and a figure."""

import re

import numpy as np
import pytest

import poskernel_core as pk
from pages.shared.cards.explained import sections
from pages.shared.grid.measures import MEASURES, Measure
from pages.shared.selection.selection import Selection
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.additivity.spec import Additivity
from poskernel_core.analyses.contextual_heads.spec import ContextualHeads
from poskernel_core.analyses.definitions import method_of
from poskernel_core.analyses.measures import measure_called, one_a_head
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import plan_of
from poskernel_core.models import catalog
from poskernel_core.plotting.palette import NO_VALUE
from tests.support import builders
from tests.support.made_results import answer
from tests.support.passes import loaded
from tests.support.raw import analyse

EVERY = pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))
GEOMETRY = catalog.locate("demo-gpt2").geometry
FITTING = {title: each for title, each in MEASURES.items() if each.fits(GEOMETRY)}
QUERY, SKIP, LAYERS, HEADS = 40, 4, 3, 5
OF_SOME = ("sink-anatomy", "position-sources", "kernel-only-cost", "copying")
"""Questions that say nothing of a head without a sink, a positional score, an effect, a layer."""


@pytest.fixture(scope="module")
def found(model_dirs, engine, near_workers):
    """The results that measures ask for, as the page asks; each is computed once."""
    path = str(model_dirs["gpt2"])
    run = describe_run(path, windows=5, context=QUERY + 1)
    selection = Selection(catalog.locate(path, None), run, 1, 2, QUERY, SKIP)

    def ask(measure: Measure) -> Result:
        asked = plan_of(measure.question(), run, measure.params(selection))
        return one_a_head(measure.declared, engine.result(asked), query=QUERY)

    return ask


def grid_colours(measure: Measure, result: Result) -> list[str]:
    """The colours of the grid's cells, row by row."""
    shade = measure.shade(result, result.values[measure.declared.value].astype(float))
    return [colour for row in shade.colours for colour in row]


@EVERY
def test_the_question_exists_and_is_explained(measure) -> None:
    method = method_of(measure.question.name)
    words = measure.words()
    assert isinstance(ANALYSES[measure.question.name], measure.question)
    assert re.search(rf"\b{measure.declared.value}\b", "\n".join(method.values))
    assert words.reading.startswith("**How to read this.**")
    assert measure.declared.reading in words.reading
    assert sections(method)[0] in words.formula
    assert "$" in words.formula
    assert words.formula.endswith(sections(method)[-1])


def test_titles_units_and_places_differ() -> None:
    assert [each.declared.title for each in MEASURES.values()] == list(MEASURES)
    assert "etc" == next(iter(MEASURES.values())).declared.value
    assert len(MEASURES) == len(
        {(each.question, each.declared.value) for each in MEASURES.values()}
    )
    assert all(each.declared.unit for each in MEASURES.values())


@pytest.mark.parametrize("measure", FITTING.values(), ids=list(FITTING))
def test_every_head_has_a_number_and_its_colour(measure, found) -> None:
    result = found(measure)
    values = result.values[measure.declared.value].astype(float)
    assert (LAYERS, HEADS) == values.shape
    assert np.isfinite(values).all() or measure.question.name in OF_SOME
    assert result.units[measure.declared.value] or measure.declared.value in result.labels
    colours, shade = grid_colours(measure, result), measure.shade(result, values)
    assert colours.count(NO_VALUE) == np.isnan(values).sum()
    if not np.isfinite(values).any():  # this model has no sink
        assert measure.question.name == "sink-anatomy"
        return
    assert len([text for _, text in shade.legend if text]) > 1

    own, bar = ([[int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in some]
                for some in (colours, [colour for colour, _ in shade.legend]))  # fmt: skip
    step = np.abs(np.subtract(np.array(own)[:, None], bar)).sum(axis=-1).argmin(axis=1)
    order = np.argsort(values.ravel(), kind="stable")[: np.isfinite(values).sum()]
    assert (np.diff(step[order]) >= -1).all()


def test_parameters_and_the_last_shift(found) -> None:
    measures = {(each.question, each.declared.value): each for each in MEASURES.values()}
    heads = found(measures[ContextualHeads, "denominator_cv"])
    assert (QUERY, SKIP) == (heads.params["query"], heads.params["skip"])
    drift, share = (found(measures[Additivity, each])
                    for each in ("content_similarity", "position_share"))  # fmt: skip
    shifts = share.coordinates["shift"]
    np.testing.assert_array_equal(share.values["content_similarity"][..., np.argmax(shifts)],
                                  drift.values["content_similarity"])  # fmt: skip
    assert (drift.values["content_similarity"] < 1).all()


def test_a_head_without_a_number_is_grey() -> None:
    result, measure = answer("contextual-heads"), MEASURES["CV of the softmax denominator"]
    result.values["denominator_cv"][1, 2] = np.nan
    colours = grid_colours(measure, result)
    assert [1 * 3 + 2] == [i for i, each in enumerate(colours)
                                               if each == NO_VALUE]  # fmt: skip


def test_groups_have_the_colours_of_their_names() -> None:
    result, measure = answer("contextual-heads"), MEASURES["behaviour group"]
    named = {text: colour for colour, text in measure.shade(
        result, result.values[measure.declared.value].astype(float)).legend if text}  # fmt: skip
    words = [each for row in result.text_of("group") for each in row]
    assert [named[each] for each in words] == grid_colours(measure, result)


def test_sight_is_a_measure_where_layers_differ(model_dirs):
    sight = MEASURES["visible keys"]
    assert not sight.fits(GEOMETRY)
    geometry = catalog.locate(str(model_dirs["gpt_neo"])).geometry
    assert sight.fits(geometry)
    windows = builders.random_ids(3, 17).numpy()
    gathered = pk.run_pass(loaded(model_dirs["gpt_neo"]), windows, positions=(16,))
    found = one_a_head(sight.declared, analyse("etc", gathered, skip=0), query=16)
    for layer, row in zip(geometry.layers, found.values["visible_keys"], strict=True):
        assert set(row.tolist()) == {min(17, layer.window or 17)}


def test_a_measure_that_does_not_form() -> None:
    """What compares query positions is missing at a stage, and the sentence names it."""
    question, declared = measure_called("equivariance error", ANALYSES.values())
    etc, at = np.ones((1, 1, 1)), {"query": np.array([9])}
    stage = question.result(question.params(), {"etc": etc}, coordinates=at)
    with pytest.raises(BadRequest, match="'equivariance error' compares query positions"):
        one_a_head(declared, stage, query=9)
