"""Tiny models in hub format, for tests: one of each architecture, and some with known kernels.

Sizes are small, unequal and mostly prime, so that a swapped axis cannot go unnoticed. The weights
are random, but larger than at the start of a training, so that attention is far from uniform; the
biases and the norms' weights are random too, so that none of them can be forgotten unnoticed.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

__all__ = [
    "ARCHITECTURES",
    "START",
    "START_TOKEN",
    "VOCABULARY",
    "attn_only",
    "gpt2",
    "gpt2_inverse_layer",
    "gpt_neo",
    "gpt_neox",
    "hf_eager_attentions",
    "hf_eager_model",
    "llama",
    "look_back",
    "mini_corpus",
    "mistral",
    "opt",
    "qwen2",
    "qwen3",
    "random_ids",
    "random_words",
]

START = 0
START_TOKEN = "<|endoftext|>"
VOCABULARY = 293
LOOK_BACK_SCORE = 16.0

_SENTENCES = (
    "In the beginning was the word, and the word was written down by somebody.",
    "The previous token, and the token before it, are often all that a head looks at.",
    "A positional kernel says how much a head attends to each position, whatever stands there.",
    "She sells sea shells on the sea shore; the shells that she sells are sea shells, I'm sure.",
    "One hundred and forty-four heads, 12 layers, 768 dimensions, and 1024 positions.",
)
_QUERY_KEY_NAMES = ("q_proj", "k_proj", "c_attn", "query_key_value")
_EMBEDDING_NAMES = ("wte", "wpe", "embed_tokens", "embed_positions", "embed_in")
_INPUT_FIRST_NAMES = ("c_attn", "c_proj", "c_fc")


# Architectures ------------------------------------------------------------------------------------


def gpt2(path: Path) -> Path:
    """GPT-2: learned positions; 3 layers, 5 heads of width 7, context 41."""
    return _build(path, _gpt2_config(n_positions=41), seed=2)


def gpt2_inverse_layer(path: Path) -> Path:
    """GPT-2 with scores divided by the layer's number, from 1; context 37."""
    config = _gpt2_config(n_positions=37, scale_attn_by_inverse_layer_idx=True)
    return _build(path, config, seed=3)


def gpt_neo(path: Path) -> Path:
    """GPT-Neo: learned positions, unscaled scores; layer 1 of 3 is local with a window of 5."""
    config = GPTNeoConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=43,
        hidden_size=35,
        num_layers=3,
        attention_types=[[["global", "local", "global"], 1]],
        num_heads=5,
        intermediate_size=29,
        window_size=5,
        bos_token_id=START,
        eos_token_id=START,
    )
    return _build(path, config, seed=5, gain=0.8)


def opt(path: Path) -> Path:
    """OPT: learned positions that begin at row 2 of their matrix; context 47."""
    config = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=35,
        word_embed_proj_dim=35,
        num_hidden_layers=3,
        num_attention_heads=5,
        ffn_dim=29,
        max_position_embeddings=47,
        dropout=0.0,
        bos_token_id=START,
        eos_token_id=START,
        pad_token_id=1,
    )
    return _build(path, config, seed=7)


def llama(path: Path) -> Path:
    """Llama: rotary; 6 query heads share 2 keys, heads of width 10; context 53."""
    config = LlamaConfig(
        **_rotary_sizes(context=53, heads=6, key_heads=2, head_width=10), hidden_size=60
    )
    return _build(path, config, seed=11)


def mistral(path: Path) -> Path:
    """Mistral: rotary, 5 query heads share 1 key, a sliding window of 7 everywhere; context 59."""
    sizes = _rotary_sizes(context=59, heads=5, key_heads=1, head_width=14)
    return _build(path, MistralConfig(**sizes, hidden_size=70, sliding_window=7), seed=13)


def qwen2(path: Path) -> Path:
    """Qwen2: rotary, with biases on queries and keys; 6 query heads share 3 keys; context 61."""
    sizes = _rotary_sizes(context=61, heads=6, key_heads=3)
    return _build(path, Qwen2Config(**sizes, hidden_size=48), seed=17)


def qwen3(path: Path) -> Path:
    """Qwen3: rotary, queries and keys normed; heads of width 10 in a stream of width 46."""
    sizes = _rotary_sizes(context=43, heads=6, key_heads=2, head_width=10)
    return _build(path, Qwen3Config(**sizes, hidden_size=46), seed=19)


def gpt_neox(path: Path) -> Path:
    """GPT-NeoX: parallel blocks, 6 of each head's 12 dimensions rotary; context 53."""
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=60,
        num_hidden_layers=3,
        num_attention_heads=5,
        intermediate_size=31,
        max_position_embeddings=53,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
        bos_token_id=START,
        eos_token_id=START,
    )
    return _build(path, config, seed=23)


