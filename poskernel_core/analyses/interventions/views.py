"""What is drawn and said of interventions."""

import math

import numpy as np

from poskernel_core.analyses.claims import ATTENTION, Number, name_at, number_of, param, who
from poskernel_core.analyses.interventions.figures import (
    averaging,
    kl,
    losses,
    mass_changes,
    next_tokens,
    patterns,
)
from poskernel_core.analyses.interventions.spec import InterventionParams
from poskernel_core.analyses.views import PICK, View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import NEGLIGIBLE, brief
from poskernel_core.plotting.layout import visible

MAX_NAMED = 40
"""Letters up to which a list of changed heads is printed."""


def _change(result: Result) -> str:
    params = {name: param(result, name) for name in InterventionParams.model_fields}
    match params["change"]:
        case "average":
            where = "" if params["layer"] is None else f" before layer {params['layer']}"
            return f"Averaging positions in groups of {params['group']}{where}"
        case "blind":
            return f"Cutting out the previous token at one position in {params['every']}"
        case "move":
            return f"Moving the attention of {params['edited'] or params['head']}"
        case "ablate":
            named = params["heads"] if len(params["heads"]) <= MAX_NAMED else "the chosen heads"
            return f"Ablating {named}"
    learned = result.provenance.get("position_scheme", "learned") == "learned"
    kind = {"tokens": "token embeddings"}.get(params["embeddings"], "positional embeddings")
    return f"Removing the {kind if learned or params['embeddings'] == 'tokens' else 'positions'}"


def _loss(result: Result) -> str:
    clean = float(result.values["mean_clean_loss"])
    return _raises(result, number_of(result, "loss_change"), clean)


def _loss_along(result: Result) -> str:
    """The same from the losses of all positions; the first has none."""
    clean, changed = (result.values[f"{run}_loss"][1:] for run in ("clean", "changed"))
    rise = changed - clean
    error = float(rise.std(ddof=1)) / math.sqrt(len(rise)) if len(rise) > 1 else math.nan
    number = Number.within(float(rise.mean()), result.interval * error)
    return _raises(result, number, float(clean.mean()))


def _raises(result: Result, rise: Number, clean: float) -> str:
    if not (turns := rise.sign()):
        return ""
    return (
        f"{_change(result)} {'raises' if turns > 0 else 'lowers'} the loss on this prompt by "
        f"{brief(abs(rise.value))} nats per token, from {brief(clean)} in the clean run."
    )


def _next(result: Result) -> str:
    clean, changed = (result.values[f"{run}_probability"] for run in ("clean", "changed"))
    first, then = int(clean.argmax()), int(changed.argmax())
    words = [f"“{visible(word)}”" for word in result.words("candidates")]
    if not words:
        return ""
    if first == then:
        return (
            f"The likeliest next token stays {words[first]}, with a probability of "
            f"{brief(clean[first])} in the clean run and {brief(changed[first])} in the changed "
            "run."
        )
    return (
        f"The likeliest next token changes from {words[first]} ({brief(clean[first])} in the clean "
        f"run) to {words[then]} ({brief(changed[then])} in the changed run)."
    )


def _masses(result: Result) -> str:
    change = np.abs(result.values["previous_mass_change"])
    if np.isnan(change).all():
        return ""
    top = tuple(map(int, np.unravel_index(np.nanargmax(change), change.shape)))
    if change[top] <= NEGLIGIBLE:
        return "Every head attends to the previous token as in the clean run."
    turned = int((change >= ATTENTION).sum())
    count = (
        f"{turned} heads gain or lose" if turned > 1 else f"{turned or 'No'} head gains or loses"
    )
    clean, changed = (
        brief(result.values[f"{run}_previous_mass"][top]) for run in ("clean", "changed")
    )
    return (
        f"{count} {ATTENTION:g} or more of the attention to the previous token; "
        f"{name_at(result, 'previous_mass_change', top)} changes most, from {clean} in the clean "
        f"run to {changed}."
    )


def _patterns(result: Result) -> str:
    moved = float(np.nansum(np.abs(result.values["difference"]), axis=-1).mean()) / 2
    if moved <= NEGLIGIBLE:
        return f"{who(result)} attends as in the clean run: the change does not reach its pattern."
    return (
        f"{_change(result)} moves {brief(moved)} of {who(result)}'s attention on this prompt, a "
        "mean over its rows, compared with the clean run."
    )


def _averaging(result: Result) -> str:
    sizes = result.coordinates["group"].tolist()
    harm = [number_of(result, "loss_change", place).sign() > 0 for place in range(len(sizes))]
    if not harm[-1]:
        return ""
    first = max((place + 1 for place, raised in enumerate(harm) if not raised), default=0)
    return (
        f"Averaging positions raises the loss from groups of {sizes[first]} on: by "
        f"{brief(result.values['loss_change'][first])} nats, from "
        f"{brief(result.values['loss'][0])} in the clean run."
    )


VIEWS: Views = {
    "intervention": (
        View("loss_change mean_clean_loss []", says=_loss),
        View(
            "clean_probability changed_probability [candidate]",
            next_tokens,
            "the next token",
            says=_next,
            reading="The next token after the prompt: the six likeliest tokens, clean and changed.",
        ),
        View(
            "clean changed difference [query key]",
            patterns,
            says=_patterns,
            reading="The selected head's attention on this prompt: clean, changed, and the "
            "difference (orange: more attention after the change, blue: less).",
        ),
        View(
            "previous_mass_change [layer head]",
            mass_changes,
            "change of the attention to the previous token",
        ),
        View(
            "previous_mass_change clean_previous_mass changed_previous_mass [layer head]",
            says=_masses,
            reading="One cell per head: the change of its mean attention to the previous token on "
            f"this prompt. {PICK}",
        ),
        View(
            "clean_loss changed_loss [pos]",
            losses,
            "loss of each token",
            says=_loss_along,
            reading="Above: the loss at each token of the prompt. Below: the KL divergence of the "
            "next-token distributions. Peaks show where the change matters.",
            explains="kl",
        ),
        View("kl [pos]", kl, "KL(clean ‖ changed)"),
    ),
    "averaging": (
        View(
            "loss loss_change [group]",
            averaging,
            says=_averaging,
            reading="The loss on windows of the corpus if positions are averaged in groups of "
            "growing size; bars are one standard error of the difference from the clean run, "
            "paired over windows. Groups of 5 to 20 hardly affect GPT-2 small.",
        ),
    ),
}
