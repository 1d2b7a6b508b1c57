"""What results about kernels show."""

import numpy as np

from poskernel_core.analyses.head_measures.claims import ATTENTION, HALF
from poskernel_core.analyses.kernels.etc import EtcParams
from poskernel_core.analyses.kernels.formulas import LOCAL_TOKENS, total_variation
from poskernel_core.analyses.number import number_of, passing
from poskernel_core.analyses.rules import by_chance, param, who
from poskernel_core.analyses.sentences import (
    ALL_HEADS,
    SCALE,
    amount,
    at_last,
    at_query,
    curves_apart,
    has,
    heads_at,
    heads_range,
    look_back,
    pairs_apart,
    predicted,
)
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted

RANGES = {
    "etc": "effective token count",
    "half_mass_distance": "half-mass distance",
    "query_variation": "query variation",
    "equivariance_error": "equivariance error",
}
"""Measures without a limit: heads are held against each other."""


def finding(result: Result) -> str:
    """Return what a result about kernels shows."""
    said = {
        "etc": _etc,
        "kernel": _kernel,
        "kernel-map": _map,
        "kernel-distances": _distances,
        "near-kernels": _near,
        "profile": profile_said,
    }
    return said[result.analysis](result)


def _near(result: Result) -> str:
    """The stress, which is known exactly."""
    if "stress" not in result.values:
        return ""
    stress = float(result.values["stress"])
    return (
        f"Distances between points differ by {100 * stress:.0f} % from those between kernels (root "
        f"mean square; a stress of {stress:.2f}, where 0 is a perfect picture)."
    )


def _etc(result: Result) -> str:
    here = at_query(result := at_last(result))
    if has(result, (), "etc", "local_mass", "visible_keys"):
        return _kind(result)
    if has(result, ALL_HEADS, "etc", "local_mass", "visible_keys"):
        return _kinds(result)
    if has(result, (), "attention_distance"):
        return predicted(who(result), number_of(result, "attention_distance"), here)
    if "attention_distance" in result.values:
        noun = "distance of kernel and observed attention"
        return heads_at(result, "attention_distance", noun, HALF)
    name = next((name for name in RANGES if name in result.values), None)
    return heads_range(result, name, f"{RANGES[name]}{here}") if name else ""


def _kind(result: Result) -> str:
    """Say of which kind a head's kernel is."""
    head, here, last = who(result), at_query(result), param(result, "local_tokens")
    mass, spread = number_of(result, "local_mass"), number_of(result, "etc")
    visible = float(result.values["visible_keys"])
    limit = param(result, "uniform_share") * visible
    share, tokens = param(result, "local_share"), amount(spread.value, "tokens")
    local, uniform = mass.surely(share), spread.surely(limit)
    if local == "yes":
        return (
            f"By position alone {head} gives {mass} of its attention to the last "
            f"{counted(last, 'token')}{here}; a kernel is local from {share:g} on."
        )
    if local == "no" and uniform == "yes":
        return (
            f"By position alone {head} spreads its attention over {tokens} of "
            f"{brief(visible)}{here}; a kernel is uniform from {brief(limit)} on."
        )
    if local == "no" and uniform == "no":
        return (
            f"By position alone {head} spreads its attention over {tokens}{here}, between a local "
            f"kernel ({share:g} of the mass in the last {counted(last, 'token')}) and a uniform "
            f"one (from {brief(limit)} on)."
        )
    return ""


def _kinds(result: Result) -> str:
    """Say how many heads are local, and how many uniform."""
    mass, last = param(result, "local_share"), counted(param(result, "local_tokens"), "token")
    share = param(result, "uniform_share")
    local, other = passing(result, "local_mass", mass)
    limits = share * result.values["visible_keys"]
    wide, narrow = passing(result, "etc", limits)
    uniform, heads = other & wide, int(np.isfinite(result.values["etc"]).sum())
    if not heads or not (local.any() or uniform.any() or (other & narrow).sum() == heads):
        return ""
    count = int(local.sum())
    return (
        f"{count} of {counted(heads, 'head')}{by_chance(heads)} {'is' if count == 1 else 'are'} "
        f"local{at_query(result)} ({mass:g} or more of the kernel in the last {last}), and "
        f"{uniform.sum()} uniform (effective token count {share:g} or more of the visible keys)."
    )


def _kernel(result: Result) -> str:
    if has(result, (), "attention_distance"):
        distance = number_of(result, "attention_distance")
        return predicted(who(result), distance, at_query(result))
    if has(result, ("key",), "kernel", "observed"):
        distance = curves_apart(result, "kernel", "observed")
        return predicted(who(result), distance, at_query(result))
    noun = f"mass of the kernel in the last {counted(LOCAL_TOKENS, 'token')}"
    return heads_at(result, "local_mass", noun, EtcParams().local_share)


def _map(result: Result) -> str:
    """Say how far kernel and observed attention are apart, from query to query."""
    if not has(result, ("query", "key"), "kernel", "observed"):
        return ""
    kernel, observed = (result.values[name].astype(float) for name in ("kernel", "observed"))
    seen = (np.isfinite(kernel) & np.isfinite(observed)).sum(axis=1) > 1
    if not seen.any():
        return ""
    gaps = total_variation(*(np.nan_to_num(each[seen]) for each in (kernel, observed)))
    first, last = result.coordinates["query"][seen][[0, -1]]
    least, most = brief(gaps.min()), brief(gaps.max())
    if least == most:
        return ""
    return (
        f"From n = {first} to n = {last} the kernel and the observed attention of "
        f"{who(result)} are {least} to {most} apart ({SCALE})."
    )


def _distances(result: Result) -> str:
    layer = result.chosen.get("layer")
    axes = ("head", "other") if layer is not None else (*ALL_HEADS, "other")
    if not has(result, axes, "distance"):
        return ""
    pairs = "heads of one layer" if layer is None else f"heads of layer {layer}"
    return pairs_apart(result, param(result, "alike"), param(result, "apart"), pairs)


def profile_said(result: Result) -> str:
    """Say to which diagonal a head attends most, or how many heads to the previous token."""
    if has(result, ("offset",), "profile"):
        whole = result.values["profile"]
        profile = whole[: len(whole) // 2 + 1]  # as previous-token ranks diagonals
        if not np.isfinite(profile).any():
            return ""
        back = int(np.nanargmax(profile))
        return look_back(who(result), back, number_of(result, "profile", back))
    if "profile" not in result.values or result.values["profile"].shape[-1] < 2:
        return ""
    previous = result.select(offset=1)
    return heads_at(previous, "profile", "mean attention to the previous token", ATTENTION)
