"""Llama models whose rotation is scaled, as long-context models scale it."""

from collections.abc import Callable
from pathlib import Path

from transformers import LlamaConfig

from tests.support.builders.made import build, rotary_sizes

BEFORE = {"original_max_position_embeddings": 16}
SCALINGS: dict[str, dict[str, object]] = {
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0} | BEFORE,
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | BEFORE,
}


def scaled(kind: str) -> Callable[[Path], Path]:
    """A builder of a Llama with a scaled rotation; 6 query heads share 2 keys, context 53."""

    def make(path: Path) -> Path:
        sizes = rotary_sizes(context=53, heads=6, key_heads=2, head_width=14)
        sizes["rope_parameters"] = {"rope_type": kind, "rope_theta": 500.0, **SCALINGS[kind]}
        return build(path, LlamaConfig(**sizes, hidden_size=60), seed=31)

    return make
