"""One accumulator a file; :data:`STATISTICS` registers them by the name that a run asks for."""

from __future__ import annotations

from poskernel_core.statistics.base import Plan, Statistic, Sums
from poskernel_core.statistics.entropy import AttentionEntropy
from poskernel_core.statistics.headvis import HeadVisMetrics
from poskernel_core.statistics.keys import MeanKeys
from poskernel_core.statistics.patterns import MeanPatterns
from poskernel_core.statistics.queries import SampledQueries
from poskernel_core.statistics.repeats import RepeatedTokens
from poskernel_core.statistics.residuals import MeanNormed, MeanResiduals, PositionRows
from poskernel_core.statistics.rotary import RotaryPairs
from poskernel_core.statistics.scores import RawScores
from poskernel_core.statistics.sinks import AttentionSinks

STATISTICS: dict[str, type[Statistic]] = {
    statistic.name: statistic
    for statistic in (
        MeanKeys,
        SampledQueries,
        MeanPatterns,
        MeanResiduals,
        RawScores,
        RepeatedTokens,
        MeanNormed,
        PositionRows,
        AttentionEntropy,
        AttentionSinks,
        RotaryPairs,
        HeadVisMetrics,
    )
}

__all__ = ["STATISTICS", "Plan", "Statistic", "Sums"]
