"""Headers of passes: sizes, device, and facts known only to the running model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from poskernel_core.common.attention import ScoreRule, Slopes
from poskernel_core.common.groups import Dealt


class PlanHeader(BaseModel):
    """The header of a pass before it runs, or of an experiment.

    Attributes:
        n_layers, n_heads, n_kv_heads, n_ctx, n_vocab, d_head, d_model: sizes of the model.
        architecture, scheme: the model's architecture and its position scheme.
        context: ``T``, tokens per window, including the start token.
        windows: number of windows.
        groups: number of groups of texts with separate sums; 0 if there are none.
        dealt: what the groups consist of.
        positions: recorded query positions, ascending.
        samples: queries kept per position.
        start_token: whether position 0 holds the start token.
        device, dtype: the device and the precision.
        headless: per layer the reason why it has no heads, or None if it has heads; empty if all
            layers have heads.
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
    headless: tuple[str | None, ...] = ()
    groups: int = 0
    dealt: Dealt = "windows"

    @property
    def reasons(self) -> dict[int, str]:
        """The layers without heads, each with the reason."""
        return {layer: why for layer, why in enumerate(self.headless) if why}


class PassHeader(PlanHeader):
    """The header of a finished pass.

    Attributes:
        scales: factor of ``q . k``, per layer.
        sliding_windows: number of keys that a query sees, per layer; None for all.
        chunks: length of chunks, per layer; None for no chunks. A query sees only keys of its
            chunk. If no layer has chunks, this is an empty tuple; likewise ``caps`` and ``slopes``.
        caps: soft cap of the scores, per layer.
        slopes: ALiBi slopes, per layer.
        resumed_at_window: number of windows read before the pass was resumed, 0 if it ran without
            interruption.
        seconds: time spent on the windows of the pass, without work that was lost.
        dtype_error: relative error of mean keys in this precision, measured against float32.
        tokens: the tokens of a single text.
        shards: number of shards merged, 0 if the pass was not split.
    """

    scales: tuple[float, ...]
    sliding_windows: tuple[int | None, ...]
    chunks: tuple[int | None, ...] = ()
    caps: tuple[float | None, ...] = ()
    slopes: tuple[Slopes | None, ...] = ()
    resumed_at_window: int = 0
    seconds: float = 0.0
    dtype_error: float = 0.0
    tokens: tuple[str, ...] | None = None
    shards: int = 0

    def of_groups(self, groups: int) -> PassHeader:
        """Return the header as if the pass had read only this many of its groups."""
        counts = {"windows": self.windows, "samples": self.samples, "groups": self.groups}
        return self.model_copy(
            update={name: count * groups // self.groups for name, count in counts.items()}
        )

    def rule(self, layer: int) -> ScoreRule:
        """Return the score rule of a layer."""
        return ScoreRule(
            self.scales[layer],
            self.sliding_windows[layer],
            self.chunks[layer] if self.chunks else None,
            self.caps[layer] if self.caps else None,
            self.slopes[layer] if self.slopes else None,
        )

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> PassHeader | None:
        """Parse the header stored in a manifest; None if it is invalid."""
        try:
            return cls.model_validate(stored)
        except ValidationError:
            return None
