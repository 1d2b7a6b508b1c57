"""What comparisons of heads, and measures by depth, show."""

import numpy as np

from poskernel_core.analyses.claims import (
    SCALE,
    Number,
    Rules,
    amount,
    number_of,
    of_all,
    pairs_apart,
    param,
)
from poskernel_core.analyses.comparison.figures import pin_labels
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.kernels.distances import KernelDistancesParams
from poskernel_core.analyses.kernels.etc import EtcParams
from poskernel_core.analyses.kernels.formulas import LOCAL_TOKENS
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted


def _kernels(result: Result) -> str:
    limits = KernelDistancesParams()
    if len(labels := pin_labels(result)) != 2:
        return pairs_apart(result, limits.alike, limits.apart, "heads")
    distance = number_of(result, "distance", 0, 1)
    text = f"The kernels of {labels[0]} and {labels[1]} are {distance} apart ({SCALE})"
    if distance.passes(limits.apart) == "yes":
        return f"{text}, more than {limits.apart:g}."
    return f"{text}, less than {limits.alike:g}." * (distance.passes(limits.alike) == "no")


def _local(result: Result) -> str:
    """Say how many kernels have most of their mass on the last tokens.

    Errors of the entries need not be independent, so they are added up.
    """
    limit, near = EtcParams().local_share, np.s_[:, :LOCAL_TOKENS]
    mass = np.nansum(result.values["kernel"][near], axis=1)
    wrong = result.errors["kernel"][near]
    error = np.where(np.isfinite(result.values["kernel"][near]), wrong, 0.0).sum(axis=1)
    known = np.isfinite(result.values["kernel"]).any(axis=1)
    mass, reach = mass[known], result.interval * error[known]
    sure = discovered(result, Condition(Estimate(mass, mass - reach, mass + reach), limit))
    if not known.any() or not (sure.count or (mass + reach < limit).all()):
        return ""
    local, beside = sure.count, sure.beside
    labels = np.array(pin_labels(result), dtype=object)[known]
    most = int(np.argmax(mass))
    return (
        f"{of_all(local, len(mass), 'kernel', beside)} {'have' if local > 1 else 'has'} {limit:g} "
        f"or more of the mass in the last {counted(LOCAL_TOKENS, 'token')}; that of "
        f"{labels[most]} has most, {Number.within(float(mass[most]), float(reach[most]))}."
    )


def _measures(result: Result) -> str:
    labels, scores = pin_labels(result), result.values["z_score"][:, 1:].astype(float)
    reach = np.where(np.isfinite(scores), result.interval, np.nan)  # a score has an error of 1
    every = Estimate(scores, scores - reach, scores + reach)
    known = int(np.isfinite(scores).sum())
    if not (differ := discovered(result, Condition(every, 0, "apart")).count):
        return ""
    others = labels[1] if len(labels) == 2 else f"the {len(labels) - 1} other heads"
    return (
        f"In {differ} of {counted(known, 'measure')} {others} and {labels[0]} differ by more than "
        "their errors."
    )


def _depth(result: Result) -> str:
    mean = result.values["mean"]
    if not np.isfinite(mean).any() or np.nanmax(mean) == np.nanmin(mean):
        return ""
    large, small = (
        f"layer {place} ({amount(mean[place], result.units['mean'])})"
        for place in (int(np.nanargmax(mean)), int(np.nanargmin(mean)))
    )
    measure = param(result, "measure")
    return f"The mean {measure} of a layer is largest in {large} and smallest in {small}."


RULES: Rules = {
    "compare-kernels: distance [pin other]": _kernels,
    "compare-kernels: kernel [pin offset]": _local,
    "compare-heads: z_score [measure pin]": _measures,
    "depth: mean [layer]": _depth,
}
