"""The three stages of one head's attention on one text: raw scores, masked, probabilities."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Analysis, Progress, Result
from poskernel_core.analyses.sources import TextParams, text_run
from poskernel_core.config import RunSpec, parse_cell
from poskernel_core.views import StatisticsView

__all__ = ["Stages", "StagesParams"]

AXES = ("query", "key")


class StagesParams(TextParams):
    """Parameters of the three stages."""

    cell: str = Field(description="the head, such as L0H3")


class Stages(Analysis):
    r"""One head's attention on one text, in three stages.

    * ``score [query, key]``: the raw score of every pair of positions, future keys included.
    * ``masked_score [query, key]``: the same, NaN where the query may not look (later keys, and
      those before a sliding window).
    * ``pattern [query, key]``: the softmax of its rows.

    Formula: $s(n,i) = \text{scale}\; q_n \cdot k_i$; $A(n,\cdot) = \mathrm{softmax}_i\, s(n,i)$
    over the visible $i$.

    Choices: the text is the reader's own or the first of the corpus, as long as the context at
    most.

    Limits: one text shows what the head does there, not what it does on average.

    Source: "Step 1" to "Step 3" of "The positional embedding matrix and previous-token heads".
    """

    name = "stages"
    title = "Three stages of attention"
    spoken = "the three stages of attention"
    params = StagesParams

    def settled(self, run: RunSpec, params: StagesParams) -> RunSpec:
        """Return the pass over the one text."""
        return text_run(run, params, whole=True)

    def needs(self, run: RunSpec, params: StagesParams) -> Mapping[str, RunSpec]:
        """Return that pass."""
        return {"main": run}

    def compute(
        self, statistics: Mapping[str, StatisticsView], params: StagesParams, progress: Progress
    ) -> Result:
        """Multiply queries and keys, hide, and take the softmax."""
        view = statistics["main"]
        header = view.header
        layer, head = parse_cell(params.cell, header["n_layers"], header["n_heads"])
        arrays = view.layer(layer)
        shared = header["n_heads"] // header["n_kv_heads"]
        queries = arrays["queries"][:, head, 0].astype(np.float64)
        keys = arrays["mean_keys"][head // shared].astype(np.float64)
        score = header["scales"][layer] * queries @ keys.T
        masked = np.where(_hidden(len(score), header["sliding_windows"][layer]), np.nan, score)
        weights = np.exp(np.nan_to_num(masked - np.nanmax(masked, axis=1, keepdims=True), nan=-1e9))
        pattern = weights / weights.sum(axis=1, keepdims=True)
        progress(1, 1)
        values = {"score": score, "masked_score": masked, "pattern": pattern}
        return Result(
            analysis=self.name,
            params=params.model_dump(),
            values={name: array.astype(np.float32) for name, array in values.items()},
            axes=dict.fromkeys(values, AXES),
            units={"score": "nats", "masked_score": "nats", "pattern": "share of attention"},
        )


def _hidden(length: int, window: int | None) -> np.ndarray:
    """Return which keys ``[query, key]`` a query may not see."""
    back = np.arange(length)[:, None] - np.arange(length)[None, :]
    hidden = back < 0
    return hidden if window is None else hidden | (back >= window)
