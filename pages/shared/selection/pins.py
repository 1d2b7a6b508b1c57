"""Pinned heads: kept for the session and in every link."""

from dataclasses import dataclass, replace
from typing import Final

import streamlit as st

from pages.instrument.run import MAX_RUN
from pages.shared.cards.plain import plain
from pages.shared.choices.choices import choose, chosen, fit
from pages.shared.jobs import results
from pages.shared.selection.head_link import page_link
from pages.shared.selection.host import offered
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.comparison.pins import (
    MAX_PINS,
    Pin,
    nearest_position,
    pinned_run,
    read_pins,
    write_pins,
)
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import RunSpec
from poskernel_core.data.texts import offered_corpora
from poskernel_core.models import catalog

PARAMETER: Final = "pins"
MAX_TOLD: Final = 4
HELP: Final = f"the page «Compare» compares up to {MAX_PINS} heads of any models"
REFUSED: Final = "pins-refused"


@dataclass(frozen=True)
class PinnedHead:
    """A valid pin, and the run of its head."""

    pin: Pin
    run: RunSpec


def keep_pins(compared: bool) -> None:
    """Read the pins of a link; call this on every page before the page is drawn.

    A toast reports invalid pins, except on the page that compares pins, which says more.
    """

    def read(texts: tuple[str, ...]) -> str:
        refused: list[str] = []
        st.session_state[REFUSED] = refused
        pins_text = write_pins(_valid(texts[-1], refused))
        if refused and not compared:
            st.toast(
                "Some pins of the link are invalid: the page «Compare» says why.",
                icon=":material/link_off:",
                duration="long",
            )
        return pins_text

    fit(PARAMETER, "", read, told=False)


def kept_pins() -> tuple[list[PinnedHead], list[str]]:
    """Return the valid pins, and a sentence for each invalid one."""
    kept, refused = [], list(st.session_state.get(REFUSED, []))
    for pin in _pins():
        try:
            kept.append(PinnedHead(pin, _run_of(pin)))
        except BadRequest as error:
            refused.append(f"The pinned head {pin} is left out. {error}")
    return kept, refused


def pin_of(selection: Selection, cell: str = "") -> Pin:
    """Return the pin of a head of the selected run, by default of the selected head."""
    return Pin.of(cell or selection.cell, selection.run, selection.located.geometry.usual_context)


def pinned_cells(selection: Selection) -> list[str]:
    """Return the names of the pinned heads of the selected run."""
    return [pin.cell for pin in _pins() if pin == pin_of(selection, pin.cell)]


def of_run(pin: Pin) -> str:
    """Return the model and run of a pinned head in words."""
    return " ".join(filter(None, [catalog.title_here(pin.model), pin.settings]))


def add_pins(*pins: Pin) -> None:
    """Pin heads; if there are too many, unpin the oldest. A callback."""
    together = list(dict.fromkeys([*_pins(), *pins]))
    _keep(together[-MAX_PINS:])


def remove_pin(pin: Pin) -> None:
    """Unpin a head. A callback."""
    _keep([pinned for pinned in _pins() if pinned != pin])


def remove_all() -> None:
    """Unpin every head, and forget invalid pins. A callback."""
    st.session_state[REFUSED] = []
    _keep([])


def pin_button(selection: Selection, key: str) -> None:
    """Draw the button that pins a head, or unpins it."""
    pin = pin_of(selection)
    pinned = pin in _pins()
    st.button(
        f"Unpin {pin.cell}" if pinned else f"Pin {pin.cell}",
        key=key,
        icon=":material/keep_off:" if pinned else ":material/keep:",
        on_click=remove_pin if pinned else add_pins,
        args=(pin,),
        help=HELP,
    )


def compare_link() -> None:
    """Draw a link to the page that compares the pinned heads, if there are any."""
    if pins := _pins():
        words = f"Compare pinned heads ({len(pins)})"
        st.markdown(page_link("compare", words), width="content")


def _pins() -> list[Pin]:
    return list(read_pins(text)) if (text := chosen(PARAMETER, "")) else []


def _keep(pins: list[Pin]) -> None:
    choose(PARAMETER, write_pins(pins))


def _valid(link_value: str, refused: list[str]) -> list[Pin]:
    """Return the pins of a link, and add a sentence for each invalid one to ``refused``."""
    pins: dict[Pin, None] = {}
    for text in link_value.split(","):
        try:
            parsed = read_pins(text)
            if any(not pin.model for pin in parsed):
                raise BadRequest(
                    f"A pinned head of a link needs a model, such as {text[:40]}@gpt2."
                )
            pins |= dict.fromkeys(parsed)
        except BadRequest as error:
            refused.append(str(error))
    if len(pins) > MAX_PINS:
        refused.append(f"The link pins more than {MAX_PINS} heads: the first {MAX_PINS} are shown.")
    return list(pins)[:MAX_PINS]


def _run_of(pin: Pin) -> RunSpec:
    """Return the run of a pin, if this server offers it.

    Raises:
        BadRequest: the model, corpus or length is not offered, or there is no such head.
    """
    if not offered(pin.model):
        raise BadRequest("Its model is not offered here: choose one in the sidebar.")
    if pin.corpus not in offered_corpora():
        raise BadRequest(
            f"Its corpus is not offered here: expected one of {', '.join(offered_corpora())}."
        )
    if pin.windows > MAX_RUN:
        raise BadRequest(f"It asks for {pin.windows} windows of text: up to {MAX_RUN} are offered.")
    results.check_revision(pin.model, pin.revision)
    return pinned_run(pin, find=results.located)


def refusals(refused: list[str]) -> None:
    """Say in one box why pins are invalid; show only the first few of many sentences."""
    if refused:
        lines = [plain(refusal) for refusal in dict.fromkeys(refused)]
        if len(lines) > MAX_TOLD:
            lines[MAX_TOLD:] = [f"{len(lines) - MAX_TOLD} more pins of the link are left out."]
        text = lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)
        st.warning(text, icon=":material/link_off:")


def with_model(selection: Selection, name: str) -> Selection:
    """Return the selection in another model: same corpus, windows and, if chosen, context.

    Raises:
        PosKernelError: the model is not available.
    """
    run = selection.run
    located = results.located(name, None)
    first = located.geometry.with_heads[0]
    usual = run.context == selection.located.geometry.usual_context
    context = None if usual else min(run.context, located.geometry.n_ctx)
    pin = Pin(
        f"L{first}H0", name, None, run.corpus.name, context, run.windows, run.start_token, run.dtype
    )
    its = pinned_run(pin, find=results.located)
    query = nearest_position(its, selection.query)
    return replace(selection, located=located, run=its, layer=first, head=0, query=query)
