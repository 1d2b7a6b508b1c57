"""Build the ``config.json`` of the model in a GGUF file from the file's header.

Unknown settings that might change the attention are refused by name, never ignored.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.models.gguf import Header

SPLIT = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
OTHERWISE = re.compile(r"(^|\.)rope_(freqs|factors)")
"""Tensors that change the rotation of queries and keys in other ways than by its base."""


@dataclass(frozen=True)
class _Family:
    """How one of llama.cpp's architectures is configured in transformers.

    Attributes:
        kind: transformers' ``model_type``.
        sizes: required header keys -> fields of the configuration.
        more: optional header keys -> fields, with llama.cpp's default.
        fixed: fields with the same value in all models of the family.
    """

    kind: str
    sizes: dict[str, str]
    more: dict[str, tuple[str, Any]] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)


ROTARY = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
GPT2 = {
    "block_count": "n_layer",
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "feed_forward_length": "n_inner",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
CAPS = {
    "attn_logit_softcapping": ("attn_logit_softcapping", 50.0),
    "final_logit_softcapping": ("final_logit_softcapping", 30.0),
}
WINDOW = "attention.sliding_window"
LARGEST = {"gemma2": 46, "gemma3": 62}
"""Layers of the 27 B models, whose scores are scaled differently; llama.cpp tests this number."""

FAMILIES = {
    "llama": _Family("llama", ROTARY),
    "qwen2": _Family("qwen2", ROTARY),
    "qwen3": _Family("qwen3", ROTARY),
    "gemma": _Family("gemma", ROTARY),
    "gemma2": _Family("gemma2", ROTARY, {WINDOW: ("sliding_window", 4096), **CAPS}),
    "gemma3": _Family("gemma3_text", ROTARY | {WINDOW: "sliding_window"}),
    "gpt2": _Family("gpt2", GPT2, fixed={"activation_function": "gelu_new"}),
}
"""The supported architectures, by ``general.architecture``."""

READ_BELOW = {
    "vocab_size", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "rope.dimension_count", "rope.freq_base", "tensor_data_layout",
}  # fmt: skip
READ_OF_GPT2 = {"vocab_size", "attention.head_count_kv"}
WITHOUT_EFFECT = {
    "rope.scaling.type": "none",
    "rope.freq_base_swa": 10_000.0,
    "attention.causal": True,
    "expert_count": 0,
    "expert_used_count": 0,
}
"""Keys that are ignored when they have these values, which are the defaults."""


def model_config(name: str, file: Path, header: Header) -> dict[str, Any]:
    """Return the ``config.json`` of the model in a GGUF file.

    Raises:
        UnsupportedModel: the architecture is not supported, the file is only a part of a model, or
            it has an unknown setting that might change the attention.
    """
    values = header.values
    _check_whole(name, file, values)
    architecture = values.get("general.architecture")
    family = FAMILIES.get(str(architecture))
    if family is None:
        raise UnsupportedModel(
            f"{name!r} is of GGUF architecture {str(architecture)[:60]!r}, which is not read; "
            f"PosKernel reads {', '.join(FAMILIES)}."
        )
    own = f"{architecture}."
    told = {key.removeprefix(own): each for key, each in values.items() if key.startswith(own)}
    _check_known(name, own, family, told)
    if any(OTHERWISE.search(each.name) for each in header.tensors):
        raise UnsupportedModel(
            f"{name!r} has factors for its rotation (rope_freqs), as Llama 3.1 and later do, which "
            "are not read from GGUF: give the model it was made from."
        )
    config = {"model_type": family.kind, **family.fixed}
    config |= {
        under: _number(name, own + key, told.get(key)) for key, under in family.sizes.items()
    }
    for key, (under, otherwise) in family.more.items():
        config[under] = _number(name, own + key, told.get(key, otherwise))
    names = {each.name: each.shape for each in header.tensors}
    embedded = names.get("token_embd.weight", ())
    if len(embedded) != 2:
        raise UnsupportedModel(f"{name!r} has no embeddings of tokens (token_embd.weight).")
    config["vocab_size"] = embedded[0]
    config["tie_word_embeddings"] = "output.weight" not in names
    for field_ in ("bos_token_id", "eos_token_id"):
        token = values.get(f"tokenizer.ggml.{field_}")
        config[field_] = token if type(token) is int and 0 <= token < embedded[0] else None
    if family.kind != "gpt2":
        config |= _of_rotary(name, own, told, config)
        config["attention_bias"] = "blk.0.attn_q.bias" in names
    if family.kind == "llama":
        config["mlp_bias"] = "blk.0.ffn_up.bias" in names
    if family.kind.startswith("gemma") and family.kind != "gemma":
        wide = config["num_hidden_layers"] == LARGEST[str(architecture)]
        heads = config["hidden_size"] / config["num_attention_heads"]
        config["query_pre_attn_scalar"] = heads if wide else config["head_dim"]
    return config


def _of_rotary(name: str, own: str, told: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return the number of key heads, the head width and the rotation (of the full width)."""
    heads = config["num_attention_heads"]
    told_width = told.get("attention.key_length", config["hidden_size"] // heads)
    width = _number(name, f"{own}attention.key_length", told_width)
    for key in ("attention.value_length", "rope.dimension_count"):
        if told.get(key, width) != width:
            raise UnsupportedModel(
                f"{name!r} has keys of width {width} and {own}{key} of {str(told[key])[:40]}, "
                "which is not read from GGUF: give the model it was made from."
            )
    base = _number(name, f"{own}rope.freq_base", told.get("rope.freq_base", 10_000.0))
    rotation: dict[str, Any] = {"rope_type": "default", "rope_theta": float(base)}
    if config["model_type"] == "gemma3_text":
        local = {**rotation, "rope_theta": 10_000.0}
        rotation = {"full_attention": rotation, "sliding_attention": local}
    shared = told.get("attention.head_count_kv", heads)
    return {
        "num_key_value_heads": _number(name, f"{own}attention.head_count_kv", shared),
        "head_dim": width,
        "rope_parameters": rotation,
    }


def _check_whole(name: str, file: Path, values: dict[str, Any]) -> None:
    """Refuse parts of split models, and files such as adapters or image encoders."""
    parts = SPLIT.search(file.name)
    if values.get("split.count", 1) not in (0, 1) or (parts and int(parts[1]) > 1):
        raise UnsupportedModel(
            f"{name!r} is a part of a split model: join the parts first, which llama.cpp's "
            "gguf-split does."
        )
    kind = values.get("general.type", "model")
    if kind != "model" or values.get("general.architecture") == "clip":
        raise UnsupportedModel(
            f"Expected a language model in {name!r}, it holds {str(kind)[:60]!r}, such as an "
            "adapter or what reads images: name the model's own file."
        )


def _check_known(name: str, own: str, family: _Family, told: dict[str, Any]) -> None:
    """Refuse keys that are unknown for a family: they might change the attention."""
    known = {*family.sizes, *family.more, *(READ_OF_GPT2 if family.kind == "gpt2" else READ_BELOW)}
    for key, value in told.items():
        if key in known or (key in WITHOUT_EFFECT and value == WITHOUT_EFFECT[key]):
            continue
        raise UnsupportedModel(
            f"{name!r} sets {f'{own}{key}'[:80]!r} to {str(value)[:40]!r}, which is not read from "
            "GGUF and might change its attention: give the model it was made from."
        )
    heads = told.get("attention.head_count")
    if family.kind == "gpt2" and told.get("attention.head_count_kv", heads) != heads:
        raise UnsupportedModel(f"{name!r} shares key heads, which GPT-2 never does.")


def _number(name: str, key: str, value: Any) -> int | float:
    """Return ``value`` if it is a finite number above zero, else raise UnsupportedModel."""
    if type(value) in (int, float) and math.isfinite(value) and value > 0:
        return value
    got = "found none" if value is None else f"got {str(value)[:40]!r}"
    raise UnsupportedModel(
        f"Expected {key!r} in {name!r} to be a number above zero, {got}: fetch the file again."
    )
