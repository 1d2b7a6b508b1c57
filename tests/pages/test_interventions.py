"""The interventions page as a script: presets, moves of one's own, prompts of every length."""

import re
from io import BytesIO
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from pages.interventions import between
from pages.interventions.controls import CHANGES
from pages.shared.jobs import results
from pages.shared.selection.head_choice import ranked
from poskernel_core.analyses.base import Params
from poskernel_core.analyses.interventions.presets import presets_for
from poskernel_core.analyses.patching.presets import pairs_for
from poskernel_core.analyses.patching.spec import PatchHeadsParams
from poskernel_core.common.rounding import NO_NUMBER
from poskernel_core.data.moves import fitting, words_of
from poskernel_core.export.notebook import METRICS, PARTS
from poskernel_core.models import curated
from tests.support.bound import (
    bound,
    choose,
    chosen,
    fine,
    headings,
    named,
    opened,
    opened_as_linked,
    press,
    with_menu,
)
from tools.recorded import figures_on

OWN = "The cat saw the dog; the cat"
LONG = "The king saw the city. " * 12
STORED = curated.CURATED[0].name
PAGE, CONTEXT, PRESETS = "interventions", "128", presets_for("demo-gpt2")
FIRST, OTHER = PRESETS[0], "L0H1"


def said(app: AppTest) -> list[str]:
    assert not app.exception
    return [each.value.replace("\\", "") for each in app.error]


@pytest.mark.slow
def test_presets(computed):
    """Each brings its prompt and its change, and offers its head; the reader's own stays."""
    app = opened(PAGE, head=OTHER, context=CONTEXT)
    assert FIRST.cell == chosen(app.button(key="look").click().run(), "head")
    assert "look" not in [each.key for each in app.button]
    for preset in (*PRESETS[1:], FIRST):
        choose(app, "head", OTHER)
        bound(app)["preset"].select(preset.name).run()
        shown = bound(app)["prompt"].value, chosen(app, "head")
        assert (preset.prompt, OTHER) == shown
        offered = [each.label for each in app.button if each.key == "look"]
        assert offered == [f"Look at {preset.cell}, the preset's head"] * bool(preset.cell)
        change = bound(app)["change"].value
        assert preset.params["change"] == CHANGES[change]
        assert preset.about in [each.value for each in app.caption]
        assert f"{shown[1]} on the prompt" in headings(app)
        assert ([], 5) == (said(app), len(app.metric))


@pytest.mark.parametrize("card", ["next", "masses", "loss", "patterns-whole"])
def test_every_figure_ends_in_a_cell_with_the_moves(computed, card):
    """Also one whose numbers are not along the words that the moves name."""
    app = with_menu(opened(PAGE, context=CONTEXT), card)
    (cell,) = (each.value for each in app.code if "import poskernel_core as pk" in each.value)
    assert "moves = {" in cell


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        ({"moves": ["xylophone>1"]}, "has no word 'xylophone'"),
        ({"moves": ["from 3 to 1"]}, "A move is written row>key"),
        ({"change": "remove embeddings", "prompt": LONG * 8}, CONTEXT),
    ],
)
def test_bad_input_gives_one_sentence(computed, link, sentence):
    app = opened(PAGE, context=CONTEXT, **link)
    (told,) = said(app)
    assert sentence in told
    assert ([], 0) == (figures_on(app), len(app.metric))


@pytest.mark.slow
def test_an_empty_prompt_and_one_with_a_window(computed):
    app = opened(PAGE, context=CONTEXT, change="remove embeddings", prompt="  ")
    assert app.info[0].value.startswith("Type a prompt of a few words or more")
    bound(app)["prompt"].input(LONG).run()
    assert [] == said(app)
    assert {"whole-clean", "window-clean"} < {*figures_on(app)}


@pytest.fixture
def asked() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def show(monkeypatch, asked, computed):
    """Open the page by a link, with nothing computed."""

    def note(question: Any, run: Any, params: Params) -> None:
        asked.append(params.model_dump())

    monkeypatch.setattr(results, "fetch", note)

    def go(**parameters: Any) -> AppTest:
        app = opened_as_linked("interventions", **parameters)
        assert not app.exception
        return app

    return go


