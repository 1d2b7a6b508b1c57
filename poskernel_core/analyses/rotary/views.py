"""What is drawn and said of rotary heads."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    most,
    number_of,
    of_all,
    param,
    spoken,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.rotary.bands import CHANGES, TREATMENTS
from poskernel_core.analyses.rotary.figures import (
    amplitudes_figure,
    equivariant_curve,
    logit_figure,
    losses_figure,
    profiles_figure,
    shares_figure,
    usage_figure,
    without_figure,
)
from poskernel_core.analyses.rotary.formulas import BANDS
from poskernel_core.analyses.views import View, Views, heads_view
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted
from poskernel_core.plotting.by_axes import by_axes

TURNS = 4
"""Contexts in a wavelength from which on it turns by less than a quarter."""

DONE = dict(zip(TREATMENTS, ("Freezing", "Removing"), strict=True))


def wavelength(head: Head) -> Iterator[Claim]:
    """Yield the wavelength that moves a head's positional logit most, if one does."""
    if (top := most(head.result, "swing", *head.place)) is not None:
        swing = head.result.values["swing"][head.place]
        length = brief(head.result.values["wavelength"][head.place[:1]][top])
        second = brief(np.nanmax(np.delete(swing, top[0]), initial=0.0))
        text = f"{{it}} is moved most by the wavelength of {counted(length, 'token')}: its swing is"
        text += f" {(first := brief(swing[top]))} nats"
        text += f", the next largest {second}" if second != first else ""
        yield Claim("wavelength", text, head.number("swing", *top))


def _usage(result: Result) -> str:
    top, usage = most(result, "usage"), result.values["usage"]
    if top is None:
        return ""
    length, context = result.values["wavelength"][top], result.provenance.get("context", math.inf)
    still = f"; it hardly turns within {context:,} tokens" if length > TURNS * context else ""
    return (
        f"By the lengths of its queries and keys {who(result)} uses the wavelength of "
        f"{brief(length)} tokens most: {brief(usage[top])} of its usage, where equal use of all "
        f"would be {brief(1 / np.isfinite(usage).sum())}{still}."
    )


def _mean_shares(result: Result) -> str:
    queries, keys = (number_of(result, f"mean_share_{name}") for name in ("queries", "keys"))
    verbs = {1: "vary little", -1: "differ"}
    first, second = (verbs.get(number.sign(HALF)) for number in (queries, keys))
    if not first or not second:
        return ""
    what = (
        f"queries and keys {first}"
        if first == second
        else (f"queries {first} from token to token, but its keys {second}")
    )
    return (
        f"{who(result)}'s {what} from token to token: their means hold {queries} and {keys} of the "
        f"mean square (limit {HALF:g})."
    )


def _weights(result: Result) -> str:
    short, middle, long = (
        discovered(result, Condition(f"{band}_weight", HALF)).count for band in BANDS
    )
    known = int(np.isfinite(result.values["short_weight"]).sum())
    if not short + middle + long:
        return ""
    return (
        f"Short wavelengths (up to {param(result, 'short'):g} tokens) make half of the swing or "
        f"more in {of_all(short, known).lower()}, middle ones in "
        f"{middle}, and long ones in {long}."
    )


def _logit(result: Result) -> str:
    if (top := most(result, "positional_logit")) is None:
        return ""
    return (
        f"The positional logit of {who(result)} is highest at offset {top[0]}: "
        f"{brief(result.values['positional_logit'][top])} nats above its mean over all offsets."
    )


def _distance(result: Result) -> str:
    distance = number_of(result, "equivariant_attention_distance")
    says = {1: "is far from", -1: "is near"}.get(distance.sign(HALF))
    if says is None:
        return ""
    return (
        f"The equivariant kernel {says} {who(result)}'s mean attention: their distance is "
        f"{distance} (limit {HALF:g}), and that of the positional kernel "
        f"{brief(float(result.values['attention_distance']))}."
    )


def _without(result: Result) -> str:
    if (top := most(result, "band_distance")) is None:
        return ""
    return (
        f"Without its {BANDS[top[0]]} wavelengths the kernel of {who(result)} changes most: by a "
        f"distance of {brief(result.values['band_distance'][top])}, to "
        f"{brief(result.values['band_etc'][top])} effective tokens from "
        f"{brief(float(result.values['etc']))}."
    )


def _distances(result: Result) -> str:
    name = "equivariant_attention_distance"
    near = discovered(result, Condition(name, HALF, "below"))
    if not near.count:
        return ""
    known = int(np.isfinite(result.values[name]).sum())
    return (
        "The equivariant kernel is near the mean attention of "
        f"{of_all(near.count, known)} (distance below {HALF:g}{'; ' * bool(near.unsure)}"
        f"{near.unsure})."
    )


def _loss(result: Result) -> str:
    change, clean = result.values["loss_change"], result.values["loss"][0]
    top = int(np.nanargmax(change))
    if number_of(result, "loss_change", top).sign() <= 0:
        return ""
    where = "the chosen" if param(result, "heads") or param(result, "layers") else "all"
    return (
        f"{_change(top)} in {where} heads raises the loss{_most(result, 'loss_change')} by "
        f"{brief(change[top])} nats, from {brief(clean)} in the clean run."
    )


