"""The tiny models are what their docstrings say, by plain transformers and by the oracles."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from tests.support import builders, oracles
from tests.support.builders.architectures import SHAPES

ALL = pytest.mark.parametrize("name", builders.ARCHITECTURES)


@pytest.fixture(scope="module")
def attentions(model_dirs):
    """Every architecture's attention on two windows of its whole context."""
    return {
        name: builders.hf_eager_attentions(path, builders.random_ids(2, SHAPES[name][2]))
        for name, path in model_dirs.items()
    }


@ALL
def test_directory_is_in_hub_format(model_dirs, name):
    files = {file.name for file in model_dirs[name].iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= files
    assert not [file for file in files if file.endswith((".bin", ".pt", ".pth"))]


@ALL
def test_tokenizer(model_dirs, name):
    """It loads offline, its start token is 0 and is not added, and it gives text back."""
    tokenizer = AutoTokenizer.from_pretrained(model_dirs[name])
    text = "The shells — 12 of them.\n"

    ids = tokenizer(text)["input_ids"]

    assert tokenizer.bos_token_id == builders.START
    assert tokenizer.bos_token == builders.START_TOKEN
    assert builders.START not in ids
    assert text == tokenizer.decode(ids)
    assert builders.VOCABULARY == len(tokenizer)
    assert SHAPES[name][2] == tokenizer.model_max_length


@ALL
def test_attention_has_the_stated_shape_and_mask(attentions, name):
    """Rows sum to 1, and exactly the visible positions hold something."""
    layers, heads, context, windows = SHAPES[name]
    patterns = attentions[name]

    assert [(2, heads, context, context)] * layers == [tuple(p.shape) for p in patterns]
    for pattern, window in zip(patterns, windows, strict=True):
        expected = torch.zeros(context, context, dtype=torch.bool)
        for n in range(context):
            expected[n, oracles.visible(n, 0, window)] = True
        assert torch.equal(expected.expand_as(pattern), pattern > 0)
        assert torch.allclose(pattern.sum(-1), torch.ones(2, heads, context), atol=1e-5)


@ALL
def test_attention_is_far_from_uniform_and_from_one_hot(attentions, name):
    """A mistake in queries, keys or scale would move these patterns."""
    context, windows = SHAPES[name][2:]
    n = context - 1
    for pattern, window in zip(attentions[name], windows, strict=True):
        seen = len(oracles.visible(n, 0, window))
        counts = [oracles.etc(row) for row in pattern[0, :, n].tolist()]
        assert all(1.05 < count < 0.95 * seen for count in counts), counts


@ALL
def test_position_changes_the_attention(model_dirs, attentions, name):
    context, windows = SHAPES[name][2:]
    ids = torch.full((1, context), 17)
    pattern = builders.hf_eager_attentions(model_dirs[name], ids)[0]
    seen = len(oracles.visible(context - 1, 0, windows[0]))
    counts = [oracles.etc(row) for row in pattern[0, :, -1].tolist()]
    assert all(count < 0.97 * seen for count in counts), counts


@pytest.mark.parametrize(
    ("name", "scales"),
    [
        ("gpt2", [7**-0.5] * 3),
        ("gpt2_inverse_layer", [7**-0.5, 7**-0.5 / 2, 7**-0.5 / 3]),
        ("attn_only", [7**-0.5] * 2),
    ],
)
def test_oracle_agrees_with_gpt2(model_dirs, attentions, name, scales):
    model = builders.hf_eager_model(model_dirs[name])
    kept = []
    for block in model.transformer.h:
        block.attn.c_attn.register_forward_hook(lambda _module, _args, output: kept.append(output))
    with torch.inference_mode():
        model(builders.random_ids(2, SHAPES[name][2]))

    for output, scale, pattern in zip(kept, scales, attentions[name], strict=True):
        queries, keys, _ = output[1].unflatten(-1, (3, 5, 7)).unbind(-3)
        for head in (0, 4):
            for n in (0, 11, 36):
                row = oracles.attention_row(
                    queries[n, head].tolist(), keys[:, head].tolist(), scale, n
                )
                assert row == pytest.approx(pattern[1, head, n].tolist(), abs=1e-5)


def test_oracle_agrees_with_gpt_neo(model_dirs, attentions):
    """GPT-Neo's scores are unscaled, and its second layer sees the last 5 tokens only."""
    model = builders.hf_eager_model(model_dirs["gpt_neo"])
    kept = {"q": [], "k": []}
    for block in model.transformer.h:
        for part, into in kept.items():
            getattr(block.attn.attention, f"{part}_proj").register_forward_hook(
                lambda _module, _args, output, into=into: into.append(output[1])
            )
    with torch.inference_mode():
        model(builders.random_ids(2, 43))

    for layer, window in enumerate(SHAPES["gpt_neo"][3]):
        queries, keys = (kept[part][layer].unflatten(-1, (5, 7)) for part in "qk")
        for head, n in ((0, 3), (2, 42)):
            row = oracles.attention_row(
                queries[n, head].tolist(), keys[:, head].tolist(), 1.0, n, window
            )
            assert row == pytest.approx(attentions["gpt_neo"][layer][1, head, n].tolist(), abs=1e-5)


def test_the_same_builder_writes_the_same_weights(tmp_path, model_dirs):
    torch.manual_seed(12345)
    for name in ("gpt2", "qwen3", "attn_only"):
        again = builders.ARCHITECTURES[name](tmp_path / name)
        for file in ("model.safetensors", "tokenizer.json", "config.json"):
            assert (again / file).read_bytes() == (model_dirs[name] / file).read_bytes()


def test_attn_only_has_no_mlp(model_dirs):
    from safetensors import safe_open

    with safe_open(model_dirs["attn_only"] / "model.safetensors", "pt") as file:
        names = set(file.keys())

    expected = {"transformer.wte.weight", "transformer.wpe.weight"}
    expected |= {f"transformer.ln_f.{p}" for p in ("weight", "bias")}
    for part in ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj"):
        expected |= {f"transformer.h.{j}.{part}.{p}" for j in (0, 1) for p in ("weight", "bias")}
    assert expected == names


def test_attn_only_file_that_does_not_fit(tmp_path):
    path = builders.attn_only(tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "n_layers": 3}))
    with pytest.raises(ValueError, match="does not fit"):
        builders.hf_eager_model(path)


def test_a_trained_attn_only_model(shared_dir):
    """A trained model of that format has a previous-token head in layer 0."""
    path = shared_dir / "models" / "trial-attn-2l"
    if not path.is_dir():
        pytest.skip("the folder `shared` has no trial-attn-2l")
    pattern = builders.hf_eager_attentions(path, builders.random_ids(4, 61))[0]
    profiles = [oracles.diagonal_profile(pattern[:, h].tolist(), 1) for h in range(8)]
    assert max(profile[1] for profile in profiles) > 0.8
