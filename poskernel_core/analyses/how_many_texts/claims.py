"""Whether the texts that were read are enough."""

import numpy as np

from poskernel_core.analyses.claims import ALL_HEADS, Number, param, who
from poskernel_core.common.result import NORMAL, Result
from poskernel_core.common.rounding import brief, counted

UNCERTAIN = 1 / 3
"""Standard error of a number of windows, as a share of it."""


def finding(result: Result) -> str:
    """Hold the windows that are enough against those that were read."""
    if not {"enough", "wanted"} <= result.values.keys() or "subset" not in result.coordinates:
        return ""
    read = int(result.coordinates["subset"][-1])
    enough, measure = result.values["enough"].astype(float), param(result, "measure")
    if result.axes["enough"] == ():
        needed = _uncertain(float(enough))
        passes = needed.passes(read) if np.isfinite(enough) else None
        if passes in (None, "about"):
            return ""
        wanted = brief(float(result.values["wanted"]))
        windows = counted(f"{needed.value:,.0f}", "window")
        more = "fewer" if passes == "no" else "more"
        return (
            f"For an error of {wanted} in the {measure} of {who(result)} about {windows} are "
            f"enough, {more} than the {read:,} that were read."
        )
    if result.axes["enough"] != ALL_HEADS:
        return ""
    known = np.isfinite(enough)
    needs = [_uncertain(each).passes(read) for each in enough[known]]
    if not (sure := needs.count("no")):
        return ""
    return (
        f"The {counted(f'{read:,}', 'window')} that were read give {sure} of "
        f"{counted(len(needs), 'head')} the wanted error of the {measure}."
    )


def _uncertain(windows: float) -> Number:
    return Number.within(windows, NORMAL * UNCERTAIN * windows)