def test_words_and_moves_that_fit():
    """Words in the order in which they first stand; a move fits if both its words are there."""
    assert ["one", "two", ";", "'"] == words_of("one two; one 'two' 3")
    moves = ["king>fire", "dog>saw", "saw>dog", "3>1", "40>1", "nonsense"]
    assert ["dog>saw", "3>1"] == fitting(moves, OWN.replace("; the cat", " cat"))


def test_the_page_opens_on_the_head_that_is_changed(show, asked):
    app = show()
    assert (FIRST.cell, FIRST.cell) == (asked[-1]["head"], asked[-1]["edited"])
    assert FIRST.params["moves"] == asked[-1]["moves"]
    assert not app.error


def test_a_prompt_of_ones_own_drops_what_does_not_fit(show, asked):
    """No error: the reader is asked for moves among the words that are there."""
    app = show()
    asked.clear()
    bound(app)["prompt"].input(OWN).run()
    assert not app.error
    assert [] == bound(app)["moves"].value
    assert [] == asked
    assert "press Add" in app.info[0].value
    assert ["The", "cat", "saw", "the", "dog", ";"] == app.selectbox(key="moverow").options
    app.selectbox(key="moverow").select("saw").run()
    assert ["The", "cat", "saw"] == app.selectbox(key="movekey").options
    app.selectbox(key="movekey").select("The").run()
    app.button(key="addmove").click().run()
    assert ["saw>The"] == bound(app)["moves"].value
    assert (OWN, "saw>The") == (asked[-1]["text"], asked[-1]["moves"])
    bound(app)["prompt"].input(OWN.replace("saw", "bit")).run()
    assert [] == bound(app)["moves"].value


def test_the_first_prompt_brings_its_moves_back(show):
    """Who has chosen no move of their own gets those of the preset with its prompt."""
    app = show()
    prompt, moves = bound(app)["prompt"].value, bound(app)["moves"].value
    bound(app)["prompt"].input(OWN).run()
    bound(app)["prompt"].input(prompt).run()
    assert moves == bound(app)["moves"].value


def test_a_link_with_a_prompt_alone(show, asked):
    app = show(prompt=OWN)
    assert ([], [], 0) == (asked, bound(app)["moves"].value, len(app.error))
    linked = show(prompt=OWN, moves=["cat>The"], edited="L1H2")
    assert ("cat>The", "L1H2") == (asked[-1]["moves"], asked[-1]["edited"])
    assert not linked.warning


def test_heads_are_chosen_from_those_of_the_model(show, asked):
    """No head ablated: asked for one; another model leaves out what it has not."""
    app = show(change="ablate heads")
    assert "L2H6" == asked[-1]["heads"]
    bound(app)["ablated"].set_value([]).run()
    assert "Choose one or more heads" in app.info[0].value
    bound(app)["ablated"].set_value(["L0H1", "L3H7"]).run()
    assert "L0H1, L3H7" == asked[-1]["heads"]
    bound(app)["model"].select("demo-attn-2l").run()
    assert not app.error
    assert "L0H1" == asked[-1]["heads"]


def test_a_link_that_changes_a_preset_says_so(show):
    captions = [each.value for each in show(prompt=OWN).caption]
    assert FIRST.about not in captions
    assert any(each.startswith("Changed since") for each in captions)


@pytest.mark.parametrize(("scheme", "length"), [("learned", 1024), ("rotary", 256), ("no", 64)])
def test_presets_of_a_model_without_its_own(scheme, length):
    """The prompt fits a short context; embeddings are removed where positions are left."""
    presets = presets_for("a model of a reader's", scheme, length)
    removed = [each for each in presets if each.params["change"] == "remove"]
    assert len(removed) == (scheme == "learned")
    assert 2 == len({each.name for each in presets})
    assert all((len(each.prompt) < 4 * 64) == (length < 512) for each in presets)


@pytest.mark.slow
def test_heads_to_silence_by_a_measure(computed):
    """The first of a number, from either end, or all of a kind, fill the field."""
    app = opened(PAGE, context=CONTEXT, windows="20", unfolded="first-heads")
    choose_measure(app, "attention sink")
    app.number_input(key="first-count").set_value(3).run()
    taken = bound(fine(press(app, "take-heads")))["manyheads"].value
    assert 3 == len(taken.split(", "))
    (caption,) = (each.value for each in app.caption if each.value.startswith(taken))
    last = taken.split(", ")[-1]
    assert caption.removeprefix(taken).endswith(f" more can't be told from {last})")
    choose_measure(app, "kind of kernel")
    kinds = bound(fine(press(app, "take-heads")))["manyheads"].value
    assert kinds not in ("", taken)


