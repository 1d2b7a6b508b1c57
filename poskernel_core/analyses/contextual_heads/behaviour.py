"""Behaviour groups of heads, from their measures."""

from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Params
from poskernel_core.common.result import Result

BEHAVIOURS = ("duplicate token", "detokenization", "contextual", "other")
"""The groups, in the order of the tests: a head belongs to the first group that fits."""


class Thresholds(Params):
    """Thresholds of the groups."""

    duplicates: float = Field(
        0.3,
        ge=0,
        le=1,
        description="attention to a duplicate from which a head is a duplicate-token head",
    )
    local: float = Field(
        0.5,
        ge=0,
        le=1,
        description="mass in the last 10 tokens from which a head is a detokenization head",
    )
    broad: float = Field(
        30, ge=1, le=1_000_000, description="ETC from which a kernel is broad, tokens"
    )
    steady: float = Field(
        0.25, ge=0, le=100, description="CV of the softmax denominator that is still low"
    )


def behaviour(values: dict[str, np.ndarray], limits: Thresholds) -> np.ndarray:
    """Return the group of every head as an index into :data:`BEHAVIOURS`.

    ``values`` are those of ``contextual-heads``. For duplicates, the larger of near and far counts.
    """
    duplicates = np.fmax(values["near_duplicates"], values["far_duplicates"])
    tests = [
        duplicates >= limits.duplicates,
        values["local_mass"] >= limits.local,
        (values["etc"] >= limits.broad) & (values["denominator_cv"] <= limits.steady),
    ]
    return np.select(tests, range(len(tests)), default=len(tests))


def regrouped(heads: Result, **limits: Any) -> Result:
    """Return a result of contextual heads, regrouped with other thresholds.

    ``limits`` are fields of :class:`Thresholds`.
    """
    group = behaviour(heads.values, Thresholds(**limits))
    return replace(heads, values={**heads.values, "group": group}, params=heads.params | limits)
