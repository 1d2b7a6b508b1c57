"""Attention that can be foreseen: by hand, in plain loops, and heads whose answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.analyses import find
from poskernel_core.analyses.foreseen import formulas
from poskernel_core.analyses.foreseen.formulas import WAYS
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.specs import ALL_GATHERED, RunSpec
from tests.support import builders
from tests.support import oracles_foreseen as oracle
from tests.support.builders.families import FAMILY_MODELS
from tests.support.builders.foreseen import sink_and_content
from tests.support.oracles_groups import choices, groups_of
from tests.support.passes import loaded
from tests.support.raw import analyse
from tests.support.refusals import refused
from tests.support.truth import truth_of

CONTEXT, SKIP, N = 41, 3, 37
POSITIONS = (1, 8, 19, 29, N, 40)
WINDOWS, READ, SAMPLED = 23, 20, 2
ATOL = 1e-6
MODELS = {
    "gpt2": (None, [(0, 1), (2, 4)]),
    "llama": (None, [(0, 3), (1, 5)]),  # 6 query heads share 2 keys
    "mistral": (7, [(1, 4)]),  # a sliding window; 5 query heads share 1 key
}


def ask(gathered, query=N, **params):
    return analyse("foreseen-attention", gathered, query=query, **params)


@pytest.fixture(scope="module")
def made(model_dirs):
    """A pass of a model, and its layers as plain transformers computes them."""
    kept = {}

    def one(name):
        if name not in kept:
            path, windows = model_dirs[name], builders.random_ids(WINDOWS, CONTEXT, seed=29).numpy()
            gathered = pk.run_pass(
                loaded(path), windows, positions=POSITIONS, queries_per_position=10 * SAMPLED
            )
            truth, groups = truth_of(path, windows[:READ]), groups_of(READ)
            read = zip(truth.queries, truth.keys, truth.attentions, strict=True)
            layers = [oracle.Layer(*each, groups, SAMPLED, MODELS[name][0]) for each in read]
            kept[name] = gathered, layers
        return kept[name]

    return one


def agrees(found, name, at, numbers, size=1.0):
    """A value and its error, or range, agree with the numbers of all texts and without each group.

    ``size``: the largest that the value can be.
    """
    parts, spread = ("values", "errors"), [oracle.error(numbers)]
    if name not in found.errors:
        parts, spread = ("values", "lows", "highs"), [min(numbers), max(numbers)]
    have = [getattr(found, part)[name][at] for part in parts]
    want = [numbers[0], *spread]
    np.testing.assert_allclose(have, want, rtol=0, atol=ATOL * size, err_msg=f"{name} {at}")


@pytest.mark.parametrize("name", MODELS)
def test_heads_against_loops(made, name):
    gathered, layers = made(name)
    found = ask(gathered, skip=SKIP)
    budgets = found.coordinates["budget"].tolist()
    assert (set(WAYS), ["way"]) == (set(found.words("ways")), list(found.axes["ways"]))

    for layer, head in MODELS[name][1]:
        by_way = {}
        for way, called in enumerate(oracle.WAYS):
            curves = [
                layers[layer].captured(called, head, some, N, SKIP)
                for some in choices(layers[layer].groups)
            ]
            by_way[called] = curves
            visible = len(curves[0])
            assert visible == found.values["visible_keys"][layer, head]
            for place, budget in enumerate(budgets):
                numbers = [curve[min(budget, visible) - 1] for curve in curves]
                agrees(found, "captured", (layer, head, way, place), numbers)
            keys = [oracle.keys_for(curve) for curve in curves]
            agrees(found, "keys_for_95", (layer, head, way), keys, visible)
        for budget in (16, 32, 64):
            kernel, fixed = (
                [curve[min(budget, len(curve)) - 1] for curve in by_way[called]]
                for called in ("kernel", "first and last")
            )
            agrees(found, f"share_{budget}", (layer, head), kernel)
            if budget == 32:
                gains = [one - other for one, other in zip(kernel, fixed, strict=True)]
                agrees(found, "gain_32", (layer, head), gains)


@pytest.mark.parametrize("name", MODELS)
def test_caches_against_loops(made, name):
    gathered, layers = made(name)
    found = ask(gathered, skip=SKIP)
    queries = [n for n in POSITIONS if n <= N]

    for number, layer in enumerate(layers):
        sizes, fixed = [], []
        for some in choices(layer.groups):
            sizes.append(layer.cache(some, queries, SKIP, found.coordinates["budget"].tolist()))
            heads = [
                layer.captured("first and last", head, some, N, SKIP)
                for head in range(layer.queries.shape[1])
            ]
            mean = [sum(each) / len(heads) for each in zip(*heads, strict=True)]
            fixed.append(oracle.keys_for(mean) / len(mean))
        for place in range(len(sizes[0][0])):
            agrees(found, "kept_keys", (number, place), [one[0][place] for one in sizes])
            agrees(found, "kept_captured", (number, place), [one[1][place] for one in sizes])
        agrees(found, "fixed_cache_for_95", number, fixed)
        enough = [_reached(*one) for one in sizes]
        agrees(found, "cache_for_95", number, enough)


def _reached(shares, curve):
    """The share of keys at which a curve reaches 0.95."""
    left = below = 0.0
    for share, value in zip(shares, curve, strict=True):
        if value >= 0.95:
            return left + (share - left) * (0.95 - below) / (value - below)
        left, below = share, value
    raise ValueError("never")


def test_by_hand():
    """Keys 2 to 7 are visible, and 2 is skipped: the kernel's order is 2, 5, 7, 3, 4, 6."""
    kernel = np.array([[np.inf, 0.2, 0.1, 0.4, 0.05, 0.25]])
    observed = np.array([[0.3, 0.1, 0.05, 0.15, 0.2, 0.2]])
    order = formulas.rankings(kernel, observed, 2)

    assert [[2, 5, 7, 3, 4, 6], [7, 6, 5, 4, 3, 2], [2, 3, 7, 6, 5, 4], [2, 6, 7, 5, 3, 4]] == (
        (order[:, 0] + 2).tolist()
    )
    curves = formulas.captured(order, np.array([[0.5, 0.1, 0.0, 0.2, 0.1, 0.1]]))[:, 0]
    np.testing.assert_allclose(curves[0], [0.5, 0.7, 0.8, 0.9, 0.9, 1.0])
    np.testing.assert_allclose(curves[2], [0.5, 0.6, 0.7, 0.8, 1.0, 1.0])
    np.testing.assert_allclose(formulas.first_reaching(curves, 1.0 + np.arange(6)), [
        5.5, 5.9, 4.75, 4.5
    ])  # fmt: skip