def choose_measure(app: AppTest, title: str) -> None:
    fine(app.selectbox(key="first-measure").select(title).run())
    if "compute-first-heads" in [each.key for each in app.button]:
        press(app, "compute-first-heads")


def test_heads_by_a_number():
    """Equal ones stay in the order of heads, and heads without a number are left out."""
    values = np.array([[0.3, np.nan, -2.0], [7.0, 0.3, 1.0]])
    assert [(1, 0), (1, 2), (0, 0), (1, 1), (0, 2)] == ranked(values)
    assert [] == ranked(values * np.nan)


@pytest.mark.slow
def test_between_two_prompts(computed):
    """Each example brings its prompts, and is answered; a prompt of another length is refused."""
    app = opened(PAGE, context=CONTEXT, mode="Between two prompts")
    pairs = pairs_for("demo-gpt2")
    for pair in (*pairs[1:], pairs[0]):
        bound(app)["pair"].select(pair.name).run()
        shown = [bound(app)[key].value for key in ("clean", "changed")]
        assert [pair.prompt, pair.params["changed"]] == shown
        assert pair.about in [each.value for each in app.caption]
        assert ([], 2) == (said(app), len(app.metric))
        assert {"parts", "positions"} <= {*figures_on(app)}
        (largest,) = (each.value for each in app.dataframe if "effect" in each.value)
        sizes = largest["effect"].abs().tolist()
        assert 10 == len(sizes)
        assert sorted(sizes, reverse=True) == sizes
    bound(app)["changed"].input(f"{pairs[0].prompt} and more").run()
    (told,) = said(app)
    assert "equally many tokens" in told
    bound(app)["changed"].input(" ").run()
    assert app.info[0].value.startswith("Type two prompts")


LEFT_OUT = "0 left out: the clean prompt is not 0.1 nats above the changed one"


@pytest.mark.slow
def test_a_set_of_pairs(computed):
    """A maker's pairs and a table's, with errors; bad rows are named, and left out if asked for."""
    app = opened(PAGE, context=CONTEXT, mode="Between two prompts", maker="order", count="11")
    assert ([], 5) == (said(app), len(app.metric))
    assert "11" == app.metric[3].value
    assert {"parts", "spans", "pairs"} <= {*figures_on(app)}
    (largest,) = (each.value for each in app.dataframe if "opposite" in each.value)
    assert largest["± 1 s.e."].notna().all()
    (above,) = (each.value for each in app.caption if each.value.startswith("The largest effects"))
    assert re.search(rf" more can't be told from {named(largest['head'].iloc[-1])}\)$", above)
    marks = largest.get("", pd.Series("", largest.index))
    assert (largest["opposite"].notna() == (marks == "")).all()  # estimates are marked
    assert {NO_NUMBER} == {each.proto.placeholder for each in app.dataframe}
    bound(app)["maker"].select("a table").run()
    assert app.info[0].value.startswith("Type or drop a table")
    bound(app)["pairs"].input("clean,answer").run()
    (told,) = said(app)
    assert told.startswith("Expected a table with the columns clean, changed, answer, other")
    rows = [
        f"the {x} name and the {y} code; the {x},the {x} name and the {y} code; the {y}, name, code"
        for x, y in permutations(("data", "line", "table"), 2)
    ]
    table = "\n".join(["clean,changed,answer,other_answer", *rows, "a,a,b,c"])
    bound(app)["pairs"].input(table).run()
    (told,) = said(app)
    assert "row 7: both prompts are equal" in told
    bound(app)["bad"].set_value(True).run()
    assert [] == [each for each in said(app) if "row" in each]


def test_what_is_stored_of_a_model_without_weights(shipped_only):
    """Where another model is shown, one click leads to it; what is not stored is said."""
    app = opened_as_linked(PAGE)
    assert "demo-gpt2" == bound(app)["model"].value
    press(app, "lend")
    assert (STORED, True) == (bound(app)["model"].value, chosen(app, "stored"))
    assert 5 == len(app.metric)
    assert not CHOICES_OF_SETS & {*bound(app)}
    captions = [each.value for each in app.caption]
    assert "Stored: difference of two answers, whole output, clean into changed." in captions
    assert any(each.startswith("40 pairs. Two names") for each in captions)
    (largest,) = (each.value for each in app.dataframe if "opposite" in each.value)
    assert ["head", "effect", "± 1 s.e.", "opposite"] == [*largest]  # none is an estimate
    (told,) = not_computed(app)
    assert told.startswith("Not computed: what this head carries at each position. ")
    choose(app, "head", "L23H3")
    assert ([], {"parts", "spans", "pairs"}) == (not_computed(app), {*figures_on(app)})
    press(app, "lend")
    assert "demo-gpt2" == bound(app)["model"].value


