"""What results about attention that can be foreseen show."""

import numpy as np

from poskernel_core.analyses.foreseen.formulas import ENOUGH
from poskernel_core.analyses.number import number_of, passing
from poskernel_core.analyses.rules import CHANCE, Rules, of_all, said, sign, who
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief

RIVAL = "the first 4 and the last 28 keys"


def finding(result: Result) -> str:
    """Return whether kernels foresee more attention than the first and the last keys do."""
    return said(result, RULES)


def _head(result: Result) -> str:
    share, gain = number_of(result, "share_32"), number_of(result, "gain_32")
    if not (better := sign(gain)):
        return ""
    return (
        f"32 of {result.values['visible_keys']:.0f} keys chosen by the kernel get {share} of the "
        f"mean attention of {who(result)}, {'more' if better > 0 else 'less'} than {RIVAL} get "
        f"({brief(share.value - gain.value)})."
    )


def _heads(result: Result) -> str:
    value = result.values["gain_32"]
    above, below = passing(result, "gain_32", 0)
    better, worse, known = (
        int(each.sum()) for each in (above & (value > 0), below, np.isfinite(value))
    )
    if better + worse <= CHANCE * known:
        return ""
    return (
        f"32 keys chosen by the kernel get more of the mean attention than {RIVAL} in "
        f"{of_all(better, known).lower()}, and less in {worse or 'none'}."
    )


def _layers(result: Result) -> str:
    names = ("cache_for_95", "fixed_cache_for_95")
    layers = len(result.values[names[0]])
    gaps = [number_of(result, names[0], k) - number_of(result, names[1], k) for k in range(layers)]
    signs = [sign(gap) for gap in gaps]
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
