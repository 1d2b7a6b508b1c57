"""The metrics of HeadVis: by hand, in plain loops, within bounds, and of heads that are known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.analyses.headvis.spec import metrics
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Batch
from poskernel_core.models.geometry import Geometry
from poskernel_core.statistics import STATISTICS, Sizes
from tests.support import builders, oracles, oracles_headvis
from tests.support.passes import loaded
from tests.support.raw import analyse
from tests.support.truth import truth_of

TEXTS, CONTEXT = 13, 29
METRICS = oracles_headvis.METRICS
GRAINS = 4e-6  # sums of a text are rounded to multiples of 2^-16


def gathered(path, ids, **more):
    found = pk.run_pass(loaded(path), ids, gather=("headvis",), **more)
    return analyse("headvis", found)


def seen(pattern, tokens, block=None):
    """The metrics of one head's made-up patterns `[text][q][k]`, shown in blocks of rows.

    Each text is a group of its own.
    """
    pattern, tokens = torch.tensor(pattern).float(), torch.tensor(tokens)
    texts, length, _ = pattern.shape
    geometry = Geometry(architecture="gpt2", scheme="learned", n_layers=1, n_heads=1, n_kv_heads=1,
                        d_head=2, d_model=2, n_ctx=length, n_vocab=9)  # fmt: skip
    sizes = Sizes(geometry, length, texts, (length - 1,), 1, False)
    sums = []
    for text in range(texts):
        statistic = STATISTICS["headvis"](sizes, torch.device("cpu"))
        one = slice(text, text + 1)
        for first in range(0, length, block or length):
            rows = pattern[one, None, first : first + (block or length), :]
            stop = first + rows.shape[2]
            shown = PatternBlock(0, first, 0, rows[..., :stop].clone())
            statistic.pattern(shown, Batch(tokens[one], range(text, text + 1)))
        sums.append({name: total.numpy() for name, total in statistic.sums.items()})
    found = statistic.finish(sums, sizes, texts)
    return [float(each[0, 0]) for each in
            metrics(found["headvis"], found["headvis_repeats"], length)]  # fmt: skip


@pytest.mark.parametrize("block", [1, 2, 3])
def test_by_hand(block):
    """Rows (1), (1/2, 1/2), (1/4, 1/4, 1/2) of the tokens a a b; then of a b a.

    Itself: (1 + 1/2 + 1/2) / 3; previous: (1/2 + 1/4) / 2; distance: (0 + 1/2 + 3/4) / 3 = 5/12; of
    its square: (0 + 1/2 + 5/4) / 3 = 7/12. In a a b query 1 has an earlier a at 0, and attends 1/2
    to what followed it; in a b a query 2 does, and attends 1/4.
    """
    rows = [[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]
    entropy = (math.log(2) + 1.5 * math.log(2)) / 3
    common = [2 / 3, 3 / 8, entropy, 5 / 12, 7 / 12 - 25 / 144]

    np.testing.assert_allclose([*common, 1 / 2], seen([rows], [[1, 1, 2]], block), atol=GRAINS)
    np.testing.assert_allclose([*common, 1 / 4], seen([rows], [[1, 2, 1]], block), atol=GRAINS)
    np.testing.assert_allclose(
        [*common, 3 / 8], seen([rows, rows], [[1, 1, 2], [1, 2, 1]], block), atol=GRAINS
    )
    np.testing.assert_allclose([*common, math.nan], seen([rows], [[1, 2, 3]], block), atol=GRAINS)


def test_little_attention_is_no_induction():
    rows = [[1, 0, 0], [0.995, 0.005, 0], [0.5, 0.25, 0.25]]
    assert 0 == seen([rows], [[4, 4, 2]])[-1]
    assert 0.25 == seen([rows], [[4, 4, 4]])[-1]  # (0 of query 1, 1/4 + 1/4 of query 2) / 2


@settings(max_examples=17)
@given(st.integers(1, 17), st.integers(0, 2**20))
def test_bounds(length, seed):
    generator = np.random.default_rng(seed)
    pattern = np.tril(generator.uniform(0.001, 1, size=(1, length, length)) ** 4)
    pattern = (pattern / pattern.sum(axis=-1, keepdims=True)).astype(np.float32).astype(float)
    tokens = generator.integers(0, 6, size=length).tolist()
    found = seen(pattern.tolist(), [tokens], block=4)

    expected = oracles_headvis.metrics([oracles_headvis.sums(pattern[0].tolist(), tokens)])
    np.testing.assert_allclose(found, expected, atol=2e-5)
    for share in (found[0], found[1], found[5]):
        assert math.isnan(share) or -1e-6 <= share <= 1 + 1e-5
    assert -1e-6 <= found[2] <= math.log(length) + 1e-6
    assert -1e-6 <= found[3] <= length - 1
    assert found[4] >= -1e-4


@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_plain_transformers(model_dirs, name):
    ids = builders.random_ids(TEXTS, CONTEXT, seed=3).numpy() % 19 + 1
    result = gathered(model_dirs[name], ids, batch=2)

    ids = ids[:10].tolist()
    for layer, patterns in enumerate(truth_of(model_dirs[name], np.array(ids)).attentions):
        for head in range(patterns.shape[1]):
            texts = patterns[:, head].astype(float).tolist()
            parts = [oracles_headvis.sums(*one) for one in zip(texts, ids, strict=True)]
            left = [oracles_headvis.metrics(parts[:g] + parts[g + 1 :]) for g in range(10)]
            at = [[held[metric][layer, head] for metric in METRICS]
                  for held in (result.values, result.errors)]  # fmt: skip
            np.testing.assert_allclose(oracles_headvis.metrics(parts), at[0], 1e-4, 1e-5)
            errors = [oracles.jackknife_se(column) for column in zip(*left, strict=True)]
            np.testing.assert_allclose(errors, at[1], 2e-3, 1e-5)


def test_known_heads(tmp_path):
    """A head that looks 3 back, where every fourth token is the same; and a uniform head.

    What followed the token four before stands three before: all attention is induction. A uniform
    row of n + 1 keys has entropy ln(n + 1) and mean distance n / 2.
    """
    path = builders.look_back(tmp_path / "look_back", 3, CONTEXT, 6.0)
    ids = (np.arange(CONTEXT)[None].repeat(3, axis=0) % 4 + 1).astype(np.int64)
    found = {name: value[0] for name, value in gathered(path, ids).values.items()}
    later = CONTEXT - 3  # queries that look back 3; the first three are uniform

    assert found["induction_score"][0] == pytest.approx(1, abs=1e-3)
    distance = (3 * later + 0 + 0.5 + 1) / CONTEXT
    assert found["qk_distance"][0] == pytest.approx(distance, abs=1e-3)
    assert found["self_attention_score"][0] == pytest.approx(
        (1 + 1 / 2 + 1 / 3) / CONTEXT, abs=1e-3
    )
    uniform = range(CONTEXT)
    assert found["qk_distance"][1] == pytest.approx(np.mean([n / 2 for n in uniform]), abs=1e-4)
    entropy = np.mean([math.log(n + 1) for n in uniform])
    assert found["pattern_entropy"][1] == pytest.approx(entropy, abs=1e-4)