def test_a_link_to_what_is_not_stored_of_a_model_without_weights(shipped_only):
    """What is stored is shown, and told."""
    link = {"mode": "Between two prompts", "maker": "order", "count": "39", "metric": "loss"}
    app = fine(opened_as_linked(PAGE, model=STORED, head="L23H3", **link))
    assert {"parts", "spans", "pairs"} == {*figures_on(app)}
    told = " ".join(each.value for each in app.warning)
    assert all(asked in told for asked in ("order", "39", "loss"))


CHOICES_OF_SETS = {"maker", "count", "metric", "exact", "what", "way", "patched"}


def test_fields_of_what_is_stored():
    """Each has the values of the answers that fit what is chosen; a single one is a word."""
    given = ({"count": 11}, {"metric": "log-probability"}, {"what": "values", "count": 11})
    fields = between.Fields([PatchHeadsParams(maker="order", **params) for params in given])
    assert ["order"] == fields.options("maker", between.SETS)
    assert [11, 40] == fields.options("count", (5, 11, 40))
    fields.params |= {"maker": "order", "count": 40}
    assert ["log-probability"] == fields.options("metric", METRICS.values())
    fields.choose("Metric", METRICS, "metric", "metric")
    assert ["log probability of one answer"] == fields.single
    assert ["output"] == fields.options("what", PARTS.values())
    anything = between.Fields(None)
    assert [*PARTS.values()] == anything.options("what", PARTS.values())


@pytest.mark.parametrize(("model", "head", "maker", "figures", "choice"), [
    (STORED, "L23H3", "names", {"network", "edges-into", "enough"}, False),
    (STORED, "L0H1", "names", {"network", "enough"}, False),
    ("demo-gpt2", "L3H7", "copying", {"network", "edges-into", "enough"}, True),
])  # fmt: skip
def test_a_link_to_a_stored_circuit(shipped_only, model, head, maker, figures, choice):
    link = {"mode": "From heads to a circuit", "model": model, "head": head, "maker": maker}
    app = fine(opened_as_linked(PAGE, **link))
    for _ in range(2):
        assert (model, figures) == (bound(app)["model"].value, {*figures_on(app)})
        assert choice == ("outside" in bound(app))  # none where one answer is stored
        app.run()
    assert not app.warning


def not_computed(app: AppTest) -> list[str]:
    return [each.value for each in app.caption if each.value.startswith("Not computed")]


def test_a_dropped_table_is_in_the_address(monkeypatch):
    """As if it had been typed, if it fits there; what is no text is refused where it is drawn."""
    typed, table = [], b"\xef\xbb\xbfclean,changed"
    monkeypatch.setattr(between, "choose", lambda *given: typed.append(given))
    for data in (table, b"\xff\x00\xff", b"x" * 20_001):
        monkeypatch.setattr(between.st, "session_state", {"pairsfile": BytesIO(data)})
        between.type_file()
    assert [("pairs", "clean,changed")] == typed


@pytest.mark.slow
def test_from_heads_to_a_circuit(computed):
    """A maker's pairs: the picture, what feeds the selected head, and the curves; a bad table."""
    asked = {"mode": "From heads to a circuit", "maker": "copying", "count": "11", "head": "L3H7"}
    app = opened(PAGE, context=CONTEXT, **asked)
    for button, figures in (
        ("compute-network", {"network"}),
        ("compute-edges", {"edges-into"}),
        ("compute-enough", {"enough"}),
    ):
        assert not figures & {*figures_on(app)}
        press(app, button)
        assert [] == said(app)
        assert figures <= {*figures_on(app)}
    assert f"11 pairs; {LEFT_OUT}." in [each.value for each in app.caption]
    bound(app)["keptorder"].input("L9H9").run()
    app.button(key="compute-enough").click().run()
    assert any("L9H9" in each for each in said(app))
    bound(app)["maker"].select("a table").run()
    assert app.info[0].value.startswith("Type or drop a table")
