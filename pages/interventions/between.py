"""Between two prompts, or over a set of pairs: what of their difference each head carries."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from pages.interventions.controls import MAX_CHARACTERS, choose_preset
from pages.shared.cards.metric import draw_metrics
from pages.shared.cards.plain import capital, say, say_error
from pages.shared.cards.show import show
from pages.shared.choices.choices import choose
from pages.shared.choices.fit import (
    choose_one,
    fitted_flag,
    fitted_index,
    fitted_number,
    fitted_text,
    select_one,
)
from pages.shared.grid.measure_grid import Extras, draw_heads
from pages.shared.jobs import results
from pages.shared.jobs.pressed import can_show, nothing_new
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import (
    ROWS_SHOWN,
    errors_line,
    heads_frame,
    linked_table,
    number_columns,
)
from poskernel_core.analyses.base import P, Question
from poskernel_core.analyses.claims import below_the_line
from poskernel_core.analyses.interventions.presets import Preset
from poskernel_core.analyses.patching.pairs import MADE, PairsParams
from poskernel_core.analyses.patching.presets import pairs_for
from poskernel_core.analyses.patching.spec import (
    COUNTS,
    SHARE,
    PatchHeads,
    PatchHeadsParams,
    PatchPositions,
    PatchPositionsParams,
)
from poskernel_core.analyses.patching.tables import COLUMNS, FILES, as_table, decoded
from poskernel_core.analyses.patching.views import no_behaviour, sizes_so_far, so_far, told
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.heads import head_name, layer_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted, value_text
from poskernel_core.export.notebook import DIRECTIONS, METRICS, PARTS, TABLE, WHOLE_LAYER
from poskernel_core.plotting.layout import quoted, visible
from poskernel_core.plotting.shades import diverging

EFFECT: Final = "effect"
OPPOSITE: Final = f"share of pairs in which the effect is −{COUNTS:g} or less"
ONE: Final = "one pair"
SETS: Final[dict[str, str]] = {
    "names": "Two names and one of them again: which one goes on? Names are single tokens of this "
    "model's vocabulary.",
    "copying": "Random tokens twice, up to the last; the changed prompt ends with another of them.",
    "order": "Random tokens and one of them again; in the changed prompt another token has "
    "followed it.",
    "counting": "Numbers or letters in order, and others in order.",
}
EXAMPLE: Final = (
    "clean,changed,answer,other_answer\n"
    "The{who: king} saw the house of the,The{who: man} saw the house of the, king, man"
)


@dataclass
class Fields:
    """The fields of a question about a set: of a model without weights, those of stored answers.

    Attributes:
        stored: the parameters of all answers that are stored; None if any can be computed.
        params: what is chosen.
        single: the words of fields with a single option, which are not drawn.
    """

    stored: Sequence[Any] | None
    params: dict[str, Any] = field(default_factory=dict)
    single: list[str] = field(default_factory=list)

    def options(self, name: str, values: Iterable[Any]) -> list[Any]:
        """Return the values of a parameter that can be chosen, after what is chosen already."""
        if self.stored is None:
            return list(values)
        answers = [dict(answer) for answer in self.stored]
        there = [answer[name] for answer in answers if self.params.items() <= answer.items()]
        return [value for value in values if value in there]

    def choose(
        self, label: str, words: Mapping[str, Any], key: str, name: str, *, place: Any = st
    ) -> None:
        """Draw the choice of the parameter ``name`` by words; ``key`` is that of the address."""
        values = self.options(name, words.values())
        offered = {word: value for word, value in words.items() if value in values}
        word = choose_one(label, offered, key, place=place)
        self.params[name] = offered[word]
        self.single += [word] * (len(offered) == 1)

    def places(self, widths: Sequence[int]) -> list[Any]:
        """Return columns for fields, which are often left out of a model without weights."""
        if self.stored is None:
            return st.columns(widths, vertical_alignment="bottom")
        return [st] * len(widths)


def draw(selection: Selection) -> None:
    """Draw the controls, the map of all heads, and one head or layer by position."""
    kind, fields = choose_kind(selection, PatchHeads, ONE)
    params = _choose(selection, fields) if kind == ONE else _choose_set(kind, fields)
    if params is None:
        return
    heads = _fetch(PatchHeads, selection, PatchHeadsParams(**params))
    if heads is None:
        return
    if kind == ONE:
        _draw_prompts(heads)
    else:
        _draw_set(heads)
    if why := no_behaviour(heads):
        say(f"{why} Choose other prompts or answers.")
        return
    effects = heads.only(*{"effect", "attribution", "opposite"} & heads.values.keys())
    grid = partial(_draw_grid, effects, selection)
    show("patch", effects, f"What each head's {params['what']} carries", grid)
    params.pop("exact", None)
    head = _choose_part(selection, params)
    position_params = PatchPositionsParams(**params, head=head)
    if not (result := _fetch(PatchPositions, selection, position_params)):
        return
    if kind == ONE:
        places = {"positions": result.only("effect", "attribution")}
    else:
        places = {
            "spans": result.only("span_effect", "span_attribution"),
            "pairs": result.only("pair_effect", "pair_difference"),
        }
    both = {"parts": result.only("part_effect")} | places
    figures = {name: partial(figure_of, part) for name, part in both.items()}
    show("patch-positions", result, f"{head} by position", figures=figures)
    if kind != ONE:
        _draw_opposite(result, head)


def choose_kind(
    selection: Selection, question: type[Question[Any]], *others: str
) -> tuple[str, Fields]:
    """Draw the choice of a kind of set, or of others; return it with the question's fields.

    It is empty if nothing is stored and nothing can be computed, which is said.
    """
    fields = fields_of(selection, question)
    kinds = fields.options("maker", SETS)
    if fields.stored is None:
        kinds = [*others, *kinds, TABLE]
    if not kinds:
        say_not_computed(question, selection)
        return "", fields
    return select_one("Pairs of prompts", fitted_index("maker", kinds)), fields


def fields_of(selection: Selection, question: type[Question[Any]], **chosen: Any) -> Fields:
    """Return the fields of a question, of which some are ``chosen``."""
    away = bool(selection.located.away)
    return Fields(results.all_stored(question, selection.run) if away else None, chosen)


def _choose_part(selection: Selection, params: Mapping[str, Any]) -> str:
    """Draw the choice between the head and its layer; return its name."""
    names = {"the head": selection.cell, WHOLE_LAYER: f"L{layer_of(selection.cell)}"}
    there = fields_of(selection, PatchPositions, **params).options("head", names.values())
    words = [word for word, name in names.items() if name in there] or [*names][:1]
    return names[choose_one("By position", words, "patched")]


def _fetch(question: type[Question[P]], selection: Selection, params: P) -> Result | None:
    """Return a result; of a model without weights, say that it is not stored if it is not."""
    if can_show(question, selection.run, params, selection.located):
        return results.fetch(question, selection.run, params)
    say_not_computed(question, selection)
    return None


def say_not_computed(question: type[Question[Any]], selection: Selection) -> None:
    """Say that an answer is not stored of a model without weights, and what to do."""
    st.caption(f"Not computed: {question.noun_phrase}. {nothing_new(selection.located)}")


def _choose(selection: Selection, fields: Fields) -> dict[str, Any] | None:
    """Draw the examples, the two prompts, the metric and what is put where."""
    pairs = pairs_for(selection.run.model.name)
    first, about = choose_preset(selection, pairs, _values, "pair")
    usual, params = _values(first, ""), {}
    for place, (name, label) in zip(
        st.columns(2), (("clean", "Clean prompt"), ("changed", "Changed prompt")), strict=True
    ):
        text = fitted_text(name, usual[name], MAX_CHARACTERS)
        params[name] = place.text_area(label, height=110, **text)
    one, two, three = st.columns([2, 1, 1], vertical_alignment="bottom")
    params["metric"] = METRICS[choose_one("Metric", METRICS, "metric", place=one)]
    hint = "one token, tried with a leading space too; empty: the likeliest after the prompt"
    for place, name, label, used in (
        (two, "answer", "Answer to the clean prompt", params["metric"] != "loss"),
        (three, "other_answer", "to the changed one", params["metric"] == "difference"),
    ):
        if used:
            key = name.replace("_", "")
            text = fitted_text(key, usual[key], 64)
            params[name] = place.text_input(label, help=hint, **text)
    _choose_what(fields)
    params |= fields.params
    about()
    if not params["clean"].strip() or not params["changed"].strip():
        st.info("Type two prompts of equally many tokens, a clean and a changed one.")
        return None
    return params


def _choose_what(fields: Fields) -> None:
    """Draw what is put into the other run, and from which prompt."""
    one, two = fields.places([1, 1])
    fields.choose("Put into the other run", PARTS, "what", "what", place=one)
    fields.choose("Direction", DIRECTIONS, "way", "direction", place=two)


def choose_pairs(kind: str, fields: Fields) -> bool:
    """Draw a maker's size, or a table; return whether there is a set."""
    params = fields.params
    if kind == TABLE:
        left, right = st.columns([3, 2])
        text = left.text_area(
            "Table", height=140, placeholder=EXAMPLE,
            help=f"CSV or JSONL with the columns {', '.join(COLUMNS)}; put texts with commas in "
            "quotes; {name: text} names a span of tokens",
            **fitted_text("pairs", most=MAX_CHARACTERS),
        )  # fmt: skip
        endings = [suffix.removeprefix(".") for suffix in FILES]
        file = right.file_uploader(
            "Or a file", type=endings, key="pairsfile", max_upload_size=1, on_change=type_file
        )
        try:
            table = text if file is None else decoded(file.getvalue())
            if not table.strip():
                st.info(f"Type or drop a table with the columns {', '.join(COLUMNS)}.")
                return False
            params["pairs"] = as_table(table)
        except ValueError as error:
            say_error(capital(f"{error}."))
            return False
        params["skip_bad"] = st.toggle("Leave out rows that cannot be used", **fitted_flag("bad"))
        return True
    left, right = fields.places([1, 3])
    params["maker"] = kind
    if fields.stored is None:
        ends = PairsParams.ends("count")
        params["count"] = left.number_input("Pairs", **fitted_number("count", ends, MADE))
    else:
        counts = fields.options("count", sorted({answer.count for answer in fields.stored}))
        params["count"] = select_one("Pairs", fitted_index("count", counts))
    right.caption(f"{counted(params['count'], 'pair')}. {SETS[kind]}")
    return True


