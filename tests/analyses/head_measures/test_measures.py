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
from poskernel_core.analyses.kernels.etc import EtcHeatMap
from poskernel_core.analyses.measures import measure_called, one_a_head
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import plan_of
from poskernel_core.models import catalog
from poskernel_core.plotting.palette import NO_VALUE
from tests.support import made_contextual

pytestmark = pytest.mark.usefixtures("near_worker")

EVERY = pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))
GEOMETRY = catalog.locate("demo-gpt2").geometry
FITTING = {title: each for title, each in MEASURES.items() if each.fits(GEOMETRY)}
EACH = pytest.mark.parametrize("measure", FITTING.values(), ids=list(FITTING))
QUERY, SKIP, LAYERS, HEADS = 63, 4, 4, 8
OF_SOME = ("sink-anatomy", "position-sources")
"""Questions that say nothing of a head without a sink, or without a positional score."""


@pytest.fixture(scope="module")
def selection() -> Selection:
    """What a visitor has chosen: few short windows of the small model."""
    run = describe_run("demo-gpt2", windows=16, context=QUERY + 1)
    return Selection(catalog.locate("demo-gpt2", None), run, 1, 2, QUERY, SKIP)


@pytest.fixture(scope="module")
def found(selection, tmp_path_factory):
    """The results that measures ask for, as the page asks; each is computed once."""
    engine = pk.Engine(pk.Store(tmp_path_factory.mktemp("store")))

    def ask(measure: Measure) -> Result:
        asked = plan_of(measure.question(), selection.run, measure.params(selection))
        return one_a_head(measure.declared, engine.result(asked), query=selection.query)

    yield ask
    engine.close()
    engine.store.close()


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


@pytest.mark.slow
@EACH
def test_every_head_has_a_number_and_its_colour(measure, found) -> None:
    result = found(measure)
    values = result.values[measure.declared.value].astype(float)
    assert (LAYERS, HEADS) == values.shape
    assert np.isfinite(values).any()
    assert np.isfinite(values).all() or measure.question.name in OF_SOME
    assert result.units[measure.declared.value] or measure.declared.value in result.labels
    colours = grid_colours(measure, result)
    assert colours.count(NO_VALUE) == np.isnan(values).sum()
    assert len(set(colours)) > 1
    assert len([text for _, text in measure.shade(result, values).legend if text]) > 1


@pytest.mark.slow
@EACH
def test_equal_numbers_have_equal_colours_in_order(measure, found) -> None:
    result = found(measure)
    values = result.values[measure.declared.value].astype(float)
    bar = [colour for colour, _ in measure.shade(result, values).legend]
    rgb = np.array([[int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in bar])
    own = np.array([[int(each[at : at + 2], 16) for at in (1, 3, 5)]
                    for each in grid_colours(measure, result)])  # fmt: skip
    step = np.abs(own[:, None] - rgb).sum(axis=-1).argmin(axis=1)
    order = np.argsort(values.ravel(), kind="stable")[: np.isfinite(values).sum()]
    assert (np.diff(step[order]) >= -1).all()


@pytest.mark.slow
def test_the_numbers_are_those_of_the_analyses(selection, found) -> None:
    measures = {(each.question, each.declared.value): each for each in MEASURES.values()}
    heads = found(measures[ContextualHeads, "denominator_cv"])
    assert (QUERY, SKIP) == (heads.params["query"], heads.params["skip"])
    etc = found(measures[EtcHeatMap, "etc"])
    assert SKIP == etc.params["skip"]
    drift, share = (found(measures[Additivity, each])
                    for each in ("content_similarity", "position_share"))  # fmt: skip
    shifts = share.coordinates["shift"]
    np.testing.assert_array_equal(share.values["content_similarity"][..., np.argmax(shifts)],
                                  drift.values["content_similarity"])  # fmt: skip
    assert (drift.values["content_similarity"] < 1).all()


def test_a_head_without_a_number_is_grey() -> None:
    result, measure = made_contextual.heads(), MEASURES["CV of the softmax denominator"]
    result.values["denominator_cv"][1, 2] = np.nan
    colours = grid_colours(measure, result)
    assert [1 * made_contextual.HEADS + 2] == [i for i, each in enumerate(colours)
                                               if each == NO_VALUE]  # fmt: skip


def test_groups_have_the_colours_of_their_names() -> None:
    result, measure = made_contextual.heads(), MEASURES["behaviour group"]
    named = {text: colour for colour, text in measure.shade(
        result, result.values[measure.declared.value].astype(float)).legend if text}  # fmt: skip
    words = [each for row in result.text_of("group") for each in row]
    assert [named[each] for each in words] == grid_colours(measure, result)


def test_sight_is_a_measure_where_layers_differ(model_dirs):
    sight = MEASURES["visible keys"]
    assert not sight.fits(GEOMETRY)
    geometry = catalog.locate(str(model_dirs["gpt_neo"])).geometry
    assert sight.fits(geometry)
    found = pk.show("etc", str(model_dirs["gpt_neo"]), windows=3, params={"skip": 0})
    last = int(found.coordinates["query"][-1])
    seen = found.select(query=last).values["visible_keys"]
    for layer, row in zip(geometry.layers, seen, strict=True):
        assert set(row.tolist()) == {min(last + 1, layer.window or last + 1)}


def test_a_measure_that_does_not_form() -> None:
    """What compares query positions is missing at a stage, and the sentence names it."""
    question, declared = measure_called("equivariance error", ANALYSES.values())
    etc, at = np.ones((1, 1, 1)), {"query": np.array([9])}
    stage = question.result(question.params(), {"etc": etc}, coordinates=at)
    with pytest.raises(BadRequest, match="'equivariance error' compares query positions"):
        one_a_head(declared, stage, query=9)
