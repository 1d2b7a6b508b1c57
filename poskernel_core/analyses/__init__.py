"""One analysis a file; :data:`ANALYSES` registers them by the name that ``show`` takes."""

from __future__ import annotations

from poskernel_core.analyses.additivity import Additivity
from poskernel_core.analyses.averaging import Averaging
from poskernel_core.analyses.bag_search import ExtendedEmbedding, WordNeurons
from poskernel_core.analyses.base import Analysis, Experiment, Params, Question, Result
from poskernel_core.analyses.contextual import ContextualHeads
from poskernel_core.analyses.contextual_neurons import ContextualNeurons
from poskernel_core.analyses.denominators import Denominators, TokenWeights
from poskernel_core.analyses.etc import EtcHeatMap
from poskernel_core.analyses.helix import Helix
from poskernel_core.analyses.induction import InductionRecency, InductionScores, RecencyPatterns
from poskernel_core.analyses.intervention import Intervention
from poskernel_core.analyses.kernel import PositionalKernel
from poskernel_core.analyses.kernel_distances import KernelDistances
from poskernel_core.analyses.kernel_map import KernelMap
from poskernel_core.analyses.neuron import Neuron, NeuronLatents, NeuronTrace
from poskernel_core.analyses.norm_cause import NormCause
from poskernel_core.analyses.position_vs_token import PositionVsToken, PositionZero
from poskernel_core.analyses.previous_token import PreviousToken
from poskernel_core.analyses.profile import DiagonalProfile
from poskernel_core.analyses.random_attention import RandomAttention
from poskernel_core.analyses.stages import Stages
from poskernel_core.analyses.tangent import Tangent
from poskernel_core.errors import UnknownAnalysis

ANALYSES: dict[str, Question] = {
    analysis.name: analysis
    for analysis in (
        EtcHeatMap(),
        PositionalKernel(),
        KernelMap(),
        KernelDistances(),
        DiagonalProfile(),
        Helix(),
        Tangent(),
        PreviousToken(),
        Stages(),
        Intervention(),
        Averaging(),
        Additivity(),
        ContextualHeads(),
        Denominators(),
        TokenWeights(),
        ContextualNeurons(),
        Neuron(),
        NeuronTrace(),
        NeuronLatents(),
        ExtendedEmbedding(),
        WordNeurons(),
        InductionScores(),
        InductionRecency(),
        RecencyPatterns(),
        RandomAttention(),
        NormCause(),
        PositionVsToken(),
        PositionZero(),
    )
}

__all__ = ["ANALYSES", "Analysis", "Experiment", "Params", "Question", "Result", "find"]


def find(name: str) -> Question:
    """Return the analysis or experiment called ``name``.

    Raises:
        UnknownAnalysis: none is.
    """
    if name not in ANALYSES:
        raise UnknownAnalysis(f"No analysis {name!r}: expected one of {', '.join(ANALYSES)}.")
    return ANALYSES[name]
