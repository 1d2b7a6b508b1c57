"""Read the attention geometry from a model's configuration: layers, heads, positions.

The files are parsed as JSON without transformers, so pages can describe models quickly and an
untrusted file allocates nothing. When a model is loaded, its real sizes are compared with these.
"""

import math
from dataclasses import dataclass
from typing import Any

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.common.heads import head_name
from poskernel_core.models.families import FAMILIES, REFUSED, Family
from poskernel_core.models.layers import (
    HEADLESS,
    NAMES,
    Layer,
    gpt_neo_kinds,
    layer_kinds,
)

# Limits: about twice the sizes of the largest public models.
MAX_LAYERS = 256
MAX_HEADS = 256
MAX_WIDTH = 65_536
MAX_HEAD_WIDTH = 1024
MAX_CONTEXT = 20_000_000
MAX_TOKENS = 2_000_000
MAX_MASKED = 16_384
"""Longest context of GPT-Neo: each of its layers allocates a mask of context x context."""

MAX_EXPERTS = 4096
MAX_EXPERTS_IN_ALL = 65_536
MAX_NESTED = MAX_CONTEXT
COUNTERS = {"tokens_seen", "total_flos", "seed", "poskernel"}

OTHER_SIZES = {
    "intermediate_size": 8 * MAX_WIDTH,
    "ffn_dim": 8 * MAX_WIDTH,
    "n_inner": 8 * MAX_WIDTH,
    "word_embed_proj_dim": MAX_WIDTH,
    "window_size": MAX_CONTEXT,
    "sliding_window": MAX_CONTEXT,
    "num_labels": 100_000,
    "attention_chunk_size": MAX_CONTEXT,
    "vocab_size_per_layer_input": MAX_TOKENS,
    "max_window_layers": MAX_LAYERS,
    "moe_intermediate_size": 8 * MAX_WIDTH,
    "shared_expert_intermediate_size": 8 * MAX_WIDTH,
    "num_experts": MAX_EXPERTS,
    "num_local_experts": MAX_EXPERTS,
    "n_routed_experts": MAX_EXPERTS,
    "n_shared_experts": MAX_EXPERTS,
    "num_shared_experts": MAX_EXPERTS,
    "mamba_d_state": MAX_WIDTH,
    "mamba_expand": 64,
    "mamba_n_heads": MAX_WIDTH,
    "mamba_d_head": MAX_WIDTH,
    "linear_num_value_heads": MAX_WIDTH,
    "linear_num_key_heads": MAX_WIDTH,
    "linear_key_head_dim": MAX_WIDTH,
    "linear_value_head_dim": MAX_WIDTH,
    "q_lora_rank": MAX_WIDTH,
    "kv_lora_rank": MAX_WIDTH,
    "v_head_dim": MAX_HEAD_WIDTH,
}
"""Limits of other sizes that determine how much transformers allocates."""


@dataclass(frozen=True)
class Geometry:
    """Sizes of a model's attention, in the notation of the axis legend.

    Attributes:
        n_layers, n_heads: ``L`` and ``H``.
        n_kv_heads: key heads per layer; fewer than ``n_heads`` for grouped queries.
        d_model, d_head: residual and head width.
        n_ctx: longest context, in tokens.
        n_vocab: number of tokens.
        architecture: ``model_type`` of the configuration.
        scheme: ``learned``, ``rotary``, ``ALiBi``, or ``no`` (the causal mask only).
        layers: each layer's own sizes. If they differ, ``d_head`` is the largest width and
            ``n_kv_heads`` a common multiple of the layers' key heads; queries and keys of smaller
            layers are padded with zeros, and their key heads repeated.
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    n_ctx: int
    n_vocab: int
    architecture: str
    scheme: str
    layers: tuple[Layer, ...] = ()

    @property
    def with_heads(self) -> tuple[int, ...]:
        """The layers that have heads; all layers if ``layers`` is empty."""
        if not self.layers:
            return tuple(range(self.n_layers))
        return tuple(i for i, layer in enumerate(self.layers) if layer.reason is None)

    @property
    def cells(self) -> list[str]:
        """The names of all heads, layer after layer."""
        return [head_name(layer, head) for layer in self.with_heads for head in range(self.n_heads)]

    @property
    def reasons(self) -> dict[int, str]:
        """Why each layer without heads has none."""
        return {i: layer.reason for i, layer in enumerate(self.layers) if layer.reason is not None}

    def reason(self, layer: int) -> str | None:
        """Return why a layer has no heads, or None if it has heads."""
        return self.layers[layer].reason if self.layers else None


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of the text part of a multimodal model, else the configuration."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def model_type(config: dict[str, Any]) -> str:
    """Return the architecture's name; ``attn_only: true`` marks attention-only toy models."""
    if config.get("attn_only") is True:
        return "attn-only"
    return str(config.get("model_type", "unknown"))


