"""What results on rotary heads show, in a sentence."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    Rules,
    heads_at,
    most,
    number_of,
    of_all,
    param,
    spoken,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.rotary.bands import CHANGES, TREATMENTS
from poskernel_core.analyses.rotary.formulas import BANDS
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted

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
    return (
        f"{who(result)} uses the wavelength of {brief(result.values['wavelength'][top])} tokens "
        f"most: {brief(usage[top])} of its usage, where equal use of all would be "
        f"{brief(1 / np.isfinite(usage).sum())}."
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
    says = {1: "does not predict", -1: "predicts more than half of"}.get(distance.sign(HALF))
    if says is None:
        return ""
    return (
        f"The equivariant kernel {says} {who(result)}'s attention: their distance is "
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
        "The equivariant kernel predicts more than half of the attention of "
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


RULES: Rules = {
    "rotary-spectrum: wavelength swing phase [pair]": spoken(wavelength),
    "rotary-spectrum: wavelength usage [pair]": _usage,
    "rotary-spectrum: mean_share_queries mean_share_keys []": _mean_shares,
    "rotary-spectrum: short_weight middle_weight long_weight [layer head]": _weights,
    **{
        f"rotary-spectrum: {name} [layer head]": partial(heads_at, name=name, noun=noun, limit=HALF)
        for name, noun in (
            *((f"{band}_weight", f"weight of {band} wavelengths") for band in BANDS),
            *((f"mean_share_{what}", f"mean share of {what}") for what in ("queries", "keys")),
        )
    },
    "equivariant-kernel: equivariant_attention_distance attention_distance []": _distance,
    "equivariant-kernel: band_distance band_etc [band], etc []": _without,
    "equivariant-kernel: positional_logit [offset]": _logit,
    "equivariant-kernel: equivariant_attention_distance [layer head]": _distances,
    "changed-bands: pattern_distance previous_mass previous_mass_change [change]": _pattern,
    "changed-bands: loss loss_change [change]": _loss,
}

CLAIMS = {"rotary-spectrum": (wavelength,)}
