"""What the experiments on random tokens share: their parameters, and the run they settle on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from poskernel_core.analyses.base import Experiment, Params
from poskernel_core.analyses.intervention import ALIKE
from poskernel_core.config import CorpusSpec, RunSpec
from poskernel_core.made import RANDOM

__all__ = ["SampleParams", "Sampled", "Silenced", "Switches", "random_run"]


class SampleParams(Params):
    """Parameters of everything that is averaged over random sequences."""

    samples: int = Field(500, ge=2, le=1_000_000, description="random sequences averaged over")


class Silenced(SampleParams):
    """Parameters that switch parts of the model off while sequences are run."""

    without_positions: bool = Field(
        False, description="remove positional embeddings (rotary: the rotation)"
    )
    silence: str = Field(
        "", max_length=4000, description="silence these heads, such as 'L0H0, L0H3'"
    )
    silence_what: Literal["output", "pattern"] = Field(
        "output", description="silence: output set to zero, or pattern made uniform"
    )


class Switches(Silenced):
    """Parameters of runs in which norms can be made flat as well."""

    flatten: bool = Field(
        False, description="rescale layer 0's head outputs to the same rms norm at every position"
    )


class Sampled(Experiment):
    """An experiment over random sequences: the corpus and its windows play no part."""

    long = True
    draws = True

    def needs(self, run: RunSpec, params: Any) -> Mapping[str, RunSpec]:
        """Return nothing: the sequences are made on the way."""
        return {}


def random_run(run: RunSpec, length: int, samples: int) -> RunSpec:
    """Return the run of so many random sequences; start token and seed are the run's."""
    corpus = CorpusSpec(name=RANDOM)
    return run.model_copy(update=ALIKE | {"corpus": corpus, "context": length, "windows": samples})
