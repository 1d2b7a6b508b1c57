"""The controls of the pages on random tokens."""

from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from pages.shared.choices.fit import fitted, fitted_flag, fitted_index, fitted_list, fitted_number
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.induction.spec import PairsParams
from poskernel_core.analyses.random_tokens.params import SAMPLE_COUNTS, first_samples
from poskernel_core.common.heads import head_name
from poskernel_core.common.specs import RunSpec

MIN_CONTEXT = 11
ABLATIONS: Final[dict[str, str]] = {"zero ablation": "zero", "uniform attention": "uniform"}


@dataclass(frozen=True)
class Draws:
    """The random sequences: the run with its start token and seed, and their number."""

    run: RunSpec
    samples: int


def enough_context(selection: Selection) -> bool:
    """Tell whether the model's context is long enough for the experiments; say so if not."""
    longest = selection.located.geometry.n_ctx
    if longest < MIN_CONTEXT:
        st.info(f"The model reads {longest} tokens; these experiments need {MIN_CONTEXT} or more.")
    return longest >= MIN_CONTEXT


def choose_draws(selection: Selection, default: int) -> Draws:
    """Draw the number of samples (fewer by default for large models), the seed, the start token."""
    first = first_samples(default, selection.located.geometry)
    one, two, three = st.columns([2, 1, 2], vertical_alignment="bottom")
    samples = one.select_slider(
        "Random sequences averaged over",
        help="errors fall with the square root of this number",
        **fitted("samples", SAMPLE_COUNTS, first, PairsParams.ends("samples")),
    )
    seed = two.number_input(
        "Seed",
        help="the same seed draws the same tokens",
        **fitted_number("seed", (0, 10_000), 0),
    )
    start = three.toggle(
        "Start token first",
        help="judging by its figures, the recency post used none",
        **fitted_flag("rstart", True),
    )
    run = selection.run.model_copy(update={"seed": int(seed), "start_token": start})
    return Draws(run, samples)


def choose_number(place: Any, label: str, options: range, key: str, default: int) -> int:
    """Draw a field for a whole number; one that no longer fits moves to the nearest that does."""
    nearest = min(max(default, options[0]), options[-1])
    return int(place.number_input(label, **fitted(key, options, nearest)))


def choose_sequences(selection: Selection, draws: Draws) -> dict[str, Any]:
    """Draw the length, the first pair's position and the number of candidates."""
    (least, most), farthest = PairsParams.ends("length"), PairsParams.ends("first")[1]
    longest = min(most, selection.located.geometry.n_ctx)
    one, two, three = st.columns(3)
    candidates = three.number_input(
        "Candidates",
        help="two: [A][B] … [A][C] … [A]; three: [A][B] [A][C] … [A][D] … [A]",
        **fitted_number("candidates", PairsParams.ends("candidates"), 2),
    )
    fewest = 2 * candidates + 1 + draws.run.start_token
    lengths = range(max(least, fewest), longest + 1)
    length = choose_number(one, "Length (tokens)", lengths, "length", 13)
    places = range(int(draws.run.start_token), min(length - 2 * candidates, farthest + 1))
    first = choose_number(two, "Position of the first [A] (tokens)", places, "first", 2)
    return {"length": length, "first": first, "candidates": candidates}


def choose_switches(selection: Selection) -> dict[str, Any]:
    """Draw which parts of the model are ablated."""
    heads = [head_name(0, head) for head in range(selection.located.geometry.n_heads)]
    with st.expander("Switches: parts of the model turned off", icon=":material/toggle_off:"):
        left, right = st.columns([3, 2], vertical_alignment="bottom")
        ablated = left.multiselect(
            "Ablated heads of layer 0",
            help="the post keeps only one head of layer 0 and finds the same trend",
            **fitted_list("ablated0", heads),
        )
        how = next(iter(ABLATIONS))
        if ablated:
            how = right.selectbox(
                "Ablation",
                help="the heads' output becomes zero, or their attention uniform over visible keys",
                **fitted_index("ablation", ABLATIONS),
            )
        one, two = st.columns(2)
        without = one.toggle(
            "Remove positions",
            help="positional embeddings set to zero; rotary models: no rotation",
            **fitted_flag("nopos"),
        )
        equalise = two.toggle(
            "Equalise layer 0's head-output norms",
            help="the output of every head of layer 0 is rescaled to one norm at all positions",
            **fitted_flag("equalise"),
        )
    return {
        "ablate": ", ".join(ablated),
        "ablation": ABLATIONS[how],
        "no_positions": without,
        "equalise_norms": equalise,
    }
