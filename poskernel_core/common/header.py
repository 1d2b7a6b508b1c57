"""What a pass knew of itself: its sizes, where it ran, and what only the running model knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = ["PassHeader", "PlanHeader"]


class PlanHeader(BaseModel):
    """What is known of a pass before it runs, or of an experiment.

    Attributes:
        n_layers, n_heads, n_kv_heads, n_ctx, n_vocab, d_head, d_model: sizes of the model.
        architecture, scheme: which it is, and how positions come into it.
        context: ``T``, tokens per window, the start token included.
        windows: how many windows are read.
        positions: recorded query positions, ascending.
        samples: queries kept per position.
        start_token: whether position 0 holds the start token.
        device, dtype: where it runs, in which precision.
    """

    model_config = ConfigDict(frozen=True)

    n_layers: int
    n_heads: int
    n_kv_heads: int
    n_ctx: int
    n_vocab: int
    architecture: str
    scheme: str
    d_head: int
    d_model: int
    context: int
    windows: int
    positions: tuple[int, ...]
    samples: int
    start_token: bool
    device: str
    dtype: str


class PassHeader(PlanHeader):
    """What is known of a finished pass.

    Attributes:
        scales: what queries times keys are multiplied by, per layer.
        sliding_windows: how many keys a query sees, per layer; None where it sees all.
        resumed_at_window: the window that it went on from, 0 if it ran in one go.
        seconds: how long it took since then.
        dtype_error: relative error of mean keys in its precision, measured against float32.
        tokens: the tokens of a single text.
    """

    scales: tuple[float, ...]
    sliding_windows: tuple[int | None, ...]
    resumed_at_window: int = 0
    seconds: float = 0.0
    dtype_error: float = 0.0
    tokens: tuple[str, ...] | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> PassHeader | None:
        """Return the header that a manifest holds, or None where it holds none."""
        try:
            return cls.model_validate(stored)
        except ValidationError:
            return None

    def as_json(self) -> dict[str, Any]:
        """Return the header as a manifest holds it: plain JSON values, tokens where there are."""
        return self.model_dump(mode="json", exclude=None if self.tokens else {"tokens"})
