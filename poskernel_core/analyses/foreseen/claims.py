"""What results about attention that can be foreseen show."""

from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    Rules,
    number_of,
    of_all,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.foreseen.formulas import ENOUGH
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief

RIVAL = "the first 4 and the last 28 keys"


def _head(result: Result) -> str:
    (claim,) = compared(Head(result))
    return claim.sentence(who(result)) if number_of(result, "gain_32").sign() else ""


def compared(head: Head) -> Iterator[Claim]:
    """Yield how much attention falls on few keys that the kernel chooses, and on fixed ones."""
    share, gain = (head.number(name) for name in ("share_32", "gain_32"))
    visible = head.number("visible_keys").value
    text = f"32 of {visible:.0f} keys chosen by {{its}} kernel, the first ones among them, get "
    text += f"{share} of its mean attention"
    rival = brief(share.value - gain.value)
    if (better := gain.sign()) and rival != str(share):
        text += f", {'more' if better > 0 else 'less'} than {RIVAL} get ({rival})"
    yield Claim("foreseen", text, share)


def foreseen(head: Head) -> Iterator[Claim]:
    """Yield what few keys capture, if it is more than half of the attention."""
    if head.number("visible_keys").value >= 2 * 32:
        yield from (each for each in compared(head) if each.number.passes(HALF) == "yes")


def _heads(result: Result) -> str:
    value = result.values["gain_32"]
    sure = discovered(result, Condition("gain_32", 0, "apart")).sure
    better, worse, known = (
        int(each.sum()) for each in (sure & (value > 0), sure & (value < 0), np.isfinite(value))
    )
    if not better + worse:
        return ""
    return (
        f"32 keys chosen by the kernel get more of the mean attention than {RIVAL} in "
        f"{of_all(better, known).lower()}, and less in {worse or 'none'}."
    )


def _layers(result: Result) -> str:
    names = ("cache_for_95", "fixed_cache_for_95")
    layers = len(result.values[names[0]])
    gaps = [number_of(result, names[0], k) - number_of(result, names[1], k) for k in range(layers)]
    signs = [gap.sign() for gap in gaps]
    if not any(signs):
        return ""
    return (
        f"For {ENOUGH:g} of the attention, caches by kernel need fewer keys than the "
        f"first 4 and the last ones in {of_all(signs.count(-1), layers, 'layer').lower()}, and "
        f"more in {signs.count(1) or 'none'}."
    )


RULES: Rules = {
    "foreseen-attention: share_32 gain_32 visible_keys []": _head,
    "foreseen-attention: gain_32 [layer head]": _heads,
    "foreseen-attention: cache_for_95 fixed_cache_for_95 [layer]": _layers,
}

CLAIMS = {"foreseen-attention": (foreseen,)}
