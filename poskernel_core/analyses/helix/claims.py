"""What results on the helix show, in a sentence."""

import math

import numpy as np

from poskernel_core.analyses.claims import HALF, Rules, number_of, of_all, param, who
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.helix.spec import SHOWN
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief

SMOOTH_SHARE = 0.85
"""Positions lie on a smooth curve if three components hold at least this share of the variance."""

DIRECTIONS = {
    "tangent_share": "tangent",
    "radial_share": "radius",
    "third_share": "third direction",
}


def _variance(result: Result) -> str:
    shares = np.atleast_2d(result.values["explained_variance"])[:, :SHOWN].sum(axis=1)
    layers = [result.chosen["layer"]] if "layer" in result.chosen else range(len(shares))
    if not shares.all():
        return ""
    holds = (shares >= SMOOTH_SHARE).sum()
    first = f"{brief(shares[0])} before layer {layers[0]}"
    if not holds:
        return (
            f"The first three components hold less than {SMOOTH_SHARE:g} of the variance over "
            f"positions ({first}), so three dimensions do not show the whole curve."
        )
    where = f" in {holds} of {len(shares)} layers" if len(shares) > 1 else ""
    return (
        f"The first three components hold {SMOOTH_SHARE:g} or more of the variance over "
        f"positions{where} ({first}), so the curve shows nearly all of it{' there' * bool(where)}."
    )


def _angles(result: Result) -> str:
    turned = [
        float(result.values[name][0, -1, -1]) for name in ("angles_residual", "angles_position")
    ]
    last = len(result.values["angles_residual"]) - 1
    if last < 1 or any(map(math.isnan, turned)):
        return ""
    stream, position = map(brief, turned)
    return (
        f"From layer 0 to layer {last} the top-{param(result, 'subspace')} subspace turns by up to "
        f"{stream}° in the residual stream and {position}° in position space (90°: a new direction "
        "at right angles)."
    )


def _shape(result: Result) -> str:
    shares = result.values["far_share"]
    first, last = shares[[0, -1]]
    if first == last:
        return ""
    turns = "falls" if last < first else "rises"
    return (
        f"The share of entries far from 0 (beyond {param(result, 'far'):g} rms) {turns} from "
        f"{brief(first)} before layer 0 to {brief(last)} before layer "
        f"{len(shares) - 1}."
    )


def _tangent(result: Result) -> str:
    fit = number_of(result, "helix_fit")
    shares = {name: number_of(result, name) for name in DIRECTIONS}
    match fit.sign(HALF):
        case 0:
            return ""
        case -1:
            return (
                f"The helix explains only {fit} of the variance of {who(result)}'s scores by "
                f"position (limit {HALF:g}): the head reads more than three components hold."
            )
    for name, share in shares.items():
        if share.sign(HALF) > 0:
            return (
                f"{who(result)} reads the helix mostly along its {DIRECTIONS[name]}: {share} "
                f"of its reading direction (limit {HALF:g}), where the helix explains "
                f"{fit} of its scores by position."
            )
    if all(share.sign(HALF) < 0 for share in shares.values()):
        listed = ", ".join(f"{DIRECTIONS[n]} {share}" for n, share in shares.items())
        return (
            f"{who(result)} reads the helix along no single direction: each holds less than "
            f"{HALF:g} of its reading direction ({listed})."
        )
    return ""


def _tangents(result: Result) -> str:
    both = discovered(result, *(Condition(name, HALF) for name in ("tangent_share", "helix_fit")))
    if not both.count:
        return ""
    reads = "read" if both.count > 1 else "reads"
    known = int(np.isfinite(result.values["tangent_share"]).sum())
    return (
        f"{of_all(both.count, known, beside=both.beside)} {reads} the helix along its tangent: "
        f"{HALF:g} or more of the reading direction, where the helix explains {HALF:g} "
        "or more of the scores."
    )


RULES: Rules = {
    "helix: explained_variance [layer variance_component]": _variance,
    "helix: explained_variance [variance_component]": _variance,
    "helix: angles_residual angles_position [layer layer_2 angle]": _angles,
    "helix: far_share [layer]": _shape,
    "tangent: tangent_share radial_share third_share helix_fit []": _tangent,
    "tangent: tangent_share helix_fit [layer head]": _tangents,
}
