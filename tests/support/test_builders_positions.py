"""The constructed models of positions are what their docstrings say, by plain transformers.

The expectations are stated by hand; the oracles of positions are checked on the way.
"""

import math

import pytest
import torch

from tests.support import builders, oracles
from tests.support import oracles_positions as op

T, TURNS, THETA = 53, 5, 20.0

W = 2 * math.pi * TURNS / T

SHORT = 37


@pytest.fixture(scope="module")
def helix(tmp_path_factory):
    """Directory of the helix."""
    return builders.helix(tmp_path_factory.mktemp("helix"))


@pytest.fixture(scope="module")
def dark(tmp_path_factory):
    """Directory of the dark head."""
    return builders.dark_head(tmp_path_factory.mktemp("dark"))


@pytest.fixture(scope="module")
def aggregator(tmp_path_factory):
    """Directory of the aggregator."""
    return builders.aggregator(tmp_path_factory.mktemp("aggregator"))


@pytest.fixture(scope="module")
def streams(helix):
    """The helix's streams of three repeated tokens, [layer][token][pos][model]."""
    return streams_of(helix, torch.tensor([5, 17, 200])[:, None].expand(3, T))


@pytest.fixture(scope="module")
def extended(streams):
    """The helix's `X` of each layer."""
    return [op.extended_positions(layer) for layer in streams]


def profile_of(path, ids, layer, head):
    """Profile of raw scores of one head, from what really enters the dot products."""
    model, kept = builders.hf_eager_model(path), []
    model.transformer.h[layer].attn.c_attn.register_forward_hook(
        lambda _module, _args, output: kept.append(output[0])
    )
    with torch.inference_mode():
        model(ids)
    q, k, _ = kept[0].unflatten(-1, (3, model.config.n_head, -1))[:, :, head].unbind(1)
    return op.score_profile(q.tolist(), k.tolist(), q.shape[1] ** -0.5, band=5, start=1)


def streams_of(path, ids):
    """The stream before each layer, [layer][batch][pos][model], in float64."""
    with torch.inference_mode():
        body = builders.hf_eager_model(path).transformer
        states = body(ids, output_hidden_states=True).hidden_states
    return [state.double().tolist() for state in states[:-1]]


def different_ids(length, seed=0):
    """A window of tokens that all differ, [1, length]; the start token comes first."""
    order = torch.randperm(builders.VOCABULARY - 1, generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.tensor([builders.START]), order[: length - 1] + 1])[None]


class TestHelix:
    """Positions on a helix."""

    def test_explained_variance(self, extended):
        truth = builders.helix_truth()

        assert truth == pytest.approx([0.389060, 0.371006, 0.238794, 0.001140], abs=1e-6)
        assert 1 == pytest.approx(sum(truth))
        for X in extended:
            shares, components = op.pca(X, 5)
            assert [*truth, 0.0] == pytest.approx(shares, abs=1e-6)
            assert 1 == pytest.approx(math.hypot(*components[0]))

    def test_explained_variance_of_another_helix(self, tmp_path):
        path = builders.helix(tmp_path, T=41, turns=3, height=2.0, theta=35.0)
        X0, X1, _ = (op.extended_positions(s) for s in streams_of(path, torch.full((1, 41), 7)))

        truth = builders.helix_truth(41, 3, 2.0)

        assert truth == pytest.approx(op.pca(X0, 4)[0], abs=1e-6)
        assert [35.0] * 3 == pytest.approx(op.canonical_angles(X0, X1, 3), abs=1e-3)

    def test_canonical_angles(self, extended):
        """`theta` from layer 0 to the others in the stream, and 0 in position space."""
        X0, X1, X2 = extended

        assert [THETA] * 3 == pytest.approx(op.canonical_angles(X0, X1, 3), abs=1e-3)
        assert [THETA] * 3 == pytest.approx(op.canonical_angles(X0, X2, 3), abs=1e-3)
        assert [0.0] * 3 == pytest.approx(op.canonical_angles(X1, X2, 3), abs=1e-3)
        assert [0.0] * 3 == pytest.approx(op.canonical_angles_left(X0, X1, 3), abs=1e-3)

    def test_positions_do_not_depend_on_the_token(self, streams):
        assert [0.0] * 3 == pytest.approx([op.token_spread(s) for s in streams], abs=1e-6)

    @pytest.mark.parametrize(("head", "wave"), [(0, lambda x: -math.sin(x)), (1, math.cos)])
    def test_scores_read_the_helix(self, helix, head, wave):
        profile = profile_of(helix, builders.random_ids(1, T), 0, head)

        expected = {k: 4 * wave(W * k) for k in range(-5, 6)}
        assert expected == pytest.approx(profile, abs=1e-4)
        own = expected[0] - (2 * expected[-1] + expected[2]) / 3
        previous = expected[1] - (expected[-1] + 2 * expected[2]) / 3
        assert (own, previous) == pytest.approx(op.contrasts(profile), abs=1e-4)

    def test_patterns(self, helix):
        """Head 2 attends to itself, and heads without a task evenly."""
        patterns = builders.hf_eager_attentions(helix, builders.random_ids(2, T))
        uniform = torch.tril(torch.ones(T, T)) / torch.arange(1, T + 1)[:, None]

        assert torch.allclose(torch.eye(T).expand(2, T, T), patterns[0][:, 2], atol=1e-16)
        for pattern in (patterns[0][:, 3:], patterns[1], patterns[2]):
            assert torch.allclose(uniform.expand_as(pattern), pattern, atol=1e-6)
        weights = [math.exp(4 * math.sin(W * (i - 40))) for i in range(41)]
        expected = [weight / sum(weights) for weight in weights]
        assert expected == pytest.approx(patterns[0][0, 0, 40, :41].tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["helix", "dark", "aggregator"])
