"""Additivity of position and content: sums of squares by plain loops, and keys that are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from poskernel_core.analyses.additivity.experiment import cosines, shares, shift_places
from poskernel_core.analyses.additivity.spec import Additivity
from poskernel_core.engine.engine import describe_run
from tests.support import oracles_contextual as oracle
from tests.support.builders.contextual import CONTENT, TAU, ask, some_windows, study
from tests.support.raw import of_all_texts
from tests.support.refusals import refused

NAMES = ("position_share", "content_share", "interaction_share")
# model, start token, context, passages
CASES = {
    "learned": ("gpt2", True, 17, 7),
    "no start": ("opt", False, 19, 7),
    "rotary, grouped": ("llama", True, 29, 13),
}
LENGTH, SHIFTS = 7, 3


def perform(path, windows, start=True, **params):
    subject, _ = study(path, windows, start)
    checked = Additivity.params(**{"passage_length": LENGTH, "shifts": SHIFTS, **params})
    return of_all_texts(Additivity().perform(subject, {}, checked, lambda done, total: None))


def sums(keys):
    """What `shares` and `cosines` take, of one head's keys `[passage, token, shift, d]`."""
    keys = np.asarray(keys, dtype=float)
    gram = np.einsum("tjsd,tjrd->sr", keys, keys)
    return keys.sum(axis=0)[None], gram[None], float(len(keys))


def test_shares_by_hand():
    """Keys 0, 2 of one passage and 4, 10 of another, at two places.

    Mean 4, sum of squares 16 + 4 + 0 + 36 = 56. Means of places 2, 6: 2 (4 + 4) = 16. Means of
    passages 1, 7: 2 (9 + 9) = 36. Left 4. Contents are -2, 2 and -4, 4: cosine 1.
    """
    keys = [[[[0], [2]]], [[[4], [10]]]]
    assert [16 / 56, 36 / 56, 4 / 56] == pytest.approx([part[0] for part in shares(*sums(keys))])
    assert [1, 1] == pytest.approx(cosines(*sums(keys))[0].tolist())


def test_cosines_by_hand():
    """Contents along (1, 0), (3, 4), (0, -5): neighbours 0.6 and -0.8, next but one 0."""
    contents = np.array([[1, 0], [3, 4], [0, -5]])
    keys = np.stack([contents, -contents])[:, None] + np.array([[7, 1], [2, 0], [5, 5]])
    assert [1, (0.6 - 0.8) / 2, 0] == pytest.approx(cosines(*sums(keys))[0].tolist())


@given(
    arrays.arrays(float, (5, 2, 3, 2), elements=st.floats(-3, 3)),
    st.integers(0, 2**31),
    st.floats(0.1, 10),
)
def test_sums_of_squares(noise, seed, factor):
    generator = np.random.default_rng(seed)
    keys = noise + generator.normal(size=noise.shape)
    position, content, rest = (float(part[0]) for part in shares(*sums(keys)))

    assert oracle.shares(keys.tolist()) == pytest.approx((position, content, rest), abs=1e-9)
    assert 1 == pytest.approx(position + content + rest)
    assert min(position, content, rest) > -1e-9
    scaled = [float(part[0]) for part in shares(*sums(factor * keys))]
    assert [position, content, rest] == pytest.approx(scaled)

    moved = keys + generator.normal(size=(1, *keys.shape[1:]))
    other = [float(part[0]) for part in shares(*sums(moved))]
    assert content * other[2] == pytest.approx(other[1] * rest)
    np.testing.assert_allclose(cosines(*sums(keys)), cosines(*sums(moved)), atol=1e-6)
    told = keys + generator.normal(size=(5, 2, 1, 2))
    other = [float(part[0]) for part in shares(*sums(told))]
    assert position * other[2] == pytest.approx(other[0] * rest)


@given(arrays.arrays(float, (4, 3, 3, 2), elements=st.floats(-3, 3)), st.integers(0, 2**31))
def test_cosines(noise, seed):
    keys = noise + np.random.default_rng(seed).normal(size=noise.shape)
    found = cosines(*sums(keys))[0]
    assert oracle.cosines(keys.tolist()) == pytest.approx(found.tolist(), abs=1e-9)
    assert pytest.approx(found[0]) == 1
    assert np.abs(found).max() <= 1 + 1e-9


@given(st.integers(0, 1), st.integers(1, 50), st.integers(2, 30), st.integers(0, 100))
def test_places(first, length, shifts, more):
    context = first + length + shifts - 1 + more
    places = shift_places(context, first, length, shifts)
    assert (first, shifts) == (places[0], len(places))
    (step,) = set(np.diff(places).tolist())
    assert first + (shifts - 1) * step + length <= context
    assert first + (shifts - 1) * (step + 1) + length > context


