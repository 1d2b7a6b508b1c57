"""What results about kernels show."""

import math
from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import (
    ALL_HEADS,
    ATTENTION,
    HALF,
    SCALE,
    WEAK,
    Claim,
    Head,
    Number,
    Passes,
    at_last,
    at_limit,
    at_query,
    beyond,
    has,
    heads_at,
    heads_range,
    most,
    number_of,
    pairs_apart,
    param,
    passing,
    spoken,
    told,
    who,
)
from poskernel_core.analyses.discoveries import Condition, Heads, discovered
from poskernel_core.analyses.kernels.etc import EtcParams
from poskernel_core.analyses.kernels.formulas import LOCAL_TOKENS, total_variation
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted

RANGES = {
    "etc": "effective token count",
    "half_mass_distance": "half-mass distance",
    "query_variation": "query variation",
    "equivariance_error": "equivariance error",
}
"""Measures without a limit: heads are held against each other."""


def stress_said(result: Result) -> str:
    """The stress, which is known exactly."""
    stress = float(result.values["stress"])
    return (
        f"Distances between points differ by {100 * stress:.0f} % from those between kernels (root "
        f"mean square; a stress of {stress:.2f}, where 0 is a perfect picture)."
    )


def etc_said(result: Result) -> str:
    """Say of which kind a kernel is, or how many are of which."""
    result = at_last(result)
    if result.axes["etc"] == ():
        return spoken(kernel_kind)(result)
    return _kinds(result) if result.axes["etc"] == ALL_HEADS else range_said("etc", result)


def distance_said(result: Result) -> str:
    """Say how far kernels and observed attention are apart."""
    result = at_last(result)
    if result.axes["attention_distance"] == ():
        return spoken(fidelity)(result)
    noun = "distance of kernel and observed attention"
    return heads_at(result, "attention_distance", noun, HALF)


def range_said(name: str, result: Result) -> str:
    """Hold the heads against each other in a measure that has no limit."""
    return heads_range(at_last(result), name, RANGES[name])


def local_said(result: Result) -> str:
    """Say how many kernels are local."""
    noun = f"mass of the kernel in the last {counted(LOCAL_TOKENS, 'token')}"
    return heads_at(result, "local_mass", noun, EtcParams().local_share)


def kernel_kind(head: Head) -> Iterator[Claim]:
    """Yield of which kind a head's kernel is, and the number that decides it."""
    mass, spread = head.number("local_mass"), head.number("etc")
    visible = head.number("visible_keys").value
    if math.isnan(spread.value):
        return
    last, share = counted(head.param("local_tokens"), "token"), head.param("local_share")
    most = head.param("uniform_share") * visible
    where = f"its attention{beyond(head.param('skip'))}"
    near = f"by position alone {{it}} gives {mass} of {where} to the last {last}"
    keys = counted(brief(visible), "token")
    wide = f"by position alone {{it}} spreads {where} over {spread} of {keys}"
    local, uniform = mass.passes(share), spread.passes(most)
    if local in ("yes", "about"):
        yield Claim("kernel", near, mass, "a local kernel", local, f"{share:g}")
    elif uniform in ("yes", "about"):
        limit = counted(brief(most), "token")
        yield Claim("kernel", wide, spread, "a uniform kernel", uniform, limit)
    else:
        yield Claim("kernel", wide, spread, "slow decay, neither local nor uniform")


def fidelity(head: Head) -> Iterator[Claim]:
    """Yield whether the kernel predicts the observed attention."""
    distance = head.number("attention_distance")
    if passes := distance.passes(HALF):
        where = beyond(head.param("skip"))
        text = (
            f"{{its}} mean attention{where} is {distance} (total variation) from its positional "
            "kernel"
        )
        label = "far from it" if passes == "yes" else "near it"
        holds: Passes = "about" if passes == "about" else "yes"
        yield Claim("fidelity", text, distance, label, holds, f"{HALF:g}")


