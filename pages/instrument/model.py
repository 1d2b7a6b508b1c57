"""Which model is shown: the reader's choice, its checkpoint, and one line on what it is."""

from typing import Any, Final

import streamlit as st

from pages.instrument.lending import lent_on, model_wanted
from pages.instrument.run import RESULTS_ALONE
from pages.shared.cards.plain import plain
from pages.shared.choices.fit import fitted_index, fitted_text
from pages.shared.jobs import results
from pages.shared.jobs.pressed import compute_button, is_wanted, want
from pages.shared.selection.host import any_model
from pages.shared.selection.place import Place
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.rounding import counted
from poskernel_core.engine.admission import computes
from poskernel_core.models import catalog
from poskernel_core.models.catalog import Located

AWAY: Final = " (on the hub)"
"""Follows the title of a model that has to be downloaded first."""


def choose_model(place: Place) -> Located:
    """Draw the choice of a model and checkpoint, and what the model is.

    Raises:
        PageStopped: the model is not available.
    """
    names = [entry.name for entry in catalog.entries()]
    free = any_model()
    requested = model_wanted()
    options = names if requested in names else [*names, requested]
    titles = {option: catalog.title_here(option) for option in options}
    away = catalog.to_download(options)
    labels = {option: title + AWAY * (option in away) for option, title in titles.items()}
    name: Any = st.selectbox(
        "Model",
        format_func=lambda model_name: labels.get(model_name) or catalog.title_here(model_name),
        accept_new_options=free,
        help="or type a hub name, directory or GGUF file"
        if free
        else "the host chooses the models",
        **fitted_index("model", options, names[0], lent=lent_on(place)),
    )
    if name not in names and not free:
        offered = ", ".join(titles[option] for option in names)
        results.stop(
            f"The link asks for model {name!r}, which is not offered here. Choose one in the "
            f"sidebar: {offered}. The host of this server can add models with POSKERNEL_MODELS, or "
            "allow all with POSKERNEL_ALLOW_ANY_MODEL=1."
        )
    revision = _checkpoint(name) if catalog.is_local(name) else _revision(name)
    try:
        located = results.located(name, revision)
    except BadRequest as error:
        results.stop(str(error))
    _say_what_it_is(located)
    if name not in names:
        _ask_before_a_download(located)
    return located


def _ask_before_a_download(located: Located) -> None:
    """Say how much a typed model downloads, and wait for the reader's consent."""
    key = f"download {located.spec.name} {located.spec.fingerprint}"
    if is_wanted(key) or not computes():
        return
    try:
        size = catalog.download_bytes(located)
    except BadRequest as error:
        results.stop(str(error))
    if size:
        much = f"{max(size / 1e6, 1):,.0f} MB"
        compute_button(f"Download {much}", "download", want, key)
        results.stop(
            f"The weights of {located.spec.name!r} are not on this machine. They take {much}: "
            "«Download» in the sidebar fetches them from the hub."
        )


def _revision(name: str) -> str | None:
    typed = st.text_input(
        "Revision",
        placeholder="main",
        help="hub revision or training checkpoint",
        **fitted_text("revision", most=64),
    )
    revision = typed.strip() or None
    try:
        results.check_revision(name, revision)
    except BadRequest as error:
        results.stop(str(error))
    return revision


def _checkpoint(name: str) -> str | None:
    """Draw the checkpoints of a directory, if it has any; the last one is the default."""
    try:
        run = results.training(name)
    except BadRequest as error:
        results.stop(str(error))
    if run is None:
        return None
    names = [checkpoint.revision for checkpoint in run.checkpoints]
    chosen: str = st.selectbox(
        "Checkpoint",
        help="the model at that step of its training",
        **fitted_index("checkpoint", names, names[-1]),
    )
    return chosen


def _say_what_it_is(located: Located) -> None:
    geometry = located.geometry
    text = (
        f"{counted(geometry.n_layers, 'layer')} × {counted(geometry.n_heads, 'head')}, "
        f"{geometry.scheme} positions, context {geometry.n_ctx:,}."
    )
    if geometry.reasons:
        why = "; ".join(dict.fromkeys(geometry.reasons.values()))
        text += f" {counted(len(geometry.reasons), 'layer')} without heads ({why})."
    if located.spec.tokenizer:
        text += f" Its tokenizer: {plain(located.spec.tokenizer)}."
    st.caption(text)
    if located.away:
        help_text = f"{RESULTS_ALONE}. To compute more, {located.away}."
        st.caption(":material/inventory_2: Stored results only", help=help_text)


def draw_note(model: str) -> None:
    """Say if a model is constructed, partial or quantised; else keep that place."""
    if note := catalog.note_of(model):
        st.caption(f":material/info: {plain(note)}")
    else:
        st.empty()
