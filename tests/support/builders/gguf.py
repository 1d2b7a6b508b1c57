"""Model directories as GGUF files, in llama.cpp's layout: names and turns written out by hand."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.support.builders.families import FULL, SLIDE, rotary
from tests.support.builders.made import START, VOCABULARY, randomise, save_tokenizer

TWO_BASES = {
    SLIDE: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "default", "rope_theta": 500.0},
}

GGUF_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", rotary()),
    "llama-wide-biased": ("llama", rotary(head_dim=14, attention_bias=True, mlp_bias=True)),
    "llama-tied": ("llama", rotary(tie_word_embeddings=True)),
    "llama-3.1": (
        "llama",
        rotary(max_position_embeddings=127, rope_parameters={
            "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 100,
        }),
    ),
    "qwen2": ("qwen2", rotary(key_heads=3)),
    "qwen3": ("qwen3", rotary(head_dim=14)),
    "gemma": ("gemma", rotary(head_dim=14, tie_word_embeddings=True)),
    "gemma2": (
        "gemma2",
        rotary(head_dim=14, sliding_window=7, attn_logit_softcapping=1.7, tie_word_embeddings=True,
               final_logit_softcapping=5.0, query_pre_attn_scalar=14),
    ),
    "gemma3": (
        "gemma3_text",
        rotary(head_dim=14, layers=7, sliding_window=7, rope_parameters=TWO_BASES,
               tie_word_embeddings=True, query_pre_attn_scalar=14),
    ),
    "gpt2": (
        "gpt2",
        {"n_embd": 35, "n_layer": 3, "n_head": 5, "n_positions": 61, "n_inner": 29},
    ),
    "gpt2-untied": (
        "gpt2",
        {"n_embd": 35, "n_layer": 3, "n_head": 5, "n_positions": 61, "n_inner": 29,
         "tie_word_embeddings": False},
    ),
}  # fmt: skip
"""Architectures as transformers calls them, and their configurations."""

WIDE = {"hidden_size": 96, "intermediate_size": 64, "n_embd": 96, "n_inner": 64, "n_head": 6}
"""Sizes of which blocks of 32 numbers can be made."""

PARTS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "transformer.wte": "token_embd", "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}  # fmt: skip
AROUND = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
"""What Gemma 2 and 3 call their norms, which stand on both sides."""


def build(path: Path, name: str, kind: str = "F32") -> Path:
    """Make a model directory whose numbers a GGUF file of this kind holds exactly."""
    architecture, sizes = GGUF_MODELS[name]
    config = {**sizes, "vocab_size": VOCABULARY, "bos_token_id": START, "eos_token_id": START,
              "pad_token_id": None}  # fmt: skip
    if kind != "F32":
        config |= {field: size for field, size in WIDE.items() if field in config}
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[architecture](**config))
    randomise(model, seed=sum(map(ord, name)))
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            turned = parameter.T if _has_inputs_first(part) else parameter
            if _in_blocks(turned.shape, kind):
                packed = _packed(turned.numpy(), kind)
                opened = gguf.dequantize(packed, gguf.GGMLQuantizationType[kind])
                turned.copy_(torch.from_numpy(opened))
    path.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(path)
    save_tokenizer(path, 61)
    return path


def write_gguf(
    directory: Path,
    file: Path,
    kind: str = "F32",
    values: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
    tensors: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write a model directory as a GGUF file, with other values or tensors where they are given."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    told = _values(model.config, kind) | _vocabulary(directory) | dict(values or {})
    stored = _stored(model) | dict(tensors or {})
    writer = gguf.GGUFWriter(file, told.pop("general.architecture"))
    for key, value in told.items():
        if key not in without:
            _add(writer, key, value)
    for name, numbers in stored.items():
        if name in without:
            continue
        if _in_blocks(numbers.shape, kind):
            packed = _packed(numbers, kind)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType[kind])
        else:
            writer.add_tensor(name, np.ascontiguousarray(numbers))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
              str: writer.add_string, list: writer.add_array}  # fmt: skip
    adders[type(value)](key, value)


def _packed(numbers: np.ndarray, kind: str) -> np.ndarray:
    return gguf.quantize(np.ascontiguousarray(numbers), gguf.GGMLQuantizationType[kind])


def _in_blocks(shape: Collection[int], kind: str) -> bool:
    return kind != "F32" and len(shape) == 2 and list(shape)[-1] % 32 == 0


def _has_inputs_first(name: str) -> bool:
    return name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))


def _values(config: Any, kind: str) -> dict[str, Any]:
    """What llama.cpp's converter says of a model."""
    arch = {"gemma3_text": "gemma3"}.get(config.model_type, config.model_type)
    types = {"F32": gguf.LlamaFileType.ALL_F32, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
             "Q4_1": gguf.LlamaFileType.MOSTLY_Q4_1}  # fmt: skip
    found = {"general.architecture": arch, "general.type": "model", "general.name": "Tiny",
             "general.file_type": int(types[kind])}  # fmt: skip
    sizes = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "attention.head_count": config.num_attention_heads,
    }
    if arch == "gpt2":
        sizes |= {"feed_forward_length": config.n_inner,
                  "attention.layer_norm_epsilon": config.layer_norm_epsilon}  # fmt: skip
    else:
        width = getattr(config, "head_dim", None)
        width = width or config.hidden_size // config.num_attention_heads
        rotation = config.rope_parameters
        sizes |= {
            "feed_forward_length": config.intermediate_size,
            "attention.head_count_kv": config.num_key_value_heads,
            "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
            "attention.key_length": width,
            "attention.value_length": width,
            "rope.freq_base": float(rotation.get(FULL, rotation)["rope_theta"]),
        }
    if arch == "llama":
        sizes |= {"rope.dimension_count": width, "vocab_size": config.vocab_size}
    if arch in ("gemma2", "gemma3"):
        sizes["attention.sliding_window"] = config.sliding_window
    if arch == "gemma2":
        sizes |= {"attn_logit_softcapping": config.attn_logit_softcapping,
                  "final_logit_softcapping": config.final_logit_softcapping}  # fmt: skip
    return found | {f"{arch}.{key}": value for key, value in sizes.items()}