def kernel_said(result: Result) -> str:
    """Say how near a head's kernel is, and where both are largest if that differs."""
    sentence, query = spoken(fidelity)(result), param(result, "query")
    if not sentence or not has(result, ("key",), "kernel", "observed"):
        return sentence
    kernel, observed = (most(result, name) for name in ("kernel", "observed"))
    if not kernel or not observed or kernel == observed:
        return sentence
    by_position, seen = (
        f"{counted(query - place, 'token')} back" if query > place else "at the current token"
        for (place,) in (kernel, observed)
    )
    return f"{sentence[:-1]}; the kernel is largest {by_position}, the observed attention {seen}."


def _kinds(result: Result) -> str:
    mass, last = param(result, "local_share"), counted(param(result, "local_tokens"), "token")
    share = param(result, "uniform_share")
    limits = share * result.values["visible_keys"]
    local = discovered(result, Condition("local_mass", mass))
    far, wide = Condition("local_mass", mass, "below"), Condition("etc", limits)
    uniform = discovered(result, far, wide)
    other, narrow = (passing(result, *pair)[1] for pair in (("local_mass", mass), ("etc", limits)))
    heads = int(np.isfinite(result.values["etc"]).sum())
    if not heads or not (local.count or uniform.count or (other & narrow).sum() == heads):
        return ""
    unknown = Heads(local.sure, (local.open | uniform.open) & ~local.sure & ~uniform.sure)
    return (
        f"{local.count:,} of {counted(heads, 'head')} {'is' if local.count == 1 else 'are'} "
        f"local{at_query(result)} ({mass:g} or more of the kernel in the last {last}), and "
        f"{uniform.count:,} uniform (effective token count {share:g} or more of the visible "
        f"keys){'; ' * bool(unknown.unsure)}{unknown.unsure}."
    )


def map_said(result: Result) -> str:
    """Say how far kernel and observed attention are apart at the first and the last query."""
    kernel, observed = (result.values[name].astype(float) for name in ("kernel", "observed"))
    seen = (np.isfinite(kernel) & np.isfinite(observed)).sum(axis=1) > 1
    if not seen.any():
        return ""
    gaps = total_variation(*(np.nan_to_num(array[seen]) for array in (kernel, observed)))
    first, last = result.coordinates["query"][seen][[0, -1]]
    least, most = brief(gaps.min()), brief(gaps.max())
    if least == most:
        return ""
    return (
        f"From n = {first} to n = {last} the kernel and the observed attention of "
        f"{who(result)} are {least} to {most} apart ({SCALE})."
    )


def distances_said(result: Result) -> str:
    """Say how many pairs of kernels are far apart, and how many alike."""
    layer = result.chosen.get("layer")
    pairs = "heads of one layer" if layer is None else f"heads of layer {layer}"
    return pairs_apart(result, param(result, "alike"), param(result, "apart"), pairs)


def profile_said(result: Result) -> str:
    """Say to which diagonal a head attends most, or how many heads to the previous token."""
    if has(result, ("offset",), "profile"):
        full = result.values["profile"]
        profile = full[: len(full) // 2 + 1]  # as previous-token ranks diagonals
        if not np.isfinite(profile).any():
            return ""
        back = int(np.nanargmax(profile))
        return told(result, look_back(back, number_of(result, "profile", back)))
    if "profile" not in result.values or result.values["profile"].shape[-1] < 2:
        return ""
    previous = result.select(offset=1)
    return heads_at(previous, "profile", "mean attention to the previous token", ATTENTION)


def look_back(back: int, mass: Number, how: str = "") -> Iterator[Claim]:
    """Yield how much attention a head's largest diagonal takes."""
    place = {0: "the current token", 1: "the previous token"}.get(back, f"the token {back} back")
    text = f"{{it}} gives {place} {mass} of its attention{how}"
    label = {0: "a head that looks at its own token", 1: "a previous-token head"}.get(back)
    label = label or f"a head that looks {back} tokens back"
    fails = f"no diagonal gets {WEAK:g}"
    yield from at_limit("look back", mass, ATTENTION, text, label, fails, WEAK)
