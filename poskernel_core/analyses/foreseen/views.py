"""What is drawn and said of attention that can be foreseen."""

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    number_of,
    of_all,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.foreseen.formulas import ENOUGH, FIXED, WAYS
from poskernel_core.analyses.pictures import named_lines
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief
from poskernel_core.plotting.curves import curves
from poskernel_core.plotting.layout import log_axis

RIVAL = "the first 4 and the last 28 keys"
CACHES = {"cache_for_95": "by kernel", "fixed_cache_for_95": WAYS[FIXED]}


def _by_keys(head: Result) -> go.Figure:
    """Draw the captured attention against the number of keys, a curve for each way."""
    budgets, both = head.coordinates["budget"], (head.values["captured"], head.errors["captured"])
    figure = curves(
        budgets, dict(zip(WAYS, zip(*both, strict=True), strict=True)),
        x_title="keys chosen beforehand (tokens)", y_title="share of the mean attention",
        where="%{x} keys",
    )  # fmt: skip
    figure.add_hline(y=ENOUGH, line_dash="dot", line_width=1, opacity=0.6)
    figure.update_xaxes(log_axis(1, float(budgets[-1])))
    return figure.update_yaxes(range=[0, 1.02])


def _by_layer(result: Result) -> go.Figure:
    """Draw how large a cache captures 0.95 of the attention, picked in two ways."""
    figure = named_lines(result, CACHES, over="layer", unit="cache (share of visible keys)")
    return figure.update_yaxes(range=[0, 1.02])


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
        yield from (claim for claim in compared(head) if claim.number.passes(HALF) == "yes")


def _heads(result: Result) -> str:
    value = result.values["gain_32"]
    sure = discovered(result, Condition("gain_32", 0, "apart")).sure
    better, worse, known = (
        int(mask.sum()) for mask in (sure & (value > 0), sure & (value < 0), np.isfinite(value))
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


VIEWS: Views = {
    "foreseen-attention": (
        View(
            "captured [way budget]",
            _by_keys,
            "attention to keys chosen beforehand",
            reading="Choose some keys before the text is known, and see how much of the head's "
            "mean attention falls on them in other texts. Each curve is a way of choosing: by the "
            "kernel; the last keys; the first 4 and the last keys; the best fixed choice, which no "
            "other beats except by chance. Dotted: 0.95. Where the kernel's curve is above that of "
            "the first 4 and the last keys, it says more about the head than these simple choices. "
            "A low curve does not mean that the head attends to many keys: in each text it may "
            "attend to one, but to another one.",
            explains="keys_for_95 gain_32",
        ),
        View("share_32 gain_32 visible_keys []", says=_head),
        View("gain_32 [layer head]", says=_heads),
        View(
            "cache_for_95 fixed_cache_for_95 [layer]",
            _by_layer,
            "How many keys would be enough",
            says=_layers,
            reading="How large a layer's cache must be, as a share of the visible keys, so that "
            "0.95 of the mean attention of its heads falls on what it holds. By kernel: every head "
            "picks the same number of keys; heads that share a key head share their picks; a key "
            "that was dropped does not come back. For comparison: the first 4 and the last keys, "
            "the same for all heads. What the dropped keys would have done to the model's output "
            "is not measured.",
            explains="kept_keys kept_captured",
        ),
    ),
}

CLAIMS = {"foreseen-attention": (foreseen,)}
