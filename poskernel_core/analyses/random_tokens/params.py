"""Shared by the experiments on random tokens: parameters, and the canonical run."""

from typing import Any, ClassVar, Final, Literal, TypeVar

from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment, Params
from poskernel_core.common.specs import CorpusSpec, RunSpec
from poskernel_core.data.made import RANDOM
from poskernel_core.models.geometry import Geometry

RANDOM_TOKENS = 48
"""Default length of the sequences for attention to random tokens."""
SAMPLES: Final = 500
"""Default number of sequences."""
CLEAR_SAMPLES: Final = 2000
"""Default number of sequences where trends are fitted."""
SAMPLE_COUNTS: Final = (100, 200, 500, 1000, 2000, 5000, 20_000)
"""The numbers of sequences that pages offer."""
FIRST_WORK: Final = 2_000_000_000
"""Largest default work: sequences times layers times squared width."""


def first_samples(most: int, geometry: Geometry) -> int:
    """Return the default number of sequences: ``most``, or fewer for a large model.

    The cost of a sequence grows with the layers and the square of the width. The result is one of
    ``SAMPLE_COUNTS``, so that a page offers it.
    """
    room = min(most, FIRST_WORK // (geometry.n_layers * geometry.d_model**2))
    return max((count for count in SAMPLE_COUNTS if count <= room), default=SAMPLE_COUNTS[0])


class SampleParams(Params):
    """Parameters of means over random sequences."""

    samples: int = Field(SAMPLES, ge=2, le=1_000_000, description="random sequences averaged over")


class Ablations(SampleParams):
    """Parameters that ablate parts of the model."""

    no_positions: bool = Field(
        False, description="remove positional embeddings (rotary: the rotation)"
    )
    ablate: str = Field("", max_length=4000, description="ablate these heads, such as 'L0H0, L0H3'")
    ablation: Literal["zero", "uniform"] = Field(
        "zero", description="ablate: output set to zero, or attention made uniform"
    )


class NormAblations(Ablations):
    """Ablations, and whether norms are equalised."""

    equalise_norms: bool = Field(
        False, description="rescale layer 0's head outputs to the same rms norm at every position"
    )


S = TypeVar("S", bound=SampleParams)


class Sampled(Experiment[S]):
    """An experiment over random sequences; it ignores the corpus and its windows.

    By default there are ``most`` sequences, fewer for large models.
    """

    most: ClassVar[int] = SAMPLES
    ignores = Experiment.ignores | OWN_WINDOWS | {"corpus", "context"}
    long = True
    draws = True
    error_counts = "sequences of random tokens"

    def default_params(self, run: RunSpec, geometry: Geometry) -> dict[str, Any]:
        length = min(self.params.model_fields["length"].default, geometry.n_ctx)
        return {"length": length, "samples": first_samples(self.most, geometry)}

    def with_params(self, run: RunSpec, params: Any) -> RunSpec:
        return random_run(run, params.length, params.samples)


def random_run(run: RunSpec, length: int, samples: int) -> RunSpec:
    """Return a run of ``samples`` random sequences, with the start token and seed of ``run``."""
    update = {"context": length, "windows": samples, "positions": (0,)}
    return run.model_copy(update=update | {"corpus": CorpusSpec(name=RANDOM)})