def type_file() -> None:
    """Put a file that fits into the field, and so into the address. A callback."""
    file = st.session_state["pairsfile"]
    with suppress(ValueError):
        if file is not None and len(text := decoded(file.getvalue())) <= MAX_CHARACTERS:
            choose("pairs", text)


def _choose_set(kind: str, fields: Fields) -> dict[str, Any] | None:
    """Draw a set of pairs, the metric, and what is put where; return None without a set."""
    if not kind or not choose_pairs(kind, fields):
        return None
    metrics = {word: code for word, code in METRICS.items() if code != "loss"}
    one, two = fields.places([2, 1])
    fields.choose("Metric", metrics, "metric", "metric", place=one)
    _choose_what(fields)
    first, *others = fields.options("exact", ("largest", "all"))
    if others and two.toggle("Exact effects of all heads", **fitted_flag("exact", False)):
        first = "all"
    if fields.single:
        st.caption(f"Stored: {', '.join(fields.single)}.")
    return fields.params | {"exact": first}


def _values(preset: Preset, cell: str) -> dict[str, Any]:
    """Return the values of all widgets for a pair of prompts."""
    return {
        "clean": preset.prompt,
        "changed": preset.params["changed"],
        "answer": preset.params["answer"],
        "otheranswer": preset.params["other_answer"],
        "metric": next(iter(METRICS)),
    }


