"""Results that are computed only when a reader presses a button."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import streamlit as st

from pages.shared.cards.embed import in_place_of
from pages.shared.choices.choices import address
from pages.shared.jobs import results
from poskernel_core.analyses.base import P, Question
from poskernel_core.common.result import Result
from poskernel_core.common.specs import RunSpec
from poskernel_core.engine.admission import computes
from poskernel_core.models.catalog import Located
from poskernel_core.models.curated import BUNDLED_MODELS

WANTED: Final = "wanted-results"
NOTHING_NEW: Final = "This server shows what was computed before and computes nothing new."


def fetch_when_asked(
    question: type[Question[P]],
    run: RunSpec,
    params: P,
    key: str,
    *cards: str,
    left: str = "",
    meanwhile: Callable[[], None] | None = None,
) -> Result | None:
    """Return a result if it is stored or has been asked for; otherwise offer to compute it.

    It has been asked for if it is being computed, by whoever wants it. ``key`` is unique on the
    page: "compute-" and the name of the card that shows the result, if no other ``cards`` do.
    Where another result shows a part, ``meanwhile`` draws that, and ``left`` says what is missing.
    """
    result = None
    with results.refusals_shown(question):
        plan = results.plan(question, run, params)
        job = results.engine().running(plan)
        computed = job is not None and not job.ended
        asked_for = results.engine().ready(plan) or computed or is_wanted(plan.key)
        if asked_for:
            result = results.fetch(question, run, params)
        if result is None and meanwhile is not None:
            meanwhile()
        if not asked_for:
            with in_place_of(*(cards or [key.removeprefix("compute-")])):
                located = results.located(run.model.name, run.model.revision)
                offer(left or question.noun_phrase, "Compute it", key, plan.key, located=located)
    return result


def fetch_known(
    question: type[Question[P]], run: RunSpec, params: P, missing: Sequence[str], key: str
) -> Result | None:
    """Return a composition: whole if it is there or asked for under ``key``, else what is known.

    Its parameters say what to ``leave_out``: what is ``missing``.
    """
    if not missing or is_wanted(key):
        result = results.fetch(question, run, params)
        if result is not None or not missing:
            return result
    part = params.model_copy(update={"leave_out": ",".join(missing)})
    return results.fetch(question, run, part)


def nothing_new(located: Located) -> str:
    """Return why nothing can be computed of a model, and what to do, in Markdown; else empty."""
    if not computes():
        return NOTHING_NEW
    if not located.away:
        return ""
    kept = {key: value for key, value in address().items() if key not in ("head", "query")}
    other = next(iter(BUNDLED_MODELS))
    link = f"[{other}](?{urlencode(kept | {'model': other}, doseq=True)})"
    return f"Only its results are here. To compute more, {located.away}. {link} computes here."


def can_show(question: type[Question[P]], run: RunSpec, params: P, located: Located) -> bool:
    """Tell whether an answer is stored, or the model's weights are here."""
    return not located.away or results.engine().ready(results.plan(question, run, params))


def offer(what: str, label: str, button: str, *keys: str, located: Located) -> None:
    """Say what of a model is not computed yet, with a button that asks for it under ``keys``.

    Where nothing new can be computed, it says why in place of the button. ``what`` is Markdown;
    ``button`` is the button's widget key.
    """
    if why := nothing_new(located):
        st.caption(f"Not computed: {what}. {why}")
        return
    row = st.container(horizontal=True, vertical_alignment="center", key=f"offer-{button}")
    row.caption(f"Not computed yet: {what}.", width="content")
    with row:
        compute_button(label, button, want, *keys, help="the model runs: it may take minutes")


def compute_button(
    label: str, key: str, on_click: Callable[..., None], *arguments: Any, help: str | None = None
) -> None:
    """Draw a button that starts a computation: ``on_click`` gets the ``arguments``."""
    icon = ":material/play_arrow:"
    st.button(label, key=key, icon=icon, on_click=on_click, args=arguments, help=help)


def is_wanted(key: str) -> bool:
    """Tell whether this reader has asked for a computation."""
    return key in st.session_state.get(WANTED, ())


def want(*keys: str) -> None:
    """Note that this reader asks for computations. A callback."""
    st.session_state[WANTED] = {*st.session_state.get(WANTED, ()), *keys}
