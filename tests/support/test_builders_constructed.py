"""The constructed look-back model, and small corpora."""

import json
import math

import pytest
import torch

from tests.support import builders, oracles


@pytest.mark.parametrize(
    ("k", "T", "tau"), [(0, 37, 5.0), (1, 37, 5.0), (2, 41, 3.0), (7, 60, 11.0)]
)
class TestLookBack:
    """The constructed model has the kernels that its docstring states."""

    @pytest.fixture
    def patterns(self, tmp_path, k, T, tau):
        """Its attention on random tokens, [layer][batch, head, T, T]."""
        path = builders.look_back(tmp_path, k, T, tau)
        return builders.hf_eager_attentions(path, builders.random_ids(3, T, seed=k))

    def test_head_0_looks_back(self, patterns, k, T, tau):
        for n in range(T):
            top = math.exp(builders.LOOK_BACK_SCORE)
            weights = [top if n - i == k else 1.0 for i in range(n + 1)]
            expected = [w / sum(weights) for w in weights] + [0.0] * (T - n - 1)
            for batch in range(3):
                actual = patterns[0][batch, 0, n].tolist()
                assert actual == pytest.approx(expected, abs=1e-6)
            if n >= k:
                assert expected[n - k] > 0.999

    def test_head_1_is_uniform(self, patterns, k, T, tau):
        for n in range(T):
            expected = [1 / (n + 1)] * (n + 1) + [0.0] * (T - n - 1)
            assert patterns[0][1, 1, n].tolist() == pytest.approx(expected, abs=1e-6)

    def test_head_2_decays(self, patterns, k, T, tau):
        for n in range(T):
            weights = [math.exp(-(n - i) / tau) for i in range(n + 1)]
            expected = [w / sum(weights) for w in weights] + [0.0] * (T - n - 1)
            actual = patterns[0][2, 2, n].tolist()
            assert actual == pytest.approx(expected, rel=1e-4, abs=1e-7)
            r = math.exp(-1 / tau)
            known = (1 + r) / (1 - r) * (1 - r ** (n + 1)) / (1 + r ** (n + 1))
            assert known == pytest.approx(oracles.etc(actual), rel=1e-4)

    def test_layer_1_is_uniform(self, patterns, k, T, tau):
        """Every head of layer 1 attends evenly."""
        expected = torch.tril(torch.ones(T, T)) / torch.arange(1, T + 1)[:, None]

        assert torch.allclose(expected.expand_as(patterns[1]), patterns[1], atol=1e-6)


def test_look_back_leaves_the_stream_at_the_embeddings(tmp_path):
    model = builders.hf_eager_model(builders.look_back(tmp_path, 1)).transformer
    ids = builders.random_ids(2, 37)
    embedded = model.wte(ids) + model.wpe(torch.arange(37))

    with torch.inference_mode():
        states = model(ids, output_hidden_states=True).hidden_states

    assert torch.equal(embedded, states[1])
    assert torch.allclose(embedded, model.h[0].ln_1(embedded), atol=1e-5)


def test_mini_corpus_writes_the_same_documents_twice(tmp_path):
    plain, lines = builders.mini_corpus(tmp_path / "a", documents=5, words=13, seed=3)

    texts = [json.loads(line)["text"] for line in lines.read_text().splitlines()]

    assert texts == plain.read_text().rstrip("\n").split("\n\n")
    assert [13] * 5 == [len(text.split()) for text in texts]
    assert len(set(texts)) == 5
    again, _ = builders.mini_corpus(tmp_path / "b", documents=5, words=13, seed=3)
    assert plain.read_text() == again.read_text()
    other, _ = builders.mini_corpus(tmp_path / "c", documents=5, words=13, seed=4)
    assert plain.read_text() != other.read_text()
