"""Shared parameters of the questions about the bag of tokens."""

from typing import Annotated, Literal, TypeVar

from pydantic import Field

from poskernel_core.analyses.base import TokenParams
from poskernel_core.analyses.contextual_heads.spec import DestinationExperiment

Kernel = Annotated[
    Literal["own", "common"],
    Field(description="heads average with their own kernels, or all with their mean kernel"),
]


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


class BagExperiment(DestinationExperiment[B]):
    """A question about the bag of tokens."""

    uses = ("token embeddings", "neurons")