def test_dropped_keys_stay_dropped():
    """Heads 0 and 1 share a key head, heads 2 and 3 another, where key 1 was dropped before."""
    held = np.array([[[1, 1, 1, 1], [1, 0, 1, 1]]] * 2, dtype=bool)
    order = np.array([[3, 1, 0, 2], [3, 0, 1, 2], [1, 2, 3, 0], [2, 1, 3, 0]])

    kept = formulas.kept(held, order, np.array([1, 2])).astype(int)

    assert [[0, 0, 0, 1], [0, 0, 1, 0]] == kept[0].tolist()
    assert [[1, 1, 0, 1], [0, 0, 1, 1]] == kept[1].tolist()


def test_budgets():
    assert [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 41, 64] == formulas.budgets_up_to(41).tolist()
    assert [16, 32, 64] == [b for b in formulas.budgets_up_to(401) if b in (16, 32, 64)]
    assert 401 == formulas.budgets_up_to(401)[-1]


@st.composite
def heads(draw):
    """Kernels and attention of heads over some keys, and a first position."""
    keys, low = draw(st.integers(1, 23)), draw(st.integers(0, 6))
    seed = draw(st.integers(0, 2**32 - 1))
    kernel, observed = np.random.default_rng(seed).dirichlet(np.full(keys, 0.5), (2, 6))
    kernel[:, : max(0, 2 - low)] = np.inf
    return kernel, observed, low


