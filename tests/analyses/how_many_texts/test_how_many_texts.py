"""How many texts are enough: the law, the errors of fewer groups, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses import find
from poskernel_core.analyses.views import figure_of, finding_of
from poskernel_core.common.result import BEGINNINGS
from poskernel_core.common.rounding import counted
from poskernel_core.common.views import without
from tests.support import builders
from tests.support.passes import loaded
from tests.support.raw import analyse
from tests.support.refusals import refused

WINDOWS, CONTEXT, QUERY = 37, 23, 19


@pytest.fixture(scope="module")
def gathered(model_dirs):
    ids = builders.random_ids(WINDOWS, CONTEXT, seed=3).numpy()
    model = loaded(model_dirs["gpt2"])
    gather = ("keys", "queries", "patterns", "sinks")
    return pk.run_pass(model, ids, positions=(7, QUERY), gather=gather)


def answer(gathered, **params):
    return analyse("how-many-texts", gathered, query=QUERY, **params)


def group_means(gathered, layer, head):
    """The attention to key 0 in each group, from what is stored."""
    arrays = gathered.layer(layer)
    off = arrays["alpha.groups"][:, head, 0] * arrays["alpha.step"][0, head, 0]
    return [float(arrays["alpha"][head, 0] + each) for each in off]


def test_errors_of_fewer_groups_against_loops(gathered):
    found = answer(gathered, measure="attention sink", wanted=0.01)
    assert [6, 15, 30] == found.coordinates["subset"].tolist()
    for layer in range(found.values["law"].shape[0]):
        for head in range(found.values["law"].shape[1]):
            means = group_means(gathered, layer, head)
            squares, weights = [], []
            for size in (2, 5, 10):
                sets = [means[first : first + size] for first in range(0, 10, size)]
                each = [
                    sum((one - sum(some) / size) ** 2 for one in some) / (size - 1) / size
                    for some in sets
                ]
                squares.append(sum(each) / len(each))
                weights.append((size - 1) * len(sets))
            law = math.sqrt(
                sum(w * s * n for w, s, n in zip(weights, squares, (6, 15, 30), strict=True))
                / sum(weights)
            )
            at = layer, head
            np.testing.assert_allclose(
                found.values["error"][:, layer, head], np.sqrt(squares), rtol=1e-4, atol=1e-8
            )
            assert found.values["law"][at] == pytest.approx(law, rel=1e-4, abs=1e-8)
            assert math.ceil((found.values["law"][at] / 0.01) ** 2) == found.values["enough"][at]


def test_the_last_error_is_that_of_the_measure(gathered):
    found = answer(gathered)
    etc = analyse("etc", gathered).select(query=QUERY)
    np.testing.assert_allclose(etc.errors["etc"], found.values["error"][-1], rtol=1e-9)
    np.testing.assert_allclose(etc.values["etc"], found.values["value"], rtol=1e-6)
    np.testing.assert_allclose(0.05 * etc.values["etc"], found.values["wanted"], rtol=1e-6)
    assert not found.errors


@pytest.mark.parametrize("measure", ["attention sink", "effective token count"])
def test_influence_against_pseudo_values(gathered, measure):
    """By hand for a mean of groups; on the logarithmic scale where the measure is corrected so."""
    found = answer(gathered, measure=measure).values["influence"]
    known = np.isfinite(found).all(axis=0)
    np.testing.assert_allclose(1, found.sum(axis=0)[known])
    for layer, head in np.argwhere(known).tolist():
        if measure == "attention sink":
            means = group_means(gathered, layer, head)
            off = [each - sum(means) / 10 for each in means]
        else:
            views = [without(gathered, group) for group in range(10)]
            question = find("etc")
            each = [
                question.numbers({"main": view}, question.params(), lambda *_: None)
                .select(query=QUERY)
                .values["etc"]
                for view in views
            ]
            logs = [math.log(one[layer, head]) for one in each]
            off = [one - sum(logs) / 10 for one in logs]
        total = sum(one**2 for one in off)
        want = [one**2 / total for one in off]
        np.testing.assert_allclose(found[:, layer, head], want, rtol=1e-3, atol=1e-6)


def test_one_group_decides(gathered):
    """It is named; where no group makes much of the error, nothing is said."""
    found = answer(gathered).select(layer=1, head=2)
    for largest, said in ((0.7, "0.70 of the squared error"), (0.5, "")):
        influence = np.full(10, (1 - largest) / 9)
        influence[4] = largest
        one = replace(found.only("influence"), values={"influence": influence})
        assert finding_of(one).startswith(said)
        assert bool(said) == finding_of(one).endswith("number 4.")
        named = one.with_text(BEGINNINGS, [f'"<b>of</b> {group}"' for group in range(10)])
        assert finding_of(named) == finding_of(one).replace("4.", '4: "<b>of</b> 4".')
        (bars,) = figure_of(named).data
        assert '<br>"&lt;b&gt;of&lt;/b&gt; 4"' == bars.customdata[4]


def test_four_times_as_many_windows_halve_the_error(gathered):
    one, half = (answer(gathered, wanted=wanted).values["enough"] for wanted in (1e-3, 5e-4))
    assert np.all(np.abs(half - 4 * one) <= 4)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"measure": "kind of kernel"}, "'kind of kernel' has no error"),
        ({"measure": "induction score"}, "No measure 'induction score'"),
        ({"wanted": 0.0}, "greater than 0"),
    ],
)
def test_what_has_no_answer_is_refused(gathered, params, sentence):
    with refused(sentence):
        answer(gathered, **params)


def test_few_windows_are_refused(model_dirs):
    ids = builders.random_ids(3, CONTEXT, seed=3).numpy()
    model = loaded(model_dirs["gpt2"])
    few = pk.run_pass(model, ids, positions=(QUERY,), gather=("keys", "queries", "patterns"))
    with refused("Expected four groups of texts or more, got 3"):
        answer(few)


def test_figures(gathered):
    found = answer(gathered)
    heat = figure_of(found)
    enough = found.values["enough"]
    assert heat.data[0].customdata[1][2] == counted(f"{enough[1, 2]:,.0f}", "window")
    one = figure_of(found.select(layer=1, head=2))
    law, marks = one.data
    np.testing.assert_array_equal([6, 15, 30], marks.x)
    (note,) = one.layout.annotations
    assert note.y == pytest.approx(math.log10(found.values["wanted"][1, 2]))
    np.testing.assert_allclose(law.y, found.values["law"][1, 2] / np.sqrt(law.x))
    assert "of L1H2" in one.layout.title.text
    assert counted(f"{enough[1, 2]:,.0f}", "window") in one.layout.title.text