def _pattern(result: Result) -> str:
    distance, mass = result.values["pattern_distance"], result.values["previous_mass"]
    if np.isnan(distance).all() or who(result) != param(result, "head").upper():
        return ""
    top = int(np.nanargmax(distance))
    if number_of(result, "pattern_distance", top).sign() <= 0:
        return ""
    turned = number_of(result, "previous_mass_change", top).sign()
    before = (
        f"; attention to the previous token {'rises' if turned > 0 else 'falls'} from "
        f"{brief(mass[0])} to {brief(mass[top])}"
    )
    return (
        f"{_change(top)} moves {who(result)}'s attention{_most(result, 'pattern_distance')} by a "
        f"distance of {brief(distance[top])} from the clean run{before if turned else ''}."
    )


def _most(result: Result, name: str) -> str:
    return "" if most(result, name) is None else " most,"


def _change(place: int) -> str:
    band, treatment = CHANGES[place].split()
    return f"{DONE[treatment]} the {band} wavelengths"


VIEWS: Views = {
    "rotary-spectrum": (
        View(
            "wavelength phase amplitude swing [pair], dominant_wavelength []",
            reading="A rotary head compares query and key in pairs of dimensions, and each pair is "
            "a clock. The hand is the angle between the mean query and the mean key: it turns "
            "steadily with their distance, fast for a short wavelength (top), slowly for a long "
            "one (bottom). Its projection on the horizontal is the pair's part of the score: "
            "orange (right) is positive, blue (left) negative. One clock cannot tell how far a key "
            "is; fast and slow ones together can, like the hands of a watch. Below: the sum over "
            "all pairs, the positional logit $S(D)$, in nats. The pairs that change this logit "
            "most are shown.",
        ),
        View("wavelength swing phase [pair]", says=spoken(wavelength)),
        View(
            "wavelength amplitude swing phase [pair]",
            amplitudes_figure,
            "amplitudes and phases",
            reading="Above: the size of each pair's term (*amplitude*), and its variation over the "
            "distances of the context (*swing*): a slow pair is nearly constant, and a constant "
            "has no effect on attention. Below: the *phase*, the angle of the hand at distance 0; "
            "at phase 0 the term is largest at distance 0. Hover for the distance of the largest "
            "term. Dotted lines separate the bands of wavelengths. Bars are one standard error.",
        ),
        View("wavelength usage [pair]", says=_usage),
        View(
            "wavelength usage swing amplitude [pair]",
            usage_figure,
            "usage of wavelengths",
            reading="*Usage* is the norm of queries and keys in a pair, whatever their direction. "
            "The share of amplitude counts only the mean query and key, the share of swing only "
            "the part that changes with distance. Usage without swing serves content: slow pairs "
            "hardly turn and can compare content over long distances.",
        ),
        View("mean_share_queries mean_share_keys []", says=_mean_shares),
        View(
            "wavelength query_share key_share [pair], mean_share_queries mean_share_keys []",
            shares_figure,
            "mean shares",
            reading="Near 1 the queries (or keys) of all tokens have the same direction in a pair, "
            "and position alone decides its part of the score; near 0 they have all directions, "
            "and content decides. Long dashes: all pairs together.",
        ),
        View("dominant_wavelength [...]", partial(by_axes, name="dominant_wavelength")),
        View("short_weight middle_weight long_weight [layer head]", says=_weights),
        *(heads_view(f"{band}_weight", f"weight of {band} wavelengths", HALF) for band in BANDS),
        heads_view("mean_share_queries", "mean share of queries", HALF),
        heads_view("mean_share_keys", "mean share of keys", HALF),
    ),
    "equivariant-kernel": (
        View("equivariant_attention_distance attention_distance []", says=_distance),
        View("band_distance band_etc [band], etc []", says=_without),
        View("positional_logit [offset]", says=_logit),
        View(
            "positional_logit equivariant_kernel mean_key_kernel observed [offset]",
            equivariant_curve,
            "equivariant kernel",
            reading="Solid: attention with the mean query and the mean key everywhere, which "
            "depends on distance alone. Dash-dotted: the positional kernel, with a separate mean "
            "key at every position and real queries. Dashed: the observed attention. Where the "
            "solid and the dash-dotted line agree, the head uses position in the same way "
            "everywhere; where the dashed line differs from them, content decides.",
            explains="kernel_distance equivariant_attention_distance attention_distance",
        ),
        View(
            "positional_logit equivariant_kernel [offset], without_band [band offset]",
            without_figure,
            "the kernel without each band",
            reading="The kernel with all wavelengths, and without the pairs of one band. Short "
            "wavelengths distinguish neighbouring tokens, long ones near from far.",
            explains="band_distance band_etc",
        ),
        View(
            "positional_logit [offset], band_logit [band offset]",
            logit_figure,
            "positional logit by offset",
            reading="The score of the mean query and the mean key at each distance, and its parts, "
            "one for each band of wavelengths. A rise by 1 nat is 2.7 times the attention.",
        ),
        View("equivariant_attention_distance [layer head]", says=_distances),
        View("equivariant_kernel [...]", partial(by_axes, name="equivariant_kernel")),
    ),
    "changed-bands": (
        View("pattern_distance previous_mass previous_mass_change [change]", says=_pattern),
        View("loss loss_change [change]", says=_loss),
        View(
            "loss_change [change]",
            losses_figure,
            "Loss without a band",
            reading="The rise of the loss if a band's pairs are not rotated (*frozen*: they still "
            "compare content) or set to zero (*removed*) in the heads chosen above. Bars are one "
            "standard error. A band without pairs in this model changes nothing.",
        ),
        View(
            "profile [change offset]",
            profiles_figure,
            reading="The selected head's mean attention by offset, in the clean run and with each "
            "band changed. The table has the distance between the patterns, and the attention to "
            "the previous token.",
            explains="pattern_distance previous_mass_change",
        ),
    ),
}

CLAIMS = {"rotary-spectrum": (wavelength,)}