@given(heads())
def test_all_keys_get_all_attention_and_the_best_are_best(made_heads):
    """Attention to the keys of an order adds up to 1; no choice beats the best on its own texts."""
    kernel, observed, low = made_heads
    curves = formulas.captured(formulas.rankings(kernel, observed, low), observed)
    np.testing.assert_allclose(curves[..., -1], 1, rtol=1e-12)
    assert (np.diff(curves, axis=-1) >= 0).all()
    assert (curves <= curves[-1] + 1e-12).all()


@given(heads(), st.integers(1, 3))
def test_a_cache_holds_between_b_and_b_keys_a_head(made_heads, shared):
    kernel, observed, low = made_heads
    order = formulas.rankings(kernel, observed, low)[0]
    keys, budgets = order.shape[1], np.array([1, 2, 5, 31])
    held = np.random.default_rng(3).random((4, 6 // shared, keys)) < 0.6
    kept = formulas.kept(held, order, budgets)
    there, count = held.sum(axis=-1), kept.sum(axis=-1)
    assert not (kept & ~held).any()
    assert (count >= np.minimum(there, budgets[:, None])).all()
    assert (count <= np.minimum(there, shared * budgets[:, None])).all()


@given(st.integers(2, 40), st.integers(1, 12))
def test_first_and_last_keys_need_no_more_when_they_are_dropped(last, budget):
    """All heads drop the same keys, and none of these is wanted again: ``b`` keys stay."""
    held = np.zeros((1, 1, last + 1), dtype=bool)
    since = 0
    for n in sorted({last // 3, last // 2, last}):
        seen = slice(0, n + 1)
        held[..., since : n + 1], since = True, n + 1
        row = np.ones((2, n + 1))
        order = formulas.rankings(row, row, 0)[formulas.FIXED]
        held[..., seen] = formulas.kept(held[..., seen], order, np.array([budget]))
    assert set(order[0, :budget].tolist()) == set(np.flatnonzero(held[0, 0]).tolist())


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A pass of the model whose head 0 looks one back, head 1 is uniform, head 2 decays."""
    path = builders.look_back(tmp_path_factory.mktemp("look-back") / "m", 1, CONTEXT, 5.0)
    windows = builders.random_ids(20, CONTEXT).numpy()
    return pk.run_pass(loaded(path), windows, positions=POSITIONS)


def test_a_previous_token_head(known):
    """One key by the kernel gets nearly all; of the last keys it takes two."""
    head = ask(known, skip=0).select(layer=0, head=0)
    kernel, last, fixed, best = head.values["captured"]
    assert kernel[0] > 0.999
    assert best[0] > 0.999
    assert last[0] < 1e-4
    assert last[1] > 0.999
    assert 6 == head.coordinates["budget"][np.argmax(fixed > 0.99)]
    np.testing.assert_allclose(head.values["keys_for_95"], [0.95, 1.95, 5.95, 0.95], atol=1e-3)
    skipped = ask(known, skip=4).select(layer=0, head=0).values["captured"][0]
    assert 6 == head.coordinates["budget"][np.argmax(skipped > 0.99)]  # 5, which is no budget
    assert head.values["gain_32"] < 1e-4


def test_a_uniform_head(known):
    """Any ``b`` keys get ``b / (n + 1)`` of the attention."""
    found = ask(known)
    head, budgets = found.select(layer=0, head=1), found.coordinates["budget"]
    expected = np.minimum(budgets / (N + 1), 1)
    for curve in head.values["captured"]:
        np.testing.assert_allclose(curve, expected, atol=1e-5)
    assert head.values["keys_for_95"] == pytest.approx(0.95 * (N + 1), abs=1e-3)
    assert abs(head.values["gain_32"]) < 1e-5
    cache = found.select(layer=1).values
    assert cache["fixed_cache_for_95"] == pytest.approx(0.95, abs=1e-3)


@pytest.fixture(scope="module")
def constructed(tmp_path_factory):
    """Passes of the model with a sink and a head that looks at content alone, over many windows."""
    path = sink_and_content(tmp_path_factory.mktemp("sink") / "m", CONTEXT)
    windows = builders.random_ids(200, CONTEXT, seed=11).numpy()
    return lambda count: pk.run_pass(
        loaded(path), windows[:count], positions=POSITIONS, start_token=False
    )


def test_a_sink(constructed):
    """The first keys get it all; the last ones nothing, until there are as many as keys."""
    found = ask(constructed(20)).select(layer=0, head=0)
    kernel, last, fixed, best = found.values["captured"]
    for curve in (kernel, fixed, best):
        assert curve[0] > 0.999
    assert last[found.coordinates["budget"] == 32] < 1e-4
    assert found.values["gain_32"] == pytest.approx(0, abs=1e-6)


def test_content_alone_cannot_be_foreseen(constructed):
    """Kernel and best choice do no better than any keys would."""
    found = ask(constructed(200), skip=0).select(layer=0, head=1)
    chance = np.minimum(found.coordinates["budget"] / (N + 1), 1)
    np.testing.assert_allclose(found.values["captured"], np.tile(chance, (4, 1)), atol=0.05)


def test_it_asks_for_no_pass_but_the_run_itself():
    """Nothing new is gathered, so that a pass costs what it did."""
    run = RunSpec(model={"name": "m"}, corpus={}, context=CONTEXT, positions=POSITIONS)
    question = find("foreseen-attention")
    assert {"main": run} == question.needs(run, question.params(query=N))
    assert ("keys", "queries", "patterns", "residuals", "scores") == ALL_GATHERED == run.gather


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"query": 20}, "No query at position 20: this source has 6, from 1 to 40"),
        ({"query": 1, "skip": 2}, r"Expected a query position from 2 \(the skipped keys\) to 40"),
        ({"query": CONTEXT}, "to 40, got 41"),
        ({"query": N, "skip": 33}, "skip"),
    ],
)
def test_what_has_no_answer_is_refused(known, params, sentence):
    with refused(sentence):
        ask(known, **params)


@pytest.mark.parametrize(("texts", "value", "error"), [(1, False, False), (3, True, False),
                                                       (4, True, True)])  # fmt: skip
def test_too_few_texts(model_dirs, texts, value, error):
    """One half chooses and the other is measured, so that a number needs two groups."""
    windows = builders.random_ids(texts, CONTEXT, seed=3).numpy()
    found = ask(pk.run_pass(loaded(model_dirs["gpt2"]), windows, positions=POSITIONS))
    assert not found.biases
    for name in found.errors:
        assert value == np.isfinite(found.values[name]).all(), name
        assert error == np.isfinite(found.errors[name]).all(), name
        assert error or np.isnan(found.errors[name]).all(), name


def test_how_many_texts(made):
    """Two groups alone have no error, since a half is missing once one is left out."""
    gathered, _ = made("llama")
    found = analyse(
        "how-many-texts", gathered, measure="gain over first and last keys", query=N, skip=SKIP
    )
    assert np.isnan(found.values["error"][0]).all()
    assert np.isfinite(found.values["error"][1:]).all()
    assert np.isfinite(found.values["enough"]).all()


def test_figures(made):
    gathered, _ = made("llama")
    found = ask(gathered)
    head = figure_of(found.select(layer=1, head=2))
    named = {trace.name: trace for trace in head.data if trace.showlegend is not False}
    assert set(WAYS) <= set(named)
    np.testing.assert_array_equal(found.values["captured"][1, 2, 3], named["best fixed choice"].y)
    assert "log" == head.layout.xaxis.type
    assert figure_of(found).data


def test_layers_without_heads(tmp_path):
    """They are empty in all values, also in those of a layer."""
    family = FAMILY_MODELS["lfm2"]
    windows = builders.random_ids(20, CONTEXT, seed=17).numpy() % 31 + 1
    gathered = pk.run_pass(loaded(family.build(tmp_path / "m")), windows, positions=POSITIONS)
    found, bare = ask(gathered), list(family.bare)
    assert bare
    for name, value in found.values.items():
        assert np.isnan(value[bare]).all(), name
        assert np.isfinite(np.delete(value, bare, axis=0)).all(), name
