"""The controls of the pages on contextual heads and neurons."""

from typing import Any

import streamlit as st

from pages.shared.choices.fit import fitted, fitted_list, fitted_number, fitted_text
from pages.shared.selection.source import MAX_TYPED, named_token
from poskernel_core.analyses.contextual_heads.spec import Thresholds
from poskernel_core.common.groups import in_equal_groups
from poskernel_core.common.specs import ModelSpec
from poskernel_core.data import texts

CONTEXT_COUNTS = (8, 16, 32, 64, 128, 256)
DEFAULT_THRESHOLDS = {name: field.default for name, field in Thresholds.model_fields.items()}


def choose_token(place: Any, model: ModelSpec) -> str:
    """Draw the field for the destination token; an empty field is the default token."""
    return named_token(
        place,
        model,
        "Destination token",
        "exactly one token of the model, with its leading space; it is put at position n of "
        "every window",
    )


def choose_first_windows(place: Any, default: int, most: int) -> int:
    """Draw the number of windows, as it is read: equally many of each group of texts."""
    offered = [count for count in CONTEXT_COUNTS if count <= most] or [most]
    return place.select_slider(
        "First windows",
        help="windows of the corpus, equally many of each group of texts, into each of which the "
        "token is put",
        format_func=lambda count: f"{in_equal_groups(count):,}",
        **fitted("firstwindows", offered, min(default, offered[-1]), (offered[0], most)),
    )


def choose_thresholds(longest: int) -> dict[str, float]:
    """Draw the thresholds of the behaviour groups."""

    def share(label: str, high: float, name: str, key: str, step: float = 0.05) -> float:
        ends, default = Thresholds.ends(name), DEFAULT_THRESHOLDS[name]
        return st.slider(label, step=step, **fitted_number(key, ends, default, (0.0, high)))

    broad = st.slider(
        "Effective token count from which a kernel is broad",
        **fitted("broad", range(1, longest + 1), min(int(DEFAULT_THRESHOLDS["broad"]), longest)),
    )
    steady = "Largest coefficient of variation of a steady denominator"
    local = "Mass in the last 10 tokens that makes a kernel local"
    duplicates = "Attention to duplicates that makes a duplicate-token head"
    return {
        "broad": float(broad),
        "steady": share(steady, 2.0, "steady", "steady", 0.01),
        "local": share(local, 1.0, "local", "dlocal"),
        "duplicates": share(duplicates, 1.0, "duplicates", "duplicates"),
    }


def choose_texts() -> dict[str, Any]:
    """Draw the choice of chapters and own texts; return it as parameters."""
    left, right = st.columns(2)
    items = left.multiselect(
        "Chapters drawn alongside",
        placeholder="choose one or more",
        max_selections=6,
        **fitted_list("chapters", texts.items("bible")),
    )
    own = right.text_area(
        "Texts of your own",
        height=80,
        placeholder="Several: put a line of three dashes between them.",
        **fitted_text("owntexts", most=MAX_TYPED),
    )
    return {"items": "; ".join(items), "own_texts": own or ""}
