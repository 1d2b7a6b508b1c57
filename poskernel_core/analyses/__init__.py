"""One analysis a file; :data:`ANALYSES` registers them by the name that ``show`` takes."""

from __future__ import annotations

from poskernel_core.analyses.base import Analysis, Params, Result
from poskernel_core.analyses.etc import EtcHeatMap
from poskernel_core.analyses.kernel import PositionalKernel
from poskernel_core.analyses.kernel_map import KernelMap
from poskernel_core.analyses.profile import DiagonalProfile
from poskernel_core.errors import UnknownAnalysis

ANALYSES: dict[str, Analysis] = {
    analysis.name: analysis
    for analysis in (EtcHeatMap(), PositionalKernel(), KernelMap(), DiagonalProfile())
}

__all__ = ["ANALYSES", "Analysis", "Params", "Result", "find"]


def find(name: str) -> Analysis:
    """Return the analysis called ``name``.

    Raises:
        UnknownAnalysis: none is.
    """
    if name not in ANALYSES:
        raise UnknownAnalysis(f"No analysis {name!r}: expected one of {', '.join(ANALYSES)}.")
    return ANALYSES[name]