@pytest.mark.parametrize("case", CASES)
def test_every_head(paths, case):
    name, start, context, passages = CASES[case]
    windows = some_windows(passages, context, start)
    found = perform(paths[name], windows, start)

    first, step = int(start), (context - start - LENGTH) // (SHIFTS - 1)
    assert [0, step, 2 * step] == found.coordinates["shift"].tolist()
    windows = windows[: len(windows) // 10 * 10 or len(windows)]
    passages = len(windows)
    texts, seen = windows[:, : first + LENGTH].tolist(), []
    for shift in range(SHIFTS):
        places = range(first + shift * step, first + shift * step + LENGTH)
        seen.append(oracle.keys_at(paths[name], texts, [*range(first), *places]))
    layers, heads = found.values["interaction_share"].shape
    for layer, kv in np.ndindex(3, len(seen[0][0][0])):
        keys = [
            [[seen[s][layer][t][kv][first + j] for s in range(SHIFTS)] for j in range(LENGTH)]
            for t in range(passages)
        ]
        expected, errors = oracle.numbers(keys), oracle.jackknife(keys)
        group = heads // len(seen[0][0][0])
        for head in range(kv * group, (kv + 1) * group):
            for held, known in ((found.values, expected), (found.errors, errors)):
                mine = [float(held[n][layer, head]) for n in NAMES]
                mine += held["content_similarity"][layer, head].tolist()
                assert known == pytest.approx(mine, abs=2e-5)
    told = {"errors": "windows", "groups": min(10, passages), "passages": passages}
    assert (3, told) == (layers, found.provenance)
    assert found.values["content_similarity"][..., 1:].min() < 0.999


# head 2 has no content, whose direction is rounding
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")
def test_additive_keys(paths):
    windows = some_windows(20, 31, True)
    found = perform(paths["additive"], windows, passages=20)

    position, content, rest = (found.values[name][0] for name in NAMES)
    np.testing.assert_allclose(rest, 0, atol=1e-5)
    np.testing.assert_allclose([position[0], content[2]], 0, atol=1e-5)
    np.testing.assert_allclose([content[0], position[2]], 1, atol=1e-5)
    np.testing.assert_allclose(found.values["content_similarity"][0, :2], 1, atol=1e-5)
    assert np.isnan(found.values["content_similarity"][0, 2]).all()
    # a step of 11 places, i.e. of 11 / tau: sum of squares 2 steps^2 for each token and passage
    scores = [[CONTENT[token] for token in text[1 : 1 + LENGTH]] for text in windows.tolist()]
    squares = sum(np.var([text[j] for text in scores]) * 3 * 20 for j in range(LENGTH))
    steps = 2 * (11 / TAU) ** 2 * 20 * LENGTH
    assert steps / (steps + squares) == pytest.approx(position[1], rel=1e-4)


def test_through_the_laboratory(paths, tmp_path):
    params = {"passages": 12, "passage_length": 5, "shifts": 4}
    run = {"context": 31, "windows": 99, "dtype": "bfloat16", "destination": " the"}
    found = ask(tmp_path, "additivity", paths["additive"], params, **run)

    assert (10, "float32", 10) == tuple(
        found.provenance[name] for name in ("windows", "dtype", "passages")
    )
    assert [0, 8, 16, 24] == found.coordinates["shift"].tolist()
    np.testing.assert_allclose(found.values["content_similarity"][0, :2], 1, atol=1e-5)


@pytest.mark.parametrize(("start", "need"), [(True, 16), (False, 15)])
def test_too_long(paths, monkeypatch, start, need):
    """Nine tokens at seven places need 15 tokens, and one for the start token: one sentence."""
    params = Additivity.params(passage_length=9, shifts=7)
    run = describe_run(str(paths["gpt2"]), context=need - 1, start_token=start)
    with refused(f"{need} tokens or more, got {need - 1}: ask"):
        Additivity().canonical(run, params)

    Additivity().canonical(run := run.model_copy(update={"context": need}), params)
    monkeypatch.setattr("poskernel_core.analyses.additivity.spec.MAX_KEYS", 11)
    with refused("ask for 11 or fewer in all"):
        Additivity().canonical(run, Additivity.params(passage_length=3, shifts=4))


@pytest.mark.parametrize("windows", [(1, 17), (5, 6)])
def test_too_little_text(paths, windows):
    with refused("two texts of 7 tokens or more"):
        perform(paths["gpt2"], some_windows(*windows, True))
