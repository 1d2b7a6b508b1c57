"""What a model's configuration says of its attention: layers, heads, positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poskernel_core.errors import UnsupportedModel

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
    "gptj": "an attention that cannot be tapped",
}


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


def _first(config: dict[str, Any], *names: str) -> int:
    for name in names:
        if isinstance(config.get(name), int):
            return config[name]
    raise KeyError(names[0])


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
    try:
        return _sizes(kind, config)
    except KeyError as error:
        raise UnsupportedModel(f"The config.json of {name!r} lacks {error.args[0]!r}.") from error


def _sizes(kind: str, config: dict[str, Any]) -> Geometry:
    heads = _first(config, "num_attention_heads", "num_heads", "n_head", "n_heads")
    width = _first(config, "hidden_size", "n_embd", "d_model")
    head_width = config.get("head_dim") or config.get("d_head") or width // heads
    return Geometry(
        n_layers=_first(config, "num_hidden_layers", "num_layers", "n_layer", "n_layers"),
        n_heads=heads,
        n_kv_heads=config.get("num_key_value_heads") or heads,
        d_model=width,
        d_head=head_width,
        n_ctx=_first(config, "max_position_embeddings", "n_positions", "n_ctx"),
        n_vocab=_first(config, "vocab_size", "d_vocab"),
        architecture=kind,
        scheme=ARCHITECTURES[kind],
    )