def attn_only(path: Path) -> Path:
    """Attention only, in GPT-2's names without MLPs; 2 layers, 5 heads of width 7, context 41."""
    shape = {"n_layers": 2, "n_heads": 5, "d_model": 35, "d_head": 7, "n_ctx": 41}
    config = {
        "model_type": "attn-only",
        **shape,
        "d_vocab": VOCABULARY,
        "attn_only": True,
        "normalization_type": "LN",
        "positional_embedding_type": "standard",
        "tied_embeddings": True,
    }
    model = _attn_only_skeleton(config)
    _randomise(model, seed=29)
    path.mkdir(parents=True, exist_ok=True)
    state = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if ".mlp." not in name and name != "lm_head.weight"
    }
    save_file(state, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config, indent=2))
    _save_tokenizer(path, shape["n_ctx"])
    return path


ARCHITECTURES: dict[str, Callable[[Path], Path]] = {
    "gpt2": gpt2,
    "gpt2_inverse_layer": gpt2_inverse_layer,
    "gpt_neo": gpt_neo,
    "opt": opt,
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "gpt_neox": gpt_neox,
    "attn_only": attn_only,
}
"""Every architecture's builder: it fills the directory that it is given, and returns it."""


# Constructed models -------------------------------------------------------------------------------


def look_back(path: Path, k: int, T: int = 37, tau: float = 5.0) -> Path:
    """A GPT-2 without training whose layer-0 kernels are known, whatever the tokens.

    Attention in layer 0, and so every kernel (with `skip = 0`), for visible `i`:

    - head 0 looks back `k`: for `n >= k`, weight `e^16` at `i = n - k` and 1 elsewhere, that is
      `A(n, n-k) = e^16 / (e^16 + n) > 0.999`; for `n < k`, uniform;
    - head 1 is uniform: `A(n, i) = 1 / (n + 1)`;
    - head 2 decays: `A(n, i)` proportional to `exp(-(n - i) / tau)`, exactly.

    Layer 1 is uniform in every head. Attention and MLP write nothing, so the stream stays at
    the embeddings; layer 1 reads the same vectors as layer 0.

    Each position's vector is a one-hot code, a ramp `n / T`, and what the ramp lacks to a constant
    length; tokens live in other dimensions, as signs that add up to 0. So all sums of the two have
    one mean and one length, and the norm's weight and bias undo it: post-ln1 is the stream itself.

    Args:
        path: the directory to fill.
        k: how far head 0 looks back, in tokens.
        T: context length.
        tau: decay length of head 2, in tokens.
    """
    heads, head_width, signs = 3, T + (T % 2), 12
    width, ramp, rest, tokens = heads * head_width, T, T + 2, T + 4
    config = _gpt2_config(n_positions=T, n_embd=width, n_head=heads, n_layer=2, n_inner=1)
    model = GPT2LMHeadModel(config)
    nn.utils.vector_to_parameters(
        torch.zeros(sum(p.numel() for p in model.parameters())), model.parameters()
    )
    body, position = model.transformer, torch.arange(T)
    height = position / T
    with torch.no_grad():
        body.wpe.weight[position, position] = 1.0
        body.wpe.weight[:, ramp], body.wpe.weight[:, ramp + 1] = height, -height
        body.wpe.weight[:, rest] = (1 - height**2).sqrt()
        body.wpe.weight[:, rest + 1] = -body.wpe.weight[:, rest]
        body.wte.weight[:, tokens : tokens + signs] = _balanced_signs(signs)

        one = (body.wpe.weight[T // 2] + body.wte.weight[START]).double()
        spread = (one.var(correction=0) + config.layer_norm_epsilon).sqrt()
        for block in body.h:
            block.ln_1.weight.fill_(spread.item())
            block.ln_1.bias.fill_(one.mean().item())
        body.ln_f.weight.fill_(1.0)

        query_key, bias = body.h[0].attn.c_attn.weight, body.h[0].attn.c_attn.bias
        unscale = math.sqrt(head_width)
        earlier = position[: T - k]
        query_key[earlier + k, earlier] = LOOK_BACK_SCORE * unscale
        query_key[position, width + position] = 1.0
        bias[2 * head_width] = unscale * T / tau
        query_key[ramp, width + 2 * head_width] = 1.0
    _save(model, path, T)
    return path


def _balanced_signs(dimensions: int) -> Tensor:
    """A different vector of as many +0.5 as -0.5 for each token, [vocabulary, dimensions]."""
    generator, found = random.Random(31), {}
    signs = [0.5, -0.5] * (dimensions // 2)
    while len(found) < VOCABULARY:
        generator.shuffle(signs)
        found[tuple(signs)] = None
    return torch.tensor(list(found))


# Ground truth -------------------------------------------------------------------------------------


class _NoMLP(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def hf_eager_model(path: Path) -> PreTrainedModel:
    """The plain transformers model of a directory, with eager attention, in evaluation mode.

    For an attention-only directory: a GPT-2 whose MLPs return zero.
    """
    config = json.loads((path / "config.json").read_text())
    if not config.get("attn_only"):
        return AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
    model = _attn_only_skeleton(config)
    result = model.load_state_dict(load_file(path / "model.safetensors"), strict=False)
    if result.missing_keys != ["lm_head.weight"] or result.unexpected_keys:
        raise ValueError(f"the file does not fit its config.json: {result}")
    return model.eval()


def hf_eager_attentions(path: Path, ids: Tensor) -> list[Tensor]:
    """Attention probabilities of each layer, [batch, head, query, key]; `ids` is [batch, T]."""
    with torch.inference_mode():
        return list(hf_eager_model(path)(ids, output_attentions=True, use_cache=False).attentions)


def random_ids(batch: int, length: int, seed: int = 0) -> Tensor:
    """Random token ids without the start token, [batch, length]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (batch, length), generator=generator)


# Text ---------------------------------------------------------------------------------------------


def random_words(count: int, seed: int = 0) -> str:
    """Made-up words, the early ones of a fixed list far more frequent, as in real text."""
    generator = random.Random(seed)
    syllables = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    lexicon_of_all = random.Random(37)
    lexicon = ["".join(lexicon_of_all.choices(syllables, k=1 + j % 3)) for j in range(200)]
    weights = [1 / (rank + 1) for rank in range(len(lexicon))]
    return " ".join(generator.choices(lexicon, weights, k=count))


def mini_corpus(
    path: Path, documents: int = 7, words: int = 101, seed: int = 0
) -> tuple[Path, Path]:
    """Write the same documents as `mini.txt` (a blank line between them) and as `mini.jsonl`.

    Args:
        path: the folder to write to.
        documents: how many.
        words: made-up words in each, see `random_words`.
        seed: of the words.

    Returns:
        The two files.
    """
    path.mkdir(parents=True, exist_ok=True)
    texts = [random_words(words, seed * documents + j) for j in range(documents)]
    plain, lines = path / "mini.txt", path / "mini.jsonl"
    plain.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    lines.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")
    return plain, lines


# How they are made --------------------------------------------------------------------------------


def _gpt2_config(n_positions: int, **changes: object) -> GPT2Config:
    sizes = {"vocab_size": VOCABULARY, "n_embd": 35, "n_layer": 3, "n_head": 5, "n_inner": 29}
    tokens = {"bos_token_id": START, "eos_token_id": START}
    return GPT2Config(**{**sizes, **tokens, "n_positions": n_positions, **changes})


def _rotary_sizes(
    context: int, heads: int, key_heads: int, head_width: int | None = None
) -> dict[str, object]:
    """What Llama, Mistral, Qwen2 and Qwen3 name alike."""
    sizes = {
        "vocab_size": VOCABULARY,
        "num_hidden_layers": 3,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "intermediate_size": 31,
        "max_position_embeddings": context,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "bos_token_id": START,
        "eos_token_id": START,
    }
    return sizes if head_width is None else {**sizes, "head_dim": head_width}


def _build(path: Path, config: PretrainedConfig, seed: int, gain: float = 1.4) -> Path:
    model = AutoModelForCausalLM.from_config(config)
    _randomise(model, seed, gain)
    _save(model, path, config.max_position_embeddings)
    return path


def _randomise(model: nn.Module, seed: int, gain: float = 1.4) -> None:
    """Fresh weights; `gain` is the standard deviation of queries and keys of normed vectors."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                centre = 1.0 if name.endswith("weight") else 0.0
                parameter.copy_(centre + 0.3 * noise)
            elif any(part in name for part in _EMBEDDING_NAMES):
                parameter.copy_(noise)
            else:
                input_first = any(part in name for part in _INPUT_FIRST_NAMES)
                inputs = parameter.shape[0 if input_first else 1]
                scale = gain if any(part in name for part in _QUERY_KEY_NAMES) else 1.0
                parameter.copy_(scale / math.sqrt(inputs) * noise)


def _attn_only_skeleton(config: dict[str, object]) -> GPT2LMHeadModel:
    model = GPT2LMHeadModel(
        _gpt2_config(
            n_positions=config["n_ctx"],
            vocab_size=config["d_vocab"],
            n_embd=config["d_model"],
            n_layer=config["n_layers"],
            n_head=config["n_heads"],
            attn_implementation="eager",
        )
    )
    for block in model.transformer.h:
        block.mlp = _NoMLP()
    return model


def _save(model: PreTrainedModel, path: Path, context: int) -> None:
    model.save_pretrained(path)
    _save_tokenizer(path, context)


def _save_tokenizer(path: Path, context: int) -> None:
    """A byte-level byte-pair encoding whose token 0 is the start token."""
    tokenizer = _train_tokenizer(_SENTENCES)
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "backend": "tokenizers",
        "bos_token": START_TOKEN,
        "eos_token": START_TOKEN,
        "model_max_length": context,
        "tokenizer_class": "TokenizersBackend",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def _train_tokenizer(texts: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[START_TOKEN],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
