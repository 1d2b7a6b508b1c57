"""Targets that may end a run before its last window, looked at again after every stage.

Because one looks again and again, a target is met by intervals of 99.5 %, not of 95 %.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams, stands
from poskernel_core.common.jackknife import interval
from poskernel_core.common.result import Result
from poskernel_core.common.specs import DEFAULT_QUERY, Until

if TYPE_CHECKING:
    from poskernel_core.passes.forming import Stage

READS = frozenset({"keys", "queries", "patterns"})
"""The statistics that targets are looked at in; a pass without them reads all its windows."""

SHARE = 0.995
KNOWN_TO = 0.05
"""Relative half-width of the interval of an ETC that counts as known."""


def is_met(until: Until, stage: Stage) -> bool:
    """Return whether all heads of a stage meet a target, at the default position and skip."""
    if not set(stage.run.gather) >= READS:
        return False
    at = [n for n in stage.sizes.positions if n <= DEFAULT_QUERY]
    view = stage.at(at[-1] if at else stage.sizes.positions[0])
    result = EtcHeatMap().answer({"main": view}, EtcParams(), lambda done, total: None)
    return bool(meets(until, result).all())


def meets(until: Until, result: Result) -> np.ndarray:
    """Return which heads ``[layer, head, query]`` of an ETC result meet a target.

    A head without visible keys, or in a layer without heads, meets every target.
    """
    if result.groups < 2:
        return np.zeros(result.values["etc"].shape, dtype=bool)
    width = interval(result.groups, SHARE)
    if until == "kinds":
        met = stands(result, width / result.interval)
    else:
        met = width * result.errors["etc"] / result.values["etc"] <= math.log1p(KNOWN_TO)
    return met | np.isnan(result.values["etc"])