def _draw_prompts(heads: Result) -> None:
    """Draw both prompts' tokens, aligned, and their metrics."""
    rows = {"clean": heads.words("tokens"), "changed": heads.words("changed_tokens")}
    pairs = enumerate(zip(*rows.values(), strict=True))
    names = [f"{at} ≠" if one != other else str(at) for at, (one, other) in pairs]
    table = pd.DataFrame([[*map(visible, row)] for row in rows.values()], [*rows], names)
    st.dataframe(table, key="aligned")
    meaning = ", ".join([heads.params["metric"] + " (nats)", *map(quoted, heads.words("answers"))])
    names_of = {"Clean prompt": "clean_metric", "Changed prompt": "changed_metric"}
    draw_metrics([(label, value_text(heads, name), meaning) for label, name in names_of.items()])


def _draw_set(heads: Result) -> None:
    """Draw the mean metrics of a set, and how many pairs are used."""
    of = f"{heads.params['metric']}, mean over the pairs (nats)"
    names = {"Clean prompts": "clean_metric", "Changed prompts": "changed_metric"}
    used, bad = (int(heads.values[name]) for name in ("pairs", "bad_rows"))
    others = left_out(heads) + (f"; {bad:,} could not be used" if bad else "")
    draw_metrics(
        [(label, value_text(heads, name), of) for label, name in names.items()]
        + [("Difference", value_text(heads, "difference"), "what effects are shares of (nats)")]
        + [("Pairs", f"{used:,}", others)]
        + [
            (
                "Estimates",
                brief(float(heads.values["agreement"])),
                "rank correlation with exact effects",
            )
        ]
    )
    errors_line(heads)


