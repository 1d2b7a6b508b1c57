"""What the experiments on random tokens share: their parameters, and their canonical run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

from pydantic import Field

from poskernel_core.analyses.base import Experiment, Params
from poskernel_core.analyses.interventions.spec import ALIKE
from poskernel_core.common.specs import CorpusSpec, RunSpec
from poskernel_core.data.made import RANDOM

__all__ = ["RANDOM_TOKENS", "Ablations", "NormAblations", "SampleParams", "Sampled", "random_run"]

RANDOM_TOKENS = 48
"""Length at which attention to random tokens is shown first."""


class SampleParams(Params):
    """Parameters of everything that is averaged over random sequences."""

    samples: int = Field(500, ge=2, le=1_000_000, description="random sequences averaged over")


class Ablations(SampleParams):
    """Parameters that ablate parts of the model while sequences are run."""

    without_positions: bool = Field(
        False, description="remove positional embeddings (rotary: the rotation)"
    )
    silence: str = Field(
        "", max_length=4000, description="silence these heads, such as 'L0H0, L0H3'"
    )
    silence_what: Literal["output", "pattern"] = Field(
        "output", description="silence: output set to zero, or pattern made uniform"
    )


class NormAblations(Ablations):
    """Parameters of runs in which norms can be made flat as well."""

    flatten: bool = Field(
        False, description="rescale layer 0's head outputs to the same rms norm at every position"
    )


S = TypeVar("S", bound=SampleParams)


class Sampled(Experiment[S]):
    """An experiment over random sequences: the corpus and its windows play no part."""

    long = True
    draws = True

    def needs(self, run: RunSpec, params: S) -> Mapping[str, RunSpec]:
        """Return nothing: the sequences are made on the way."""
        return {}


def random_run(run: RunSpec, length: int, samples: int) -> RunSpec:
    """Return the run of ``samples`` random sequences; start token and seed are the run's."""
    corpus = CorpusSpec(name=RANDOM)
    return run.model_copy(update=ALIKE | {"corpus": corpus, "context": length, "windows": samples})
