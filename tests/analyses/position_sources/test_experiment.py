"""Sources of position against plain loops, in every family, and on models whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses.position_sources import experiment
from poskernel_core.analyses.position_sources.spec import KINDS, HeadSources, PositionSources
from tests.support.builders.contextual import perform, some_windows, study
from tests.support.builders.families import EVERY_MODEL
from tests.support.builders.position_sources import passed_on
from tests.support.oracles import jackknife_se
from tests.support.oracles_position_sources import Expected, Split
from tests.support.refusals import refused

TEXTS, CONTEXT, SKIP, GROUPS = 20, 11, 2, 10
POSITIONS = (1, 4, 10)
SEEN = [n for n in POSITIONS if n >= SKIP]
# model, layer, head
CASES = {
    "learned": ("gpt2", 2, 3),
    "rotary, normed keys": ("qwen3", 1, 5),
    "ALiBi": ("bloom", 2, 1),
}


def setting(path, texts=TEXTS, context=CONTEXT, positions=POSITIONS, seed=5):
    """An experiment's context, and a pass over the same windows that records a few positions.

    Each position has five tokens of its own, so that heads without positions see where they are.
    """
    windows = some_windows(texts, context, seed=seed)
    windows[:, 1:] = windows[:, 1:] % 5 + 11 * np.arange(1, context)
    subject, _ = study(path, windows)
    ordered = np.concatenate([windows[group::GROUPS] for group in range(GROUPS)])
    main = pk.run_pass(subject.model, ordered, positions=positions, gather=("keys",))
    return subject, main, windows


@pytest.fixture(scope="module")
def paths(tmp_path_factory, model_dirs):
    bloom = EVERY_MODEL["bloom"].build(tmp_path_factory.mktemp("bloom") / "bloom")
    return model_dirs | {"bloom": bloom}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_one_head_by_plain_loops(paths, case):
    """All values of one head, and the errors of a few, from transformers' own forward pass."""
    name, layer, head = CASES[case]
    subject, main, windows = setting(paths[name])
    result = perform(
        HeadSources, subject, main, head=f"L{layer}H{head}", skip=SKIP, first_windows=TEXTS
    )
    split, every = Split(paths[name], windows, layer), range(GROUPS)

    whole = Expected(split, head, SEEN, SKIP, GROUPS, [*every])

    names = result.words("source")
    assert set(names) == set(whole.names)
    assert float(result.values["noise"]) == pytest.approx(np.clip(whole.noise, 0, 1), abs=1e-5)
    assert float(result.values["position_share"]) == pytest.approx(whole.position_share, abs=1e-5)
    for value, expected in whole.values.items():
        np.testing.assert_allclose(
            result.values[value], [expected[name] for name in names], atol=1e-5, err_msg=value
        )
    np.testing.assert_allclose(
        result.values["turned_share"] + result.values["place_share"],
        result.values["share"],
        atol=1e-12,
    )
    for place, n in enumerate(SEEN):
        for c, name in enumerate(names):
            row = whole.scores[n, name][::-1]
            found = result.values["score"][place, c]
            np.testing.assert_allclose(found[: len(row)], row, atol=1e-5)
            assert np.isnan(found[len(row) :]).all()
    left = [
        Expected(split, head, SEEN, SKIP, GROUPS, [g for g in every if g != out]) for out in every
    ]
    for value in ("share", "equal_share", "effect"):
        for c in (0, len(names) - 1):
            error = jackknife_se([one.values[value][names[c]] for one in left])
            assert result.errors[value][c] == pytest.approx(error, rel=1e-3, abs=1e-5)
    assert "noise" not in result.errors | result.biases


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        pytest.param("llama", marks=pytest.mark.slow),
        pytest.param("bloom", marks=pytest.mark.slow),
    ],
)
def test_all_heads_agree_with_one_head(paths, name):
    """Shares of all heads are those of each head alone; kinds are sums, and they add up to 1."""
    subject, main, _ = setting(paths[name])
    every = perform(PositionSources, subject, main, skip=SKIP, first_windows=TEXTS)
    names = every.words("source")

    for layer, head in ((0, 0), (1, 3), (2, 1)):
        one = perform(
            HeadSources, subject, main, head=f"L{layer}H{head}", skip=SKIP, first_windows=TEXTS
        )
        own = [names.index(each) for each in one.words("source")]
        beyond = [place for place in range(len(names)) if place not in own]
        for value in ("share", "equal_share"):
            for part in ("values", "errors", "biases"):
                found = getattr(every, part)[value][layer, head]
                np.testing.assert_allclose(found[own], getattr(one, part)[value], atol=1e-6)
                assert np.isnan(found[beyond]).all()
        for value in ("noise", "position_share"):
            assert every.values[value][layer, head] == pytest.approx(float(one.values[value]))
        share = every.values["share"][layer, head]
        kinds = {kind: every.values[kind][layer, head] for kind in KINDS}
        assert np.nansum(share) == pytest.approx(1, abs=1e-5)
        assert np.nansum(every.values["equal_share"][layer, head]) == pytest.approx(1, abs=1e-5)
        assert np.nansum([*kinds.values()]) == pytest.approx(1, abs=1e-5)
        heads = [c for c, each in enumerate(names) if each.startswith("L")]
        assert kinds["heads_share"] == pytest.approx(np.nansum(share[heads]), abs=1e-12)
        assert np.isnan(kinds["wpos_share"]) == (name != "gpt2")
        assert np.isnan(kinds["bias_share"]) == (name != "bloom")