def left_out(result: Result) -> str:
    """Return how many pairs of a set are left out, and why."""
    return (
        f"{int(result.values['left_out']):,} left out: the clean prompt is not 0.1 nats above the "
        "changed one"
    )


def _draw_opposite(result: Result, head: str) -> None:
    """Draw the pairs in which a head does the opposite, the strongest first."""
    moved, of = result.values["pair_effect"], result.values["pair_difference"]
    share = moved / of
    order = [int(at) for at in np.argsort(share, kind="stable") if share[at] <= -COUNTS]
    if not order:
        st.caption(f"In no pair does {head} carry −{COUNTS:g} of the difference or less.")
        return
    st.caption(f"{head} does the opposite in {len(order):,} of {counted(len(of), 'pair')}.")
    words = result.words("pair")
    columns = {"pair": [visible(words[at]) for at in order], EFFECT: share[order]}
    linked_table(pd.DataFrame(columns), "opposite", number_columns({EFFECT: SHARE}, "%.3f"))


def _draw_grid(effects: Result, selection: Selection) -> None:
    """Draw every head's effect, or its estimate, and the largest; a click selects the head."""
    values, exact, words = so_far(effects), ~np.isnan(effects.values["effect"]), told(effects)
    estimated = ~exact & ~np.isnan(values)
    labels = [
        [f"{head_name(i, j)}: {brief(value)} ({words[i, j]})" for j, value in enumerate(row)]
        for i, row in enumerate(values)
    ]
    marks = [["≈" if flag else "" for flag in row] for row in estimated]
    glyphs = [("≈", "first-order estimate")] if estimated.any() else []
    grid, beside = st.columns([3, 2])
    with grid:
        extras = Extras(marks=marks, glyphs=glyphs)
        draw_heads(diverging(values), labels, SHARE, selection, "patch-grid", extras)
    columns = {EFFECT: values, "": np.where(exact, "", "≈")}
    if "effect" in effects.errors:
        both = effects.errors["effect"], effects.errors["attribution"]
        columns |= {"± 1 s.e.": np.where(exact, *both), "opposite": effects.values["opposite"]}
    table = heads_frame(columns).dropna(subset=[EFFECT])
    table = table.sort_values(EFFECT, key=abs, ascending=False, kind="stable")
    heads = [divmod(int(row), values.shape[1]) for row in table.index]
    others = below_the_line(sizes_so_far(effects), heads, ROWS_SHOWN)
    with beside:
        st.caption("The largest effects" + (f" ({others})" if others else ""))
        meanings = {EFFECT: SHARE, "± 1 s.e.": "over the pairs", "opposite": OPPOSITE}
        known = {name: meaning for name, meaning in meanings.items() if name in columns}
        largest = table[:ROWS_SHOWN]
        if (largest[""] == "").all():
            largest = largest.drop(columns="")
        linked_table(largest, "patch-largest", number_columns(known, "%.3f"))
