"""One topic per folder; :data:`ANALYSES` registers them by the name that ``show`` takes."""

from __future__ import annotations

from typing import Any

from poskernel_core.analyses.additivity.spec import Additivity
from poskernel_core.analyses.bag.contextual_neurons import ContextualNeurons
from poskernel_core.analyses.bag.neuron import Neuron, NeuronLatents, NeuronTrace
from poskernel_core.analyses.bag.search import ExtendedEmbedding, WordNeurons
from poskernel_core.analyses.base import Analysis, Composition, Experiment, Params, Question
from poskernel_core.analyses.comparison.folds import KernelFolds
from poskernel_core.analyses.comparison.measures import HeadsBeside, MeasureByDepth
from poskernel_core.analyses.comparison.spec import HeadDistances
from poskernel_core.analyses.contextual_heads.denominators import Denominators, TokenWeights
from poskernel_core.analyses.contextual_heads.spec import ContextualHeads
from poskernel_core.analyses.entropy.spec import AttentionEntropy
from poskernel_core.analyses.head_measures.spec import HeadMeasures
from poskernel_core.analyses.head_measures.verdicts import HeadVerdicts
from poskernel_core.analyses.headvis.spec import HeadExamples, HeadVisMetrics
from poskernel_core.analyses.helix.spec import Helix
from poskernel_core.analyses.helix.tangent import Tangent
from poskernel_core.analyses.how_many_texts.spec import HowManyTexts
from poskernel_core.analyses.induction.norm_cause import NormCause
from poskernel_core.analyses.induction.spec import (
    InductionRecency,
    InductionScores,
    RecencyPatterns,
)
from poskernel_core.analyses.interventions.averaging import Averaging
from poskernel_core.analyses.interventions.spec import Intervention
from poskernel_core.analyses.kernels.distances import KernelDistances
from poskernel_core.analyses.kernels.etc import EtcHeatMap
from poskernel_core.analyses.kernels.kernel import PositionalKernel
from poskernel_core.analyses.kernels.kernel_map import KernelMap
from poskernel_core.analyses.kernels.profile import DiagonalProfile
from poskernel_core.analyses.own_text.spec import HeadOnText, OwnText
from poskernel_core.analyses.position_vs_token.spec import PositionVsToken, PositionZero
from poskernel_core.analyses.previous_token.spec import PreviousToken
from poskernel_core.analyses.previous_token.stages import Stages
from poskernel_core.analyses.random_tokens.spec import RandomAttention
from poskernel_core.analyses.rotary.bands import ChangedBands
from poskernel_core.analyses.rotary.kernel import EquivariantKernel
from poskernel_core.analyses.rotary.spec import RotarySpectrum
from poskernel_core.analyses.score_shares.spec import ScoreShares
from poskernel_core.analyses.sinks.spec import AttentionSinks
from poskernel_core.analyses.training.spec import KernelOverTraining, OverTraining
from poskernel_core.common.errors import UnknownAnalysis
from poskernel_core.common.renamed import QUESTIONS, told
from poskernel_core.common.result import Result

ANALYSES: dict[str, Question[Any]] = {
    analysis.name: analysis
    for analysis in (
        EtcHeatMap(),
        PositionalKernel(),
        KernelMap(),
        KernelDistances(),
        DiagonalProfile(),
        AttentionEntropy(),
        AttentionSinks(),
        ScoreShares(),
        HeadVisMetrics(),
        HeadExamples(),
        Helix(),
        Tangent(),
        PreviousToken(),
        Stages(),
        Intervention(),
        Averaging(),
        Additivity(),
        OwnText(),
        HeadOnText(),
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
        RotarySpectrum(),
        EquivariantKernel(),
        ChangedBands(),
        KernelOverTraining(),
        KernelFolds(),
        HeadDistances(),
    )
}
ANALYSES["over-training"] = OverTraining(ANALYSES)
ANALYSES["head-measures"] = HeadMeasures(ANALYSES)
ANALYSES["verdicts"] = HeadVerdicts(ANALYSES)
ANALYSES["compare-heads"] = HeadsBeside(ANALYSES)
ANALYSES["depth"] = MeasureByDepth(ANALYSES)
ANALYSES["how-many-texts"] = HowManyTexts(ANALYSES)

__all__ = [
    "ANALYSES",
    "Analysis",
    "Composition",
    "Experiment",
    "Params",
    "Question",
    "Result",
    "find",
]


def find(name: str) -> Question[Any]:
    """Return the analysis or experiment called ``name``.

    Raises:
        UnknownAnalysis: none is.
    """
    if not isinstance(name, str) or name not in ANALYSES:
        raise UnknownAnalysis(
            told(name, QUESTIONS) or f"No analysis {name!r}: expected one of {', '.join(ANALYSES)}."
        )
    return ANALYSES[name]
