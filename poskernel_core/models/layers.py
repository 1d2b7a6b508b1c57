"""Read each layer's kind from a configuration: which keys its heads see, or why it has no heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poskernel_core.common.errors import UnsupportedModel

FULL, SLIDING, CHUNKED, NONE = "full", "sliding", "chunked", "none"

NAMES = {
    "full_attention": FULL,
    "attention": FULL,
    "global": FULL,
    "hybrid": FULL,
    "sliding_attention": SLIDING,
    "local": SLIDING,
    "chunked_attention": CHUNKED,
}
"""Kinds of layers with heads, by their names in configurations."""

HEADLESS = {
    "linear_attention": "linear attention, which has no softmax",
    "mamba": "a state-space layer, without attention",
    "mamba2": "a state-space layer, without attention",
    "recurrent": "a recurrent layer, without attention",
    "conv": "a convolution, without attention",
    "mlp": "an MLP alone, without attention",
    "moe": "experts alone, without attention",
}
"""Why layers have no heads, by their names in configurations."""

OF_NEMOTRON = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


@dataclass(frozen=True)
class Layer:
    """One layer's attention, as described by the configuration.

    Attributes:
        kind: ``full``, ``sliding``, ``chunked``, or ``none`` for a layer without heads.
        d_head: width of the queries and keys; 0 without heads.
        n_kv_heads: number of key heads; 0 without heads.
        window: number of visible keys, or the length of a chunk; None for all keys.
        positions: whether position affects queries, keys or scores (apart from the mask).
        base: base of the rotation; None without rotation, or if unknown.
        reason: why the layer has no heads; None if it has heads.
    """

    kind: str
    d_head: int
    n_kv_heads: int
    window: int | None = None
    positions: bool = True
    base: float | None = None
    reason: str | None = None


def layer_kinds(
    config: dict[str, Any], n_layers: int, sliding: str | int | None
) -> list[str] | None:
    """Return the name of every layer's kind, as listed or implied by the configuration.

    ``sliding`` is the attribute of :class:`~poskernel_core.models.families.Family`; it is used if
    the configuration does not list the layers. Return None if the configuration's list is not a
    list of ``n_layers`` names.
    """
    listed = config.get("layer_types") or config.get("layers_block_type")
    pattern = config.get("hybrid_override_pattern")
    if listed is None and isinstance(pattern, str):
        listed = [OF_NEMOTRON.get(letter, letter) for letter in pattern]
    if listed is None:
        return _implied(config, n_layers, sliding)
    fits = isinstance(listed, list) and len(listed) == n_layers
    return listed if fits and all(isinstance(name, str) for name in listed) else None


def _implied(config: dict[str, Any], n_layers: int, sliding: str | int | None) -> list[str]:
    """Derive the kinds of layers from other fields, if the configuration has no list."""
    layers = range(n_layers)
    kind = config.get("model_type")
    full, other = "full_attention", "sliding_attention"
    if kind == "jamba":
        period = _number(config, "attn_layer_period", 8)
        offset = _number(config, "attn_layer_offset", 4)
        return [full if i % period == offset else "mamba" for i in layers]
    if kind == "bamba":
        chosen = _numbers(config, "attn_layer_indices")
        return [full if i in chosen else "mamba" for i in layers]
    if kind in ("lfm2", "lfm2_moe"):
        if config.get("full_attn_idxs") is None:
            return [full] * n_layers
        chosen = _numbers(config, "full_attn_idxs")
        return [full if i in chosen else "conv" for i in layers]
    if kind in ("qwen3_next", "qwen3_5_text"):
        interval = _number(config, "full_attention_interval", 4)
        return ["linear_attention" if (i + 1) % interval else full for i in layers]
    if kind == "minimax":
        return [full if (i + 1) % 2 else "linear_attention" for i in layers]
    if kind == "olmo_hybrid":
        return [full if (i + 1) % 4 == 0 or n_layers < 4 else "linear_attention" for i in layers]
    if kind == "llama4_text":
        bare = no_positions(config, n_layers)
        return [full if i in bare else "chunked_attention" for i in layers]
    if kind in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
        first = _number(config, "max_window_layers", 28)
        slides = config.get("use_sliding_window")
        return [other if slides and i >= first else full for i in layers]
    if sliding is None or config.get("sliding_window") is None:
        return [full] * n_layers
    if sliding == "all":
        return [other] * n_layers
    each = _number(config, "sliding_window_pattern", int(sliding))
    return [other if (i + 1) % each else full for i in layers]


def gpt_neo_kinds(name: str, config: dict[str, Any], n_layers: int) -> list[str]:
    """Return the kinds of GPT-Neo's layers, listed as ``[[["global", "local"], 12]]``.

    transformers expands the list before it checks the list's length, so a huge count would use up
    memory.

    Raises:
        UnsupportedModel: the list does not give ``n_layers`` layers.
    """
    usual: list[Any] = [[["global", "local"], max(1, n_layers // 2)]]
    listed = config.get("attention_types")
    try:
        fits = listed is None or sum(_times(*each) for each in listed) == n_layers
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise UnsupportedModel(
            f"Expected 'attention_types' in the config.json of {name!r} to list {n_layers} layers, "
            f'as in [[["global", "local"], {usual[0][1]}]]; got {str(listed)[:60]!r}.'
        )
    kinds = [kind for part, count in listed or usual for _ in range(count) for kind in part]
    return (kinds * n_layers)[:n_layers]


def _times(kinds: Any, count: Any) -> int:
    if not isinstance(kinds, list) or type(count) is not int or count < 1:
        raise TypeError
    return len(kinds) * count


def no_positions(config: dict[str, Any], n_layers: int) -> frozenset[int]:
    """Return the layers without rotation (NoPE); only SmolLM3 and Llama 4 have such layers."""
    if config.get("model_type") not in ("smollm3", "llama4_text"):
        return frozenset()
    listed = config.get("no_rope_layers")
    if isinstance(listed, list) and listed:
        return frozenset(i for i, turned in enumerate(listed[:n_layers]) if not turned)
    interval = _number(config, "no_rope_layer_interval", 4)
    return frozenset(i for i in range(n_layers) if (i + 1) % interval == 0)


def _number(config: dict[str, Any], field: str, default: int) -> int:
    value = config.get(field)
    return value if type(value) is int and value > 0 else default


def _numbers(config: dict[str, Any], field: str) -> Sequence[int]:
    value = config.get(field)
    return [each for each in value if type(each) is int] if isinstance(value, list) else []