def _vocabulary(directory: Path) -> dict[str, Any]:
    told = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = sorted(told["model"]["vocab"], key=told["model"]["vocab"].get)
    special = {each["content"] for each in told["added_tokens"]}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if each in special else 1 for each in tokens],
        "tokenizer.ggml.merges": [" ".join(each) for each in told["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": START,
        "tokenizer.ggml.eos_token_id": START,
    }


def _stored(model: nn.Module) -> dict[str, np.ndarray]:
    """Tensors by llama.cpp's names, and as it lays them out."""
    config = model.config
    around = AROUND if config.model_type in ("gemma2", "gemma3_text") else {}
    found = {}
    for name, parameter in model.named_parameters():
        part, suffix = name.rsplit(".", 1)
        for before in ("model.layers.", "transformer.h."):
            if part.startswith(before):
                layer, _, inner = part.removeprefix(before).partition(".")
                part = f"blk.{layer}." + {**PARTS, **around}[inner]
        numbers = parameter.detach().numpy()
        if _has_inputs_first(name):
            numbers = numbers.T
        if config.model_type == "llama" and "q_proj" in name:
            numbers = _paired(numbers, config.num_attention_heads)
        if config.model_type == "llama" and "k_proj" in name:
            numbers = _paired(numbers, config.num_key_value_heads)
        if config.model_type.startswith("gemma") and "norm" in name:
            numbers = numbers + np.float32(1)
        found[f"{PARTS.get(part, part)}.{suffix}"] = numbers
    rotation = getattr(config, "rope_parameters", {})
    if rotation.get("rope_type") == "llama3":
        found["rope_freqs.weight"] = _factors(config.head_dim, **rotation)
    return found


def _factors(
    width: int, rope_theta: float, factor: float, low_freq_factor: float, high_freq_factor: float,
    original_max_position_embeddings: int, **_kind: str,
) -> np.ndarray:  # fmt: skip
    """What llama.cpp divides the speed of each pair by."""
    length = original_max_position_embeddings * rope_theta ** -(np.arange(0, width, 2) / width)
    turns = length / (2 * np.pi)
    smooth = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype("f4")


def _paired(numbers: np.ndarray, heads: int) -> np.ndarray:
    """Rows of halves of heads, as neighbours."""
    halves = numbers.reshape(heads, 2, -1, *numbers.shape[1:])
    return halves.swapaxes(1, 2).reshape(numbers.shape)
