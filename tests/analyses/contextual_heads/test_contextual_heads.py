"""Contextual heads: denominators, spreads and predictions, by plain loops and by calculation."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.contextual_heads.denominators import Denominators, TokenWeights
from poskernel_core.analyses.contextual_heads.experiment.contextual import relative_spread
from poskernel_core.analyses.contextual_heads.spec import ContextualHeads
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.views import Gathered
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from tests.support import oracles
from tests.support import oracles_contextual as oracle
from tests.support.builders import VOCABULARY, contextual
from tests.support.builders.contextual import (
    CASES,
    CONTENT,
    TAU,
    T,
    ask,
    perform,
    some_windows,
    study,
)
from tests.support.refusals import refused
from tests.support.truth import truth_of

POOL, QUERY, SKIP = range(1, VOCABULARY), 29, 4


@pytest.mark.parametrize("case", CASES)
def test_every_head(paths, case):
    name, query, skip, start, window, divisor = CASES[case]
    windows = some_windows(11, 23, start)
    subject, main = study(paths[name], windows, start)
    changed = contextual.with_token(windows[:7], query, subject.single_id(" the"))
    truth, means = truth_of(paths[name], changed), oracle.mean_keys_kept(paths[name], windows[:10])

    found = perform(ContextualHeads, subject, main, query=query, skip=skip, first_windows=7)

    layers, heads = found.values["denominator_cv"].shape
    assert (3, truth.queries[0].shape[1]) == (layers, heads)
    for layer, head in np.ndindex(layers, heads):
        place = (layer, head), 1 / divisor[layer], query, skip, window[layer]
        expected = oracle.moments_and_errors(truth, means, *place)
        for held, known in zip((found.values, found.errors, found.biases), expected, strict=True):
            for name, number in known.items():
                at = float(held[name][layer, head])
                assert number == pytest.approx(at, rel=2e-3, abs=2e-4), (name, layer, head)
    assert found.provenance["groups"] == 7
    assert found.values["denominator_cv"].max() > 0.05


def test_by_hand(paths):
    """Two texts of three tokens, uniform attention, weights 2, 1, 1 and 1, 1, 1.

    `Z` is 4/3 and 1: mean 7/6, deviation (1/3) / sqrt 2. Weights: mean 7/6, mean square 9/6,
    variance 3/2 - 49/36 = 5/36; `Var[w] / ETC` is 5/108.
    """
    subject, _ = study(paths["additive"], some_windows(2, 3, False), start=False)
    heavy = 7 if subject.single_id(" the") != 7 else 8
    content = [math.log(2) * (token == heavy) for token in range(VOCABULARY)]
    path = contextual.additive(paths["additive"].parent / "by hand", content)
    subject, main = study(path, np.array([[heavy, 9, 11], [9, 9, heavy]]), start=False)
    none = Gathered(main.header, {"keys": {"mean_keys": np.zeros((1, 3, 3, 5), dtype=np.float32)}})

    found = perform(ContextualHeads, subject, none, query=2, skip=0, first_windows=2)

    expected = {
        "etc": 3,
        "visible_keys": 3,
        "denominator": 7 / 6,
        "denominator_cv": (1 / 3) / math.sqrt(2) / (7 / 6),
        "predicted_cv": math.sqrt(5 / 108) / (7 / 6),
        "weight_mean": 7 / 6,
        "weight_variance": 5 / 36,
    }
    for name, value in expected.items():
        assert value == pytest.approx(float(found.values[name][0, 0]), rel=1e-5), name
    assert np.isnan(found.errors["denominator_cv"]).all()


@pytest.mark.parametrize(
    ("experiment", "params", "words"),
    [
        (ContextualHeads, {"query": 9, "token": " the word"}, r"one token of .*mind the leading"),
        (Denominators, {"token": "the word"}, "mind the leading space"),
        (Denominators, {"head": "L3H0"}, "from L0H0 to L2H4 in this model; got 'L3H0'"),
        (Denominators, {"head": "head 1"}, "written L<layer>H<head>"),
        *((TokenWeights, {"query": 9, "head": cell} | params, words)
          for cell in ("L0H1", "L2H1") for params, words in (
              ({"head": "L0H5"}, "from L0H0 to L2H4 in this model"),
              ({"token": " the word"}, "mind the leading space"),
              ({"min_count": 1000}, "No token occurs 1000 times in the windows"))),
    ],
)  # fmt: skip
def test_refused(paths, experiment, params, words):
    """Each of them also without a tokenizer."""
    subject, main = study(paths["gpt2"], some_windows(3, 11, True))
    with refused(words):
        perform(experiment, subject, main, **params)
    usual = {name: value for name, value in params.items() if name == "query"}
    bare = dataclasses.replace(subject, single_id=None)
    with refused("needs a tokenizer, and the model has none"):
        perform(experiment, bare, main, **usual)


@pytest.mark.parametrize(
    ("name", "params", "context"),
    [("denominators", {"skip": 4}, 4), ("denominators", {"skip": 4}, 5),
     ("token-weights", {"query": 13, "head": "L1H1"}, 13)],
)  # fmt: skip
def test_nothing_visible(paths, tmp_path, name, params, context):
    with pytest.raises(BadRequest):
        ask(tmp_path, name, paths["gpt2"], params, context=context, windows=5)


def shares_of_keys(tau):
    """What each key from `SKIP` on has of the kernel at `QUERY`; uniform for an infinite `tau`."""
    powers = [math.exp((i - QUERY) / tau) for i in range(SKIP, QUERY + 1)]
    return [power / math.fsum(powers) for power in powers]


def own_weight(path):
    return math.exp(CONTENT[load_tokenizer(catalog.locate(str(path))).single_id(" the")])


def drawn_spread(shares, own):
    """Relative spread of `sum_i p_i W_i`, `W` drawn without replacement; the last one is `own`.

    Two different draws have the covariance `-Var[W] / (pool - 1)`.
    """
    weights = [math.exp(CONTENT[token]) for token in POOL]
    middle, squares = oracles.mean(weights), math.fsum(p * p for p in shares[:-1])
    variance = oracles.mean([(w - middle) ** 2 for w in weights])
    pairs = (1 - shares[-1]) ** 2 - squares
    return math.sqrt(variance * (squares - pairs / (len(POOL) - 1))) / (
        (1 - shares[-1]) * middle + shares[-1] * own
    )


def test_independent_content(paths, tmp_path):
    texts, path = 700, paths["additive"]
    params = {"query": QUERY, "first_windows": texts}
    found = ask(tmp_path, "contextual-heads", path, params, context=T, windows=texts)

    own, weights = own_weight(path), [math.exp(CONTENT[token]) for token in POOL]
    for head, tau in enumerate((math.inf, TAU)):
        shares = shares_of_keys(tau)
        values = {
            n: float(found.values[n][0, head]) for n in ("etc", "denominator_cv", "predicted_cv")
        }
        error = float(found.errors["denominator_cv"][0, head])
        truth = drawn_spread(shares, own)
        assert truth == pytest.approx(values["denominator_cv"], abs=4 * error)
        assert pytest.approx(error, rel=0.7) == truth / math.sqrt(2 * texts)
        assert oracles.etc(shares) == pytest.approx(values["etc"], rel=0.02)
        independent = np.std(weights) / np.mean(weights) / math.sqrt(oracles.etc(shares))
        assert independent == pytest.approx(values["predicted_cv"], rel=0.03)
        if head == 0:  # the fixed token has a 26th of the mass
            assert independent == pytest.approx(values["denominator_cv"], rel=0.12)
    assert texts == found.provenance["first_windows"]


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=17), st.floats(1e-3, 1e3))
def test_relative_spread(values, factor):
    expected = pytest.approx(oracle.relative_spread(values), rel=1e-6, abs=1e-5)
    for row in (np.array(values), factor * np.array(values)):
        assert expected == relative_spread(
            len(row), np.array(row.mean()), np.array((row**2).mean())
        )


def test_relative_spread_by_hand():
    """Of 1, 2, 3: mean 2, mean square 14/3, deviation 1; a single number has none."""
    assert pytest.approx(float(relative_spread(3, np.array(2.0), np.array(14 / 3)))) == 0.5
    assert np.isnan(relative_spread(1, np.array(2.0), np.array(4.0)))


@pytest.mark.parametrize("query", [SKIP, T, T + 1])
def test_position_refused(paths, query):
    run, experiment = describe_run(str(paths["additive"])), ContextualHeads()
    with refused(f"from 5 .* to 30, got {query}"):
        experiment.canonical(run, ContextualHeads.params(query=query, skip=SKIP))
    for allowed in (SKIP + 1, T - 1):
        assert run == experiment.canonical(run, ContextualHeads.params(query=allowed, skip=SKIP))


def test_without_a_known_start_token(paths):
    subject, main = study(paths["gpt2"], some_windows(3, 11, False), start=False)
    source = dataclasses.replace(subject.source, start=None)
    subject = dataclasses.replace(subject, source=source)
    assert np.isfinite(
        perform(ContextualHeads, subject, main, query=9).values["denominator_cv"]
    ).all()
