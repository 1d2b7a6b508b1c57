"""Methods: every definition, and the reproduction ledger."""

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import streamlit as st

from pages.shared.cards.explained import sections
from pages.shared.cards.plain import plain, say
from pages.shared.choices.fit import choose_one, fitted_flag, fitted_index
from pages.shared.jobs import results
from pages.shared.jobs.jobs import follow
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import linked_table
from poskernel_core.analyses.definitions import Method, methods
from poskernel_core.common import plugins
from poskernel_core.common.errors import Cancelled, PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import NO_NUMBER
from poskernel_core.engine.admission import computes
from poskernel_core.ledger.compare import (
    Checked,
    brief,
    check,
    near_text,
    not_computed,
    tolerance_text,
)
from poskernel_core.ledger.published import PublishedFigure, figures_of, flat, known_models
from poskernel_core.ledger.reproduce import published_name, request_for

MARKS = {
    "agrees": "✓ agrees",
    "differs": "✗ differs",
    "undecided": "? undecided",
    "not computed": "– not computed",
}
NOT_YET = "not computed yet"


def draw_ledger(selection: Selection) -> None:
    """Draw the published figures of a model, and ours if asked for."""
    model = selection.run.model.name
    known = known_models()
    own = published_name(model)
    names = offered_names(model, own)
    chosen = st.selectbox(
        "Figures published for",
        help="choose another name if the selected model is a copy of that model",
        **fitted_index("published", names, own),
    )
    figures = figures_of(chosen)
    if not figures:
        st.info(
            f"No figures were published for {plain(chosen)}; there are some of "
            f"{', '.join(map(plain, known))}. If this model is a copy of one of them, choose its "
            "name above; otherwise select one of them as the model (this needs the hub)."
        )
        return
    if own == chosen != model:
        say(
            f"{model} is a part of {own}. Figures that need the rest are not computed, and their "
            "lines say so."
        )
    elif chosen != model:
        st.warning(
            f"Computed on {plain(model)}, published for {plain(chosen)}: expect agreement only if "
            "one is a copy of the other.",
            icon=":material/warning:",
        )
    compute = st.toggle(
        f"Compute all {len(figures)} figures on this machine"
        if computes()
        else "Show what was computed on this machine",
        help="every value of ours is computed on this machine",
        **fitted_flag("compute"),
    )
    lines = _computed(figures, selection) if compute else {}
    _draw_table(figures, lines)
    _draw_details(figures, lines)


def offered_names(model: str, own: str) -> list[str]:
    """Return the names to choose figures by: the model's, its original's, and all others."""
    taken = [figures_of(name) for name in (model, own)]
    others = (name for name in known_models() if figures_of(name) not in taken)
    return list(dict.fromkeys((model, own, *others)))


def _computed(figures: tuple[PublishedFigure, ...], selection: Selection) -> dict[str, Checked]:
    """Return the computed lines; draw the progress of the first line that is being computed."""
    run = selection.run
    fields = {
        "revision": run.model.revision,
        "corpus": run.corpus,
        "windows": run.windows,
        "context": run.context,
        "start_token": run.start_token,
        "dtype": run.dtype,
    }
    lines: dict[str, Checked] = {}
    for figure in figures:
        try:
            answer = results.ask(request_for(figure, run.model.name, **fields))
        except PosKernelError as error:
            lines[figure.id] = not_computed(figure, error)
            continue
        if isinstance(answer, Result):
            lines[figure.id] = check(figure, answer)
        elif answer.error is not None and not isinstance(answer.error, Cancelled):
            lines[figure.id] = not_computed(figure, answer.error)
        else:
            st.progress(len(lines) / len(figures), f"{len(lines)} of {len(figures)} figures")
            follow(results.engine(), answer)
            break
    return lines


def _draw_table(figures: tuple[PublishedFigure, ...], lines: dict[str, Checked]) -> None:
    rows = [_row(figure, lines.get(figure.id)) for figure in figures]
    linked_table(pd.DataFrame(rows), "ledger-table", height="content")
    if lines:
        text = json.dumps([line.as_json() for line in lines.values()], indent=1)
        st.download_button(
            "Download the ledger (JSON)",
            text,
            "ledger.json",
            icon=":material/download:",
            mime="application/json",
        )


def _row(figure: PublishedFigure, line: Checked | None) -> dict[str, Any]:
    return {
        "verdict": NOT_YET if line is None else MARKS[line.verdict],
        "published figure": figure.figure,
        "published": brief(figure.published),
        "ours": "" if line is None or line.ours is None else brief(line.ours, line.errors),
        "tolerance": tolerance_text(figure),
        "difference": "" if line is None else near_text(line),
        "source": figure.source,
        "why not": "" if line is None else line.why,
    }


