"""What a model's configuration says of its attention: layers, heads, positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poskernel_core.common.errors import UnsupportedModel

__all__ = ["ARCHITECTURES", "Geometry", "read_geometry"]

ARCHITECTURES: dict[str, str] = {
    "gpt2": "learned",
    "gpt_neo": "learned",
    "opt": "learned",
    "attn-only": "learned",
    "llama": "rotary",
    "mistral": "rotary",
    "qwen2": "rotary",
    "qwen3": "rotary",
    "gpt_neox": "rotary",
}
"""Position scheme of every architecture that is read, by ``model_type``."""

REFUSED = {
    "bloom": "ALiBi positions",
    "mpt": "ALiBi positions",
    "falcon": "ALiBi or mixed positions",
    "t5": "relative position buckets and an encoder",
    "bert": "bidirectional attention",
    "roberta": "bidirectional attention",
    "mamba": "no attention",
    "gptj": "an attention that cannot be replaced",
}

GROUPED = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures whose heads may share keys, and may have a width of their own."""

# Limits: about twice the largest models that are public.
MOST_LAYERS = 256
MOST_HEADS = 256
MOST_WIDTH = 65_536
MOST_HEAD_WIDTH = 1024
MOST_CONTEXT = 20_000_000
MOST_TOKENS = 2_000_000
MOST_MASKED = 16_384
"""Longest context of GPT-Neo, each of whose layers holds a mask of context x context."""

OTHER_SIZES = {
    "intermediate_size": 8 * MOST_WIDTH,
    "ffn_dim": 8 * MOST_WIDTH,
    "n_inner": 8 * MOST_WIDTH,
    "word_embed_proj_dim": MOST_WIDTH,
    "window_size": MOST_CONTEXT,
    "sliding_window": MOST_CONTEXT,
    "num_labels": 100_000,
}
"""Further sizes that transformers allocates by, and their limits."""


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
        scheme: ``learned`` or ``rotary``.
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


def model_type(config: dict[str, Any]) -> str:
    """Return the architecture's name; attention-only toys are known by ``attn_only``."""
    if config.get("attn_only") is True:
        return "attn-only"
    return str(config.get("model_type", "unknown"))


def read_geometry(name: str, config: dict[str, Any]) -> Geometry:
    """Read the attention geometry from a hub-format or TransformerLens configuration.

    Raises:
        UnsupportedModel: an architecture that is not read, or a size that is missing.
    """
    kind = model_type(config)
    if kind not in ARCHITECTURES or config.get("shortformer_pos"):
        why = "shortformer positions" if config.get("shortformer_pos") else REFUSED.get(kind)
        known = ", ".join(ARCHITECTURES)
        raise UnsupportedModel(
            f"{name!r} is of architecture {kind!r}{f' ({why})' if why else ''}, which is not read; "
            f"PosKernel reads {known}."
        )
    if config.get("quantization_config") is not None:
        raise UnsupportedModel(
            f"{name!r} has quantized weights, which are not read: give the model it was made from."
        )
    geometry = _sizes(kind, _Sizes(name, config))
    _check_fit(name, geometry)
    if kind == "gpt_neo":
        _check_layer_kinds(name, config.get("attention_types"), geometry.n_layers)
    return geometry


@dataclass(frozen=True)
class _Sizes:
    """The sizes that a model's configuration claims, each checked as it is read."""

    name: str
    config: dict[str, Any]

    def first(self, most: int, *fields: str) -> int:
        """Return the first of these fields that is there."""
        for field in fields:
            if self.config.get(field) is not None:
                return self._checked(field, most)
        raise UnsupportedModel(f"The config.json of {self.name!r} lacks {fields[0]!r}.")

    def optional(self, most: int, *fields: str) -> int | None:
        """Return the first of these fields that is there, or None."""
        there = [field for field in fields if self.config.get(field) is not None]
        return self.first(most, *there) if there else None

    def _checked(self, field: str, most: int) -> int:
        size = self.config[field]
        if type(size) is not int or not 1 <= size <= most:  # True is no size
            raise UnsupportedModel(
                f"Expected {field!r} in the config.json of {self.name!r} to be a whole number from "
                f"1 to {most:,}, got {str(size)[:40]!r}."
            )
        return size


def _sizes(kind: str, sizes: _Sizes) -> Geometry:
    heads = sizes.first(MOST_HEADS, "num_attention_heads", "num_heads", "n_head", "n_heads")
    width = sizes.first(MOST_WIDTH, "hidden_size", "n_embd", "d_model")
    own = sizes.optional(MOST_HEAD_WIDTH, "head_dim", "d_head")
    key_heads = sizes.optional(MOST_HEADS, "num_key_value_heads") if kind in GROUPED else None
    for field, most in OTHER_SIZES.items():
        sizes.optional(most, field)
    return Geometry(
        n_layers=sizes.first(MOST_LAYERS, "num_hidden_layers", "num_layers", "n_layer", "n_layers"),
        n_heads=heads,
        n_kv_heads=key_heads or heads,
        d_model=width,
        d_head=own or width // heads,
        n_ctx=sizes.first(
            MOST_MASKED if kind == "gpt_neo" else MOST_CONTEXT,
            "max_position_embeddings",
            "n_positions",
            "n_ctx",
        ),
        n_vocab=sizes.first(MOST_TOKENS, "vocab_size", "d_vocab"),
        architecture=kind,
        scheme=ARCHITECTURES[kind],
    )


def _check_fit(name: str, geometry: Geometry) -> None:
    heads, own = geometry.n_heads, geometry.architecture in GROUPED
    if heads % geometry.n_kv_heads:
        raise UnsupportedModel(
            f"The config.json of {name!r} names {heads} heads that share {geometry.n_kv_heads} "
            "key heads: the first number must be a multiple of the second."
        )
    if not own and heads * geometry.d_head != geometry.d_model:
        raise UnsupportedModel(
            f"The config.json of {name!r} names {heads} heads of width {geometry.d_head} in a "
            f"stream of width {geometry.d_model}: the heads' widths must add up to the stream's."
        )
    if geometry.d_head == 0:
        raise UnsupportedModel(
            f"The config.json of {name!r} names {heads} heads in a stream of width "
            f"{geometry.d_model}: a head must be one wide or more."
        )


def _check_layer_kinds(name: str, listed: Any, n_layers: int) -> None:
    """Check GPT-Neo's list of layer kinds, such as ``[[["global", "local"], 12]]``.

    transformers writes it out before it looks at its length.
    """
    if listed is None:
        return
    try:
        fits = sum(_times(kinds, count) for kinds, count in listed) == n_layers
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise UnsupportedModel(
            f"Expected 'attention_types' in the config.json of {name!r} to list {n_layers} layers, "
            f'as in [[["global", "local"], {max(1, n_layers // 2)}]]; got '
            f"{str(listed)[:60]!r}."
        )


def _times(kinds: Any, count: Any) -> int:
    if not isinstance(kinds, list) or type(count) is not int or count < 1:
        raise TypeError
    return len(kinds) * count
