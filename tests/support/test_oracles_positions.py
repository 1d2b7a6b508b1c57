"""The oracles of positions and previous-token heads, against cases by hand."""

import math

import pytest
import torch

from tests.support import builders
from tests.support import oracles_positions as op

T, TURNS, THETA = 53, 5, 20.0


@pytest.fixture(scope="module")
def helix(tmp_path_factory):
    """Directory of the helix."""
    return builders.helix(tmp_path_factory.mktemp("helix"))


@pytest.fixture(scope="module")
def streams(helix):
    """The helix's streams of three repeated tokens, [layer][token][pos][model]."""
    return streams_of(helix, torch.tensor([5, 17, 200])[:, None].expand(3, T))


def streams_of(path, ids):
    """The stream before each layer, [layer][batch][pos][model], in float64."""
    with torch.inference_mode():
        body = builders.hf_eager_model(path).transformer
        states = body(ids, output_hidden_states=True).hidden_states
    return [state.double().tolist() for state in states[:-1]]


class TestOracles:
    """The oracles of positions against cases worked out by hand."""

    def test_pca(self):
        """Variances 8 and 2 along axes turned by 45 degrees."""
        rows = [[2.0, 2.0], [-2.0, -2.0], [1.0, -1.0], [-1.0, 1.0]]
        shares, components = op.pca(rows, 2)
        assert [0.8, 0.2] == pytest.approx(shares)
        assert [0.5**0.5] * 4 == pytest.approx([abs(x) for row in components for x in row])

    def test_canonical_angles(self):
        """Two planes that share a line, and are at 30 degrees across it."""
        a = [[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
        b = [[3.0, 0.0, 0.0], [0.0, 3**0.5, 1.0]]
        assert [0.0, 30.0] == pytest.approx(op.canonical_angles(a, b, 2), abs=1e-5)
        assert [0.0, 0.0] == pytest.approx(op.canonical_angles_left(a, b, 2), abs=1e-5)

    def test_extended_positions_and_their_spread(self):
        """Two tokens whose rows deviate from their mean by 1 and by 3."""
        streams = [[[1.0], [-1.0]], [[13.0], [7.0]]]
        assert [[2.0], [-2.0]] == op.extended_positions(streams)
        assert 0.5 == op.token_spread(streams)

    def test_shares_and_groups(self):
        """Groups of two over five rows; one entry of four lies beyond 1.5 rms."""
        rows = [[0.0], [2.0], [4.0], [6.0], [9.0]]
        assert [[1.0], [5.0], [9.0]] == op.group_means(rows, 2)
        assert [[1.0], [1.0], [5.0], [5.0], [9.0]] == op.averaged_positions(rows, 2)
        assert 0.25 == op.far_share([[0.0, 0.0], [0.0, -4.0]], 1.5)
        assert 0 == op.far_share([[0.0, 0.0], [0.0, -4.0]], 2.0)

    def test_profiles(self):
        """Scores `10 n + i` average over what lies between start and end."""
        q, k = [[10.0 * n, 1.0] for n in range(4)], [[1.0, float(i)] for i in range(4)]
        assert {-1: 17.5, 0: 22.0, 1: 26.5} == op.score_profile(q, k, 1.0, 1, 1)
        assert (1.5, 4.0) == op.contrasts({-1: 1.0, 0: 3.5, 1: 7.0, 2: 4.0})
        assert ((1, 0.5), (3, 0.25), 0.5) == op.largest_two([0.125, 0.5, 0.0, 0.25])

    def test_previous_mass(self):
        pattern = [[1.0], [0.75, 0.25], [0.25, 0.5, 0.25], [0.0, 0.0, 0.125, 0.875]]
        assert (0.5, 0.125) == op.previous_mass(pattern, [4, 4, 4, 7], 1)
        assert math.isnan(op.previous_mass(pattern, [1, 2, 3, 4], 0)[0])

    def test_divergences(self):
        assert math.log(2) == pytest.approx(op.kl([1.0, 0.0], [0.5, 0.5]))
        assert math.inf == op.kl([0.5, 0.5], [1.0, 0.0])
        assert math.log(4) == op.nll([0.75, 0.25], 1)
        assert math.inf == op.nll([1.0, 0.0], 1)