def _draw_details(figures: tuple[PublishedFigure, ...], lines: dict[str, Checked]) -> None:
    """Draw every number of one figure: published, ours, and its error."""
    names = [figure.id for figure in figures]
    chosen = st.selectbox("Numbers of", **fitted_index("ledgerid", names, names[0]))
    figure = next(candidate for candidate in figures if candidate.id == chosen)
    line = lines.get(chosen)
    st.caption(f"{figure.figure}. {plain(figure.note)} Computed by {_asked(figure)}.")
    if line is not None and line.why:
        st.info(plain(line.why))
    st.dataframe(_numbers(figure, line), key="ledger-numbers", placeholder=NO_NUMBER)


def _asked(figure: PublishedFigure) -> str:
    """Return a figure's question, and its settings of run and parameters."""
    parts = [f"the question `{figure.question}`"]
    for what, fields in (("run", figure.run), ("parameters", figure.params)):
        if fields:
            settings_text = ", ".join(f"{name} {value}" for name, value in fields.items())
            parts.append(f"{what}: `{settings_text}`")
    return "; ".join(parts)


def _numbers(figure: PublishedFigure, line: Checked | None) -> pd.DataFrame:
    columns: dict[str, object] = {"published": figure.published}
    if line is not None and line.ours is not None:
        ours, errors = flat(line.ours), flat(line.errors)
        rounded = [brief(number, error) for number, error in zip(ours, errors, strict=True)]
        columns |= {"ours": line.ours if line.errors is None else rounded}
    table = pd.DataFrame({name: pd.Series(flat(column)) for name, column in columns.items()})
    return table.set_axis(list(figure.heads), axis="index") if figure.heads else table


ALL = "all"


def draw_plugins() -> None:
    """Say what other installed packages add, and what of it could not be loaded."""
    for plugin in plugins.PLUGINS:
        if plugin.problem:
            say(f"{plugin.package} is left out ({plugin.name}): {plugin.problem}")
        else:
            kind = "page" if plugin.group == plugins.PAGES else "question"
            gives = " and ".join(f"the {kind} {name}" for name in plugin.gives)
            st.markdown(f":small[{plain(f'{plugin.package} adds {gives}.')}]")


def draw_definitions() -> None:
    """Draw the definitions, each in a fold, all in one element; a link may open one of them."""
    definitions = methods()
    names = [ALL, *(method.name for method in definitions)]
    chosen = st.selectbox("Definition", **fitted_index("method", names))
    parts = []
    for heading, runs in (
        ("Read from the statistics of a pass", False),
        ("Run the model again", True),
    ):
        listed = [m for m in definitions if m.runs_model == runs and chosen in (ALL, m.name)]
        if listed:
            parts.append(f"### {heading}")
            parts += [_fold(method, opened=chosen != ALL) for method in listed]
    st.markdown("\n\n".join(parts), unsafe_allow_html=True)  # docstrings, of nobody else


def _fold(method: Method, *, opened: bool) -> str:
    title = f"**{method.title}** (`{method.name}`): {method.summary}"
    parts = [f"<details{' open' * opened}><summary>", title, "</summary>", *_paragraphs(method)]
    return "\n\n".join([*parts, "</details>"])


def _paragraphs(method: Method) -> Iterator[str]:
    yield method.about
    yield "**Values**\n\n" + "\n".join(f"- {value}" for value in method.values)
    yield from sections(method)
    if method.params:
        rows: list[tuple[str, ...]] = [
            ("**Parameters**", "default", "bounds", "meaning"),
            ("---",) * 4,
        ]
        rows += [tuple(plain(cell).replace("\n", " ") for cell in row) for row in method.params]
        yield "\n".join(f"| {' | '.join(row)} |" for row in rows)
    yield f"```bash\npython -m poskernel_core show {method.name} MODEL\n```"


PLACE = Place(
    "Methods",
    "What every number means, and how the published ones compare with ours.",
)

TABS = ("Definitions", "Reproduction ledger")


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    part = choose_one("Part", TABS, "part", label_visibility="collapsed")
    if part == TABS[0]:
        st.markdown(
            "What every number means, from the docstrings of the code that computes it. Shapes are "
            "in brackets; `n` is the query position, `i` the key position. Intervals are for a "
            "number of windows that was chosen beforehand: looking again and again while results "
            "form makes them a little too narrow."
        )
        draw_plugins()
        draw_definitions()
    else:
        st.markdown(
            "Figures published in the posts and in the literature, next to the same figures "
            "computed on this machine. A figure agrees if each of its numbers differs from the "
            "published one by no more than the tolerance plus half the width of our 95 % interval."
        )
        draw_ledger(selection)