@pytest.mark.parametrize(
    ("texts", "params", "words"),
    [
        (3, {"head": "L1H2"}, "Expected 4 windows of text or more"),
        (TEXTS, {"head": "L1H2", "skip": 17}, "a query position of 17"),
        (TEXTS, {"head": "L9H9"}, "L<layer>H<head>"),
    ],
)
def test_refused(paths, texts, params, words):
    subject, main, _ = setting(paths["gpt2"])
    with refused(words):
        perform(HeadSources, replace(subject, windows=subject.windows[:texts]), main, **params)


@pytest.mark.parametrize(("by", "source"), [("head", "L0H0"), ("mlp", "MLP 0")])
def test_position_that_one_component_passes_on(tmp_path, by, source):
    """A head that reads copies of positions gets all from who copied, nothing from W_pos.

    Without the copies the kernel is uniform: at 1/n from `e^7 / (e^7 + n - 1)` at the token before.
    """
    height, n, T = 7.0, 20, 29
    windows = some_windows(20, T)
    path = passed_on(tmp_path / by, by, T, height)
    subject, main = study(path, windows)
    main = pk.run_pass(subject.model, windows, positions=(n,), gather=("keys",))

    every = perform(PositionSources, subject, main, skip=1, first_windows=20)
    one = perform(HeadSources, subject, main, skip=1, first_windows=20, head="L1H0")

    names = every.words("source")
    known = np.where(np.array(names) == source, 1.0, 0.0)
    for found in (every.values["share"][1, 0], one.values["share"], one.values["place_share"]):
        np.testing.assert_allclose(found[: len(known)], known, atol=1e-4)
    kind = "heads_share" if by == "head" else "mlps_share"
    assert every.values[kind][1, 0] == pytest.approx(1, abs=1e-4)
    assert every.values["wpos_share"][1, 0] == pytest.approx(0, abs=1e-4)
    assert every.values["noise"][1, 0] == pytest.approx(0, abs=1e-4)
    assert every.values["position_share"][1, 0] == pytest.approx(1, abs=1e-4)
    assert every.errors["share"][1, 0].max() < 1e-4
    peak = np.exp(height) / (np.exp(height) + n - 1)
    effect = dict(zip(names, one.values["effect"], strict=True))
    assert effect[source] == pytest.approx(peak - 1 / n, abs=1e-4)
    score = one.values["score"][0, names.index(source)]
    np.testing.assert_allclose(score[:4], height * ((np.arange(4) == 1) - peak), atol=1e-3)
    assert np.isnan(every.values["share"][:, 1]).all()  # uniform: no positional score to explain
    assert np.isnan(every.values["noise"][1, 1])


def test_shares_without_a_positional_score_are_not_given():
    """Noise above a half, a share of position below a twentieth, or neither known."""
    noise, position = [0.5, 0.51, 0.1, 0.1, np.nan, -0.1], [0.05, 0.9, 0.049, np.nan, 0.5, 1.0]
    known = experiment.known_where(np.array([noise, position]))
    assert known.tolist() == [True, False, False, False, False, True]
