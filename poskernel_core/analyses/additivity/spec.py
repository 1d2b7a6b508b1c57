"""Additivity: the parts of the keys' variance due to position, content and interaction."""

from typing import Any

from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment, Params
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import estimates
from poskernel_core.common.specs import RunSpec
from poskernel_core.models.geometry import Geometry

MAX_KEYS = 1024


class AdditivityParams(Params):
    """Parameters of the additivity test."""

    passages: int = Field(64, ge=3, le=10_000, description="passages of text")
    passage_length: int = Field(16, ge=1, le=256, description="tokens of a passage")
    shifts: int = Field(8, ge=2, le=64, description="positions at which each passage is placed")


class Additivity(Experiment[AdditivityParams]):
    r"""How far keys are the sum of position and content: the same passages at several positions.

    Formula: let $k_{t,j,s}$ be the key of token $j$ of passage $t$ at shift $s$. For each $j$ the
    sum of squares around the mean splits exactly into three: the sum of squares of the means over
    passages (position), that of the means over shifts (content), and the rest (interaction), as in
    a two-way analysis of variance. Content at one place is
    $c_{t,j,s} = k_{t,j,s} - \mathbb{E}_t[k_{t,j,s}]$; the cosine compares all $c$ at two places.

    Choices: a passage is the beginning of a text, after the start token, which stays at position 0.
    It is shifted by changing its position ids only. Shifts are evenly spaced over the context. The
    keys are those used in the query-key product. In rotary models they are already rotated by
    position, so little in them is additive.

    Limits: the model was not trained on positions with a gap. With few passages, chance makes the
    share of position too large, by about the content's share divided by the number of passages; the
    bias that is subtracted estimates this excess. Errors are over groups of texts, with one
    passage per text.

    Source: the test is ours; "Positional kernels of attention heads" assumes additivity.
    """

    name = "additivity"
    title = "Additivity of position and content"
    noun_phrase = "how far keys are a sum of position and content"
    error_counts = "passages"
    values = estimates("""
        position_share content_share interaction_share [layer head], share of variance: shares of
            the keys' variance; they add up to 1
        content_similarity [layer head shift], cosine: cosine between a passage's content at one
            place and at another that lies ``shift`` tokens away; 1 where content stays the same
    """)
    precomputed = "experiments"
    measures = (
        *grid_measures("""
            key variance explained by position [position_share, unit], share of the keys' variance:
                Bright: keys differ mostly by position.
            key variance explained by content [content_share, unit], share of the keys' variance:
                Bright: keys differ mostly by content.
            position-content interaction [interaction_share, linear], share of the keys' variance:
                Dark: keys are the sum of a part of position and a part of content.
        """),
        *grid_measures(
            "content similarity across positions [content_similarity, cosine], cosine at the "
            "largest shift: Bright: the same passage leaves the same keys wherever it stands.",
            last="shift",
        ),
    )
    ignores = Experiment.ignores | OWN_WINDOWS
    long = True
    runs = "additivity"

    def default_params(self, run: RunSpec, geometry: Geometry) -> dict[str, Any]:
        room = run.context - int(run.start_token)
        length = min(16, max(1, room // 2))
        return {"passage_length": length, "shifts": max(2, min(8, room - length + 1))}

    def with_params(self, run: RunSpec, params: AdditivityParams) -> RunSpec:
        first = int(run.start_token)
        if first + params.passage_length + params.shifts - 1 > run.context:
            raise BadRequest(
                f"Passages of {params.passage_length} tokens at {params.shifts} places need a "
                f"context of {first + params.passage_length + params.shifts - 1} tokens or more, "
                f"got {run.context}: ask for fewer."
            )
        if params.passage_length * params.shifts > MAX_KEYS:
            raise BadRequest(
                f"{params.passage_length} tokens at {params.shifts} places are too many keys to "
                f"keep: ask for {MAX_KEYS} or fewer in all."
            )
        return run.model_copy(update={"windows": params.passages, "positions": (0,)})
