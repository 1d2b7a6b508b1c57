"""What a pass knew of itself: its sizes, where it ran, and what only the running model knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from poskernel_core.common.attention import ScoreRule, Slopes
from poskernel_core.common.groups import Dealt

__all__ = ["PassHeader", "PlanHeader"]


class PlanHeader(BaseModel):
    """What is known of a pass before it runs, or of an experiment.

    Attributes:
        n_layers, n_heads, n_kv_heads, n_ctx, n_vocab, d_head, d_model: sizes of the model.
        architecture, scheme: which it is, and how positions come into it.
        context: ``T``, tokens per window, the start token included.
        windows: how many windows are read.
        groups: how many groups of texts the sums are kept by; 0 where they are not.
        dealt: what the groups are made of.
        positions: recorded query positions, ascending.
        samples: queries kept per position.
        start_token: whether position 0 holds the start token.
        device, dtype: where it runs, in which precision.
        headless: for every layer why it has no heads, None where it has; empty where all have.
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

    def reason(self, layer: int) -> str | None:
        """Return why a layer has no heads, or None where it has."""
        return self.headless[layer] if self.headless else None

    @property
    def reasons(self) -> dict[int, str]:
        """Why layers have no heads, by the layers that have none."""
        return {layer: why for layer, why in enumerate(self.headless) if why}


class PassHeader(PlanHeader):
    """What is known of a finished pass.

    Attributes:
        scales: what queries times keys are multiplied by, per layer.
        sliding_windows: how many keys a query sees, per layer; None where it sees all.
        chunks: length of the chunks beyond whose start no query sees, per layer; None where there
            are none. An empty tuple if no layer has one; likewise ``caps`` and ``slopes``.
        caps: soft cap of the scores, per layer.
        slopes: of ALiBi, per layer.
        resumed_at_window: how many windows were read already when it went on, 0 if it ran in one
            go.
        seconds: how long its windows took, but for what was read in vain.
        dtype_error: relative error of mean keys in its precision, measured against float32.
        tokens: the tokens of a single text.
        shards: how many parts it was put together from, 0 if it ran as one.
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
        """Return what would be known of the pass had it read so many of its groups."""
        counts = {"windows": self.windows, "samples": self.samples, "groups": self.groups}
        return self.model_copy(
            update={name: count * groups // self.groups for name, count in counts.items()}
        )

    def rule(self, layer: int) -> ScoreRule:
        """Return how a layer makes scores of products, and which keys its queries see."""
        return ScoreRule(
            self.scales[layer],
            self.sliding_windows[layer],
            self.chunks[layer] if self.chunks else None,
            self.caps[layer] if self.caps else None,
            self.slopes[layer] if self.slopes else None,
        )

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> PassHeader | None:
        """Return the header that a manifest holds, or None where it holds none."""
        try:
            return cls.model_validate(stored)
        except ValidationError:
            return None

    def as_json(self) -> dict[str, Any]:
        """Return the header as a manifest holds it, in plain JSON values."""
        return self.model_dump(mode="json")
