"""Additivity: how much of the keys' variance position, content, and neither alone explain."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from poskernel_core.analyses.base import Experiment, Params, Progress, Result, Subject
from poskernel_core.config import RunSpec
from poskernel_core.errors import BadRequest
from poskernel_core.views import StatisticsView

__all__ = ["Additivity", "AdditivityParams", "fitting"]

MOST_KEYS = 1024


class AdditivityParams(Params):
    """Parameters of the additivity test."""

    passages: int = Field(64, ge=3, le=10_000, description="passages of text")
    passage_length: int = Field(16, ge=1, le=256, description="tokens of a passage")
    shifts: int = Field(8, ge=2, le=64, description="places that each passage is put at")


class Additivity(Experiment):
    r"""How far keys are the sum of position and content: the same passages at several positions.

    * ``position_share``, ``content_share``, ``rest_share [layer, head]``: shares of the keys'
      variance; they add up to 1.
    * ``content_cosine [layer, head, shift]``: cosine between a passage's content at one place and
      at another that lies ``shift`` tokens away; 1 where content does not drift.

    Formula: let $k_{t,j,s}$ be the key of token $j$ of passage $t$ at shift $s$. For each $j$ the
    sum of squares around the mean splits exactly into that of the means over passages (position),
    that of the means over shifts (content), and the rest (what neither explains alone), as in a
    two-way analysis of variance. Content at one place is
    $c_{t,j,s} = k_{t,j,s} - \mathbb{E}_t[k_{t,j,s}]$; the cosine is of all $c$ at two places.

    Choices: a passage is shifted by telling the model other positions, so that nothing else
    changes: the beginning of a text stands behind the start token, which stays at position 0.
    Shifts are evenly spaced over the context. Keys are those that enter the product; rotary models
    turn them with position, so that little is additive in them.

    Limits: positions with a gap are no input of training. The share of position contains the chance
    of few passages, about the content's share over their number. Errors are jackknives over ten
    groups of passages.

    Source: what "Positional kernels of attention heads" assumes and leaves open; the test is ours.
    """

    name = "additivity"
    title = "Additivity of position and content"
    spoken = "how far keys are a sum of position and content"
    params = AdditivityParams
    long = True

    def settled(self, run: RunSpec, params: AdditivityParams) -> RunSpec:
        """Return the run over the passages.

        Raises:
            BadRequest: the passages and their shifts do not fit the context.
        """
        first = int(run.start_token)
        if first + params.passage_length + params.shifts - 1 > run.context:
            raise BadRequest(
                f"Passages of {params.passage_length} tokens at {params.shifts} places need a "
                f"context of {first + params.passage_length + params.shifts - 1} tokens or more, "
                f"got {run.context}: ask for fewer."
            )
        if params.passage_length * params.shifts > MOST_KEYS:
            raise BadRequest(
                f"{params.passage_length} tokens at {params.shifts} places are too many keys to "
                f"keep: ask for {MOST_KEYS} or fewer in all."
            )
        return run.model_copy(
            update={
                "dtype": "float32",
                "positions": (0,),
                "destination": None,
                "doubling": None,
                "windows": params.passages,
            }
        )

    def needs(self, run: RunSpec, params: AdditivityParams) -> Mapping[str, RunSpec]:
        """Return nothing: the passages are run on their own."""
        return {}

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: AdditivityParams,
        progress: Progress,
    ) -> Result:
        """Run every passage at every place."""
        from poskernel_core.experiments.shifted import additivity

        return additivity(subject, params, progress)


def fitting(run: RunSpec) -> dict[str, int]:
    """Return parameters that fit the context: shorter passages, fewer places if need be."""
    room = run.context - int(run.start_token)
    length = min(16, max(1, room // 2))
    return {"passage_length": length, "shifts": max(2, min(8, room - length + 1))}
