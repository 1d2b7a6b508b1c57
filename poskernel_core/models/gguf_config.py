"""Build the ``config.json`` of the model in a GGUF file from the file's header.

transformers' own table leaves out what changes the attention, such as the factors of Llama 3.1's
rotation, widths of heads, biases and caps of scores. Here, unknown settings are refused by name.
"""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.models.gguf import Header, Stored

SPLIT = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
FACTORS = "rope_freqs.weight"
OTHERWISE = re.compile(r"(^|\.)rope_(freqs|factors)")
"""Tensors that change the rotation of queries and keys in other ways than by its base."""

SIZES = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
}
ROTARY = {
    "feed_forward_length": "intermediate_size",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
WINDOW = {"attention.sliding_window": "sliding_window"}
CAPS = ("attn_logit_softcapping", "final_logit_softcapping")

FAMILIES = {
    "llama": ROTARY,
    "qwen2": ROTARY,
    "qwen3": ROTARY,
    "gemma": ROTARY,
    "gemma2": ROTARY | WINDOW | {field: field for field in CAPS},
    "gemma3": ROTARY | WINDOW,
    "gpt2": {
        "feed_forward_length": "n_inner",
        "attention.layer_norm_epsilon": "layer_norm_epsilon",
    },
}
"""Supported architectures: keys of the header, and fields of transformers' configuration."""

DEFAULTS = {"rope.freq_base": 10_000.0, **dict(zip(CAPS, (50.0, 30.0), strict=True))}
WITHOUT_EFFECT = {
    "rope.scaling.type": "none",
    "rope.freq_base_swa": 10_000.0,
    "attention.causal": True,
    "expert_count": 0,
    "expert_used_count": 0,
}
"""Keys that are ignored when they have these values, which are the defaults."""

LARGEST = {"gemma2": 46, "gemma3": 62}
"""Layers of the 27 B models, whose scores are scaled differently; llama.cpp tests this number."""


def model_config(name: str, file: Path, header: Header) -> dict[str, Any]:
    """Return the ``config.json`` of the model in a GGUF file."""
    values, stored = header.values, {tensor.name: tensor for tensor in header.tensors}
    parts = SPLIT.search(file.name)
    if values.get("split.count", 1) not in (0, 1) or (parts and int(parts[1]) > 1):
        raise UnsupportedModel(
            f"{name!r} is a part of a split model: join the parts first, which llama.cpp's "
            "gguf-split does."
        )
    said = values.get("general.type", "model")
    if said != "model" or values.get("general.architecture") == "clip":
        raise UnsupportedModel(
            f"Expected a language model in {name!r}, it holds {str(said)[:60]!r}, such as an "
            "adapter or what reads images: name the model's own file."
        )
    kind = str(values.get("general.architecture"))
    if kind not in FAMILIES:
        raise UnsupportedModel(
            f"{name!r} is of GGUF architecture {kind[:60]!r}, which is not read; PosKernel reads "
            f"{', '.join(FAMILIES)}."
        )
    metadata = {
        key[len(kind) + 1 :]: entry for key, entry in values.items() if key.startswith(f"{kind}.")
    }
    config = _config(name, kind, metadata)
    width, heads = config["hidden_size"], config["num_attention_heads"]
    same = dict.fromkeys(("attention.value_length", "rope.dimension_count"), config.get("head_dim"))
    ignored = WITHOUT_EFFECT | ({"attention.head_count_kv": heads} if kind == "gpt2" else same)
    readable = {*SIZES, *FAMILIES[kind], "vocab_size", "tensor_data_layout"}
    for key, value in metadata.items():
        if key not in readable and ignored.get(key) != value:
            raise UnsupportedModel(
                f"{name!r} sets {f'{kind}.{key}'[:80]!r} to {str(value)[:40]!r}, which is not read "
                "from GGUF and might change its attention: give the model it was made from."
            )
    embedded = stored["token_embd.weight"].shape if "token_embd.weight" in stored else ()
    if len(embedded) != 2:
        raise UnsupportedModel(f"{name!r} has no embeddings of tokens (token_embd.weight).")
    config["vocab_size"] = embedded[0]
    config["tie_word_embeddings"] = "output.weight" not in stored
    for field in ("bos_token_id", "eos_token_id"):
        token = values.get(f"tokenizer.ggml.{field}")
        config[field] = token if type(token) is int and 0 <= token < embedded[0] else None
    if kind == "gpt2":
        return config
    config["attention_bias"] = "blk.0.attn_q.bias" in stored
    rotation = {"rope_type": "default", "rope_theta": float(config.pop("rope_theta"))}
    config["rope_parameters"] = rotation | _factors(name, file, stored, config)
    if kind == "llama":
        config["mlp_bias"] = "blk.0.ffn_up.bias" in stored
    if kind in LARGEST:
        wide = config["num_hidden_layers"] == LARGEST[kind]
        config["query_pre_attn_scalar"] = width / heads if wide else config["head_dim"]
    if kind == "gemma3":
        local = {**rotation, "rope_theta": 10_000.0}
        rotations = {"full_attention": config["rope_parameters"], "sliding_attention": local}
        config |= {"model_type": "gemma3_text", "rope_parameters": rotations}
    return config


def _config(name: str, kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {"model_type": kind}
    defaults: dict[str, Any] = {**DEFAULTS}
    if kind == "gemma2":
        defaults["attention.sliding_window"] = 4096
    for key, field in (SIZES | FAMILIES[kind]).items():
        value: Any = metadata.get(key, defaults.get(key))
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            got = "found none" if value is None else f"got {str(value)[:40]!r}"
            raise UnsupportedModel(
                f"Expected {f'{kind}.{key}'!r} in {name!r} to be a number above zero, {got}: fetch "
                "the file again."
            )
        config[field] = value
        if field == "num_attention_heads":
            defaults["attention.head_count_kv"] = value
            defaults["attention.key_length"] = config["hidden_size"] // value
    return config


def _factors(
    name: str, file: Path, stored: dict[str, Stored], config: dict[str, Any]
) -> dict[str, Any]:
    """Return the rotation's settings for factors in a tensor, as Llama 3.1 and later have them.

    A factor divides the speed of a pair at every length, which is what transformers calls
    ``longrope`` with equal factors for short and long texts.
    """
    names, pairs = [key for key in stored if OTHERWISE.search(key)], config["head_dim"] // 2
    if not names:
        return {}
    one = stored[names[0]]
    factors = np.fromfile(file, "<f4", pairs, offset=one.start)
    if (names, one.kind, one.shape) != ([FACTORS], 0, (pairs,)) or not (
        (factors > 0) & (factors < np.inf)
    ).all():
        raise UnsupportedModel(
            f"{name!r} has factors for its rotation ({', '.join(names)[:60]}) in a form that is "
            f"not read from GGUF; expected {pairs} numbers above zero in F32 as {FACTORS}: give "
            "the model it was made from."
        )
    return {
        "rope_type": "longrope",
        "short_factor": factors.tolist(),
        "long_factor": factors.tolist(),
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": config["max_position_embeddings"],
    }