def read_geometry(name: str, config: dict[str, Any]) -> Geometry:
    """Read the attention geometry from a hub-format or TransformerLens configuration.

    Raises:
        UnsupportedModel: an unsupported architecture, or a missing or invalid size.
    """
    outer, config = config, text_config(config)
    whole, kind = model_type(outer), model_type(config)
    kind = whole if whole in REFUSED else kind
    if kind not in FAMILIES or config.get("shortformer_pos"):
        why = "shortformer positions" if config.get("shortformer_pos") else REFUSED.get(kind)
        known = ", ".join(FAMILIES)
        raise UnsupportedModel(
            f"{name!r} is of architecture {kind!r}{f' ({why})' if why else ''}, which is not read; "
            f"PosKernel reads {known}."
        )
    for each in (outer, config):
        if each.get("quantization_config") is not None:
            raise UnsupportedModel(
                f"{name!r} has quantized weights, which are not read: give the model it was made "
                "from."
            )
    _check_numbers(name, outer)
    family = FAMILIES[kind]
    return _geometry(kind, family, _ModelSizes(name, family.defaults | _given(config)))


def _given(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are set; a sliding window of 0 counts as not set."""
    given = {field: value for field, value in config.items() if value is not None}
    if given.get("sliding_window") == 0:
        del given["sliding_window"]
    listed = given.get("layers_block_type")
    if isinstance(listed, list):
        given.setdefault("num_hidden_layers", len(listed))
    return given


def _check_numbers(name: str, config: dict[str, Any]) -> None:
    """Check all numbers, nested too: none is NaN, and no integer exceeds the largest allowed."""
    left: list[tuple[str, Any]] = list(config.items())
    while left:
        field, value = left.pop()
        if isinstance(value, dict):
            left += [(str(key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [(field, inner) for inner in value]
        elif isinstance(value, float) and math.isnan(value):
            raise UnsupportedModel(
                f"Expected a number as {field!r} in the config.json of {name!r}, got NaN."
            )
        elif type(value) is int and value > MAX_NESTED and field not in COUNTERS:
            raise UnsupportedModel(
                f"Expected {field!r} in the config.json of {name!r} to be at most "
                f"{MAX_NESTED:,}, got {str(value)[:40]!r}."
            )


@dataclass(frozen=True)
class _ModelSizes:
    """The sizes in a model's configuration, checked on access."""

    name: str
    config: dict[str, Any]

    def first(self, most: int, *fields: str) -> int:
        """Return the value of the first of these fields that is set."""
        for field in fields:
            if self.config.get(field) is not None:
                return self._checked(field, most)
        raise UnsupportedModel(f"The config.json of {self.name!r} lacks {fields[0]!r}.")

    def optional(self, most: int, *fields: str) -> int | None:
        """Return the value of the first of these fields that is set, or None."""
        there = [field for field in fields if self.config.get(field) is not None]
        return self.first(most, *there) if there else None

    def _checked(self, field: str, most: int) -> int:
        size = self.config[field]
        if type(size) is not int or not 1 <= size <= most:  # type(): True is an int too
            raise UnsupportedModel(
                f"Expected {field!r} in the config.json of {self.name!r} to be a whole number from "
                f"1 to {most:,}, got {str(size)[:40]!r}."
            )
        return size


def _geometry(kind: str, family: Family, sizes: _ModelSizes) -> Geometry:
    name, config = sizes.name, sizes.config
    heads = sizes.first(MAX_HEADS, "num_attention_heads", "num_heads", "n_head", "n_heads")
    width = sizes.first(MAX_WIDTH, "hidden_size", "n_embd", "d_model")
    n_layers = sizes.first(MAX_LAYERS, "num_hidden_layers", "num_layers", "n_layer", "n_layers")
    for field, most in OTHER_SIZES.items():
        sizes.optional(most, field)
    _check_experts(name, config, n_layers)
    d_head = _head_width(kind, family, sizes, heads, width)
    layers = _layers(kind, family, sizes, n_layers, d_head, _key_heads(kind, family, sizes, heads))
    for layer in layers:
        if layer.reason is None:
            _check_fit(name, family, layer, heads, width)
    shared = {layer.n_kv_heads for layer in layers if layer.reason is None}
    if not shared:
        raise UnsupportedModel(
            f"No layer of {name!r} has attention heads: choose a model with attention."
        )
    alibi = family.scheme == "ALiBi" or bool(kind == "falcon" and config.get("alibi"))
    return Geometry(
        n_layers=n_layers,
        n_heads=heads,
        n_kv_heads=max(shared) if len(shared) == 1 else _spread(shared, heads),
        d_model=width,
        d_head=max(layer.d_head for layer in layers),
        n_ctx=sizes.first(
            MAX_MASKED if kind == "gpt_neo" else MAX_CONTEXT,
            "max_position_embeddings",
            "n_positions",
            "n_ctx",
            "max_seq_len",
            "max_sequence_length",
            "seq_length",
        ),
        n_vocab=sizes.first(MAX_TOKENS, "vocab_size", "d_vocab"),
        architecture=kind,
        scheme="ALiBi" if alibi else family.scheme,
        layers=layers,
    )


def _check_experts(name: str, config: dict[str, Any], n_layers: int) -> None:
    """Limit the total number of experts: transformers may allocate a module for each."""
    fields = ("num_experts", "num_local_experts", "n_routed_experts")
    experts = n_layers * max(config.get(field, 0) for field in fields)
    if experts > MAX_EXPERTS_IN_ALL:
        raise UnsupportedModel(
            f"The config.json of {name!r} names {experts:,} experts in all layers together: "
            f"expected {MAX_EXPERTS_IN_ALL:,} or fewer."
        )


def _spread(shared: set[int], heads: int) -> int:
    """Return a number of key heads to which every layer's key heads can be repeated."""
    fits = [n for n in range(max(shared), heads + 1) if all(n % each == 0 for each in shared)]
    return next((n for n in fits if heads % n == 0), heads)


def _head_width(kind: str, family: Family, sizes: _ModelSizes, heads: int, width: int) -> int:
    if family.compressed:
        parts = ("qk_nope_head_dim", "qk_rope_head_dim")
        return sum(sizes.first(MAX_HEAD_WIDTH, part) for part in parts)
    own = sizes.optional(MAX_HEAD_WIDTH, "head_dim", "d_head", "kv_channels")
    if kind == "attn-only" or own is None or not family.fixed:
        return own or width // heads
    return width // heads


def _key_heads(kind: str, family: Family, sizes: _ModelSizes, heads: int) -> int:
    """Return the default number of key heads of a layer."""
    if family.compressed or kind in ("bloom", "mpt", "gptj", "gpt_neox", "persimmon", "biogpt"):
        return heads
    config = sizes.config
    if kind == "falcon" and config.get("new_decoder_architecture"):
        return sizes.optional(MAX_HEADS, "num_kv_heads") or heads
    if kind in ("falcon", "gpt_bigcode"):
        return 1 if config.get("multi_query", True) else heads
    if kind == "dbrx":
        inner = config.get("attn_config")
        nested = _ModelSizes(sizes.name, inner if isinstance(inner, dict) else {})
        return nested.optional(MAX_HEADS, "kv_n_heads") or 1
    if family is FAMILIES["gpt2"]:
        return heads
    return sizes.optional(MAX_HEADS, "num_key_value_heads") or heads


def _layers(
    kind: str, family: Family, sizes: _ModelSizes, n_layers: int, d_head: int, key_heads: int
) -> tuple[Layer, ...]:
    """Return every layer's own sizes."""
    config = sizes.config
    if kind == "gpt_neo":
        kinds: list[str] | None = gpt_neo_kinds(sizes.name, config, n_layers)
    else:
        kinds = layer_kinds(config, n_layers, family.sliding)
    if kinds is None or not set(kinds) <= NAMES.keys() | HEADLESS.keys():
        raise UnsupportedModel(
            f"Expected the layers of {sizes.name!r} to be listed in its config.json as {n_layers} "
            f"kinds among {', '.join([*NAMES, *HEADLESS])}; got "
            f"{str(config.get('layer_types', config.get('layers_block_type')))[:60]!r}."
        )
    windows = {
        "sliding": sizes.optional(MAX_CONTEXT, "sliding_window", "window_size"),
        "chunked": sizes.optional(MAX_CONTEXT, "attention_chunk_size"),
    }
    found = []
    for i, name in enumerate(kinds):
        if name in HEADLESS:
            known = "mamba" if family.state_space and name == "linear_attention" else name
            found.append(Layer("none", 0, 0, positions=False, reason=HEADLESS[known]))
            continue
        seen = NAMES[name]
        own_width, own_keys = d_head, key_heads
        if kind == "gemma4_text":
            own = _ModelSizes(sizes.name, _of_gemma4(config, i, seen))
            own_width = own.optional(MAX_HEAD_WIDTH, "head_dim") or d_head
            own_keys = own.optional(MAX_HEADS, "num_key_value_heads") or key_heads
        base = _base(config, name, seen) if family.scheme == "rotary" else None
        found.append(
            Layer(seen, own_width, own_keys, windows.get(seen), family.scheme != "no", base)
        )
    return tuple(found)


def _of_gemma4(config: dict[str, Any], layer: int, kind: str) -> dict[str, Any]:
    """Return Gemma 4's settings of a single layer, from the newer or the older config format."""
    listed = config.get("per_layer_config")
    if isinstance(listed, dict):
        own = listed.get(str(layer), {})
        return own if isinstance(own, dict) else {}
    if kind != "full":
        return {}
    shared = config.get("num_global_key_value_heads")
    return {
        "head_dim": config.get("global_head_dim", 512),
        "num_key_value_heads": shared if config.get("attention_k_eq_v", True) else None,
    }


def _base(config: dict[str, Any], name: str, kind: str) -> float | None:
    """Return the base of a layer's rotation if the configuration has it, else None."""
    told = config.get("rope_parameters")
    if isinstance(told, dict):
        own = told.get(name)
        value = (own if isinstance(own, dict) else told).get("rope_theta")
    else:
        value = config.get("rope_local_base_freq") if kind == "sliding" else None
        value = value or config.get("rope_theta") or config.get("rotary_emb_base")
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if fits and value is not None and 0 < value < 1e18 else None


def _check_fit(name: str, family: Family, layer: Layer, heads: int, width: int) -> None:
    wrong = ""
    if heads % layer.n_kv_heads:
        wrong = (
            f"that share {layer.n_kv_heads} key heads: the first number must be a multiple of the "
            "second"
        )
    elif family.fixed and heads * layer.d_head != width:
        wrong = (
            f"of width {layer.d_head} in a stream of width {width}: the heads' widths must add up "
            "to the stream's"
        )
    elif layer.d_head == 0:
        wrong = f"in a stream of width {width}: a head must be one wide or more"
    if wrong:
        raise UnsupportedModel(f"The config.json of {name!r} names {heads} heads {wrong}.")