def test_norms_give_the_stream_back(request, name):
    """Post-ln1 is the stream itself in every layer, on random tokens."""
    path = request.getfixturevalue(name)
    body = builders.hf_eager_model(path).transformer
    for layer, rows in enumerate(streams_of(path, builders.random_ids(1, SHORT))):
        stream = torch.tensor(rows).float()
        assert torch.allclose(stream, body.h[layer].ln_1(stream), atol=2e-5)


class TestDarkHead:
    """A previous-token head that turns away from the token itself."""

    def test_pattern_on_different_tokens(self, dark):
        """It falls off from offset 1, and offset 0 is left out."""
        pattern = builders.hf_eager_attentions(dark, different_ids(SHORT))[0][0]

        for n in range(SHORT):
            weights = [math.exp(-12 if i == n else -3 * (n - i)) for i in range(n + 1)]
            expected = [weight / sum(weights) for weight in weights]
            assert expected == pytest.approx(pattern[0, n, : n + 1].tolist(), abs=1e-4)
            assert n == 0 or n - 1 == int(pattern[0, n].argmax())
            uniform = [1 / (n + 1)] * (n + 1)
            assert uniform == pytest.approx(pattern[1, n, : n + 1].tolist(), abs=1e-6)

    def test_main_diagonal_of_the_raw_scores_is_dark(self, dark):
        """A straight line of half the slope, but for `depth` less at offset 0."""
        profile = profile_of(dark, different_ids(SHORT), 0, 0)

        expected = {k: 3 * (SHORT - k) / 2 - 12 * (k == 0) for k in range(-5, 6)}
        assert expected == pytest.approx(profile, abs=1e-2)
        assert (-12, 0) == pytest.approx(op.contrasts(profile), abs=1e-2)

    def test_repeated_token_breaks_it(self, dark):
        ids = different_ids(SHORT)
        ids[0, [9, 20, 31]] = ids[0, [8, 19, 30]]
        pattern = builders.hf_eager_attentions(dark, ids)[0][0, 0]

        repeated, other = op.previous_mass(pattern.tolist(), ids[0].tolist(), 1)

        assert repeated == pytest.approx(math.exp(-9) * (1 - math.exp(-3)), rel=1e-2)
        assert other > 0.94
        assert 7 == int(pattern[9].argmax())


class TestAggregator:
    """A previous-token head that finds the code that an earlier layer copied."""

    def test_patterns_on_different_tokens(self, aggregator):
        """Head 0 looks one back in both layers, with the stated weights; head 1 is uniform."""
        patterns = builders.hf_eager_attentions(aggregator, different_ids(SHORT))

        for layer, score in enumerate((16, 12)):
            for n in range(1, SHORT):
                known = math.exp(score) / (math.exp(score) + n)
                assert known == pytest.approx(float(patterns[layer][0, 0, n, n - 1]), rel=1e-4)
                uniform = [1 / (n + 1)] * (n + 1)
                row = patterns[layer][0, 1, n, : n + 1].tolist()
                assert uniform == pytest.approx(row, abs=1e-6)

    def test_first_diagonal_of_the_raw_scores_is_bright(self, aggregator):
        """Height at offset 1, and 0 at all others."""
        profile = profile_of(aggregator, different_ids(SHORT), 1, 0)

        expected = {k: 12.0 * (k == 1) for k in range(-5, 6)}
        assert expected == pytest.approx(profile, abs=1e-3)
        assert (0, 12) == pytest.approx(op.contrasts(profile), abs=1e-3)

    def test_profile_of_the_pattern(self, aggregator):
        """Offset 1 holds nearly everything, also by the diagonal profile."""
        pattern = builders.hf_eager_attentions(aggregator, different_ids(SHORT))[1][0, 0]

        profile = oracles.diagonal_profile([pattern.tolist()], 1)

        (first, value), _, ratio = op.largest_two(profile)
        assert 1 == first
        assert value > 0.999
        assert ratio < 1e-4

    def test_equal_tokens_share(self, aggregator):
        ids = different_ids(SHORT)
        ids[0, 4] = ids[0, 15]
        row = builders.hf_eager_attentions(aggregator, ids)[1][0, 0, 16]

        assert [0.5, 0.5] == pytest.approx(row[[4, 15]].tolist(), abs=1e-4)
