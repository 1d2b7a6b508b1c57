"""Shared parameters of the questions about the bag of tokens."""

from typing import Literal, TypeVar

from pydantic import Field

from poskernel_core.analyses.base import Experiment, TokenParams
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import RunSpec


class BagParams(TokenParams):
    """Parameters of the bag of tokens."""

    heads: str = Field(
        "",
        max_length=4000,
        description="contextual heads of layer 0, such as 'L0H0, L0H2' (default: those found)",
    )
    query: int = Field(ge=1, description="position of the destination token")
    first_windows: int = Field(
        32, ge=2, le=10_000, description="first windows of text, for denominators and norm scales"
    )
    scale: Literal["token", "position", "mean"] = Field(
        "token",
        description="the norms' scales: each token's own in the first norm and, in predictions, "
        "the predicted stream's in the second (token); each position's mean; or one for all",
    )


class ListedParams(BagParams):
    """Parameters of questions about the whole vocabulary."""

    min_count: int = Field(
        5, ge=0, le=1_000_000, description="times that a token must occur in the run's windows"
    )


B = TypeVar("B", bound=BagParams)


class BagExperiment(Experiment[B]):
    """A question about the bag of tokens; it uses the run's mean keys."""

    ignores = Experiment.ignores | {"positions"}
    gathers = ("keys",)
    uses = ("token embeddings", "neurons")

    def with_params(self, run: RunSpec, params: B) -> RunSpec:
        """Return the run."""
        if params.query >= run.context:
            raise BadRequest(
                f"Expected a position from 1 to {run.context - 1}, got {params.query}."
            )
        return run
