"""How the tiny models are made: sizes, random weights, a tokenizer, and saving."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PretrainedConfig,
    PreTrainedModel,
)

START = 0
START_TOKEN = "<|endoftext|>"
VOCABULARY = 293

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


class _NoMLP(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def gpt2_config(n_positions: int, **changes: object) -> GPT2Config:
    """A small GPT-2 of unequal prime sizes."""
    sizes = {"vocab_size": VOCABULARY, "n_embd": 35, "n_layer": 3, "n_head": 5, "n_inner": 29}
    tokens = {"bos_token_id": START, "eos_token_id": START}
    return GPT2Config(**{**sizes, **tokens, "n_positions": n_positions, **changes})


def rotary_sizes(
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


def build(path: Path, config: PretrainedConfig, seed: int, gain: float = 1.4) -> Path:
    """Make a model of a configuration with random weights, and save it with a tokenizer."""
    model = AutoModelForCausalLM.from_config(config)
    randomise(model, seed, gain)
    return save(model, path, config.max_position_embeddings)


def randomise(model: nn.Module, seed: int, gain: float = 1.4) -> None:
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


def attn_only_skeleton(config: dict[str, object]) -> GPT2LMHeadModel:
    """A GPT-2 whose MLPs add nothing, of the sizes of an attention-only configuration."""
    model = GPT2LMHeadModel(
        gpt2_config(
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


def attn_only_config(layers: int, heads: int, head_width: int, context: int) -> dict[str, object]:
    """What an attention-only directory says of itself."""
    return {
        "model_type": "attn-only",
        "n_layers": layers,
        "n_heads": heads,
        "d_model": heads * head_width,
        "d_head": head_width,
        "n_ctx": context,
        "d_vocab": VOCABULARY,
        "attn_only": True,
        "normalization_type": "LN",
        "positional_embedding_type": "standard",
        "tied_embeddings": True,
    }


def save_attn_only(model: nn.Module, path: Path, config: dict[str, object], without: str) -> Path:
    """Save a skeleton without its head, and without the parameters whose names hold a word."""
    path.mkdir(parents=True, exist_ok=True)
    state = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if without not in name and name != "lm_head.weight"
    }
    save_file(state, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config, indent=2))
    save_tokenizer(path, config["n_ctx"])
    return path


def save(model: PreTrainedModel, path: Path, context: int) -> Path:
    model.save_pretrained(path)
    save_tokenizer(path, context)
    return path


def save_tokenizer(path: Path, context: int) -> None:
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
