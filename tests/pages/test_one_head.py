"""One model and one head for all pages: what a reader chose stays, and nothing moves by itself."""

from importlib import import_module

import pytest
from streamlit.testing.v1 import AppTest

from pages.instrument.lending import NEEDS
from poskernel_core.models import curated
from poskernel_core.models.known import telling_head
from tests.support.bound import bound, chosen, opened, opened_as_linked
from tools.recorded import figures_on, open_page, page_names

pytestmark = pytest.mark.usefixtures("shipped_only")

FIRST = curated.CURATED[0].name
TRAINED, TRAINING = "over_training", "demo-training"
"""The page that needs checkpoints of a training, and the bundled model that has some."""


def needs(name):
    return import_module(f"pages.{name}.page").PLACE.needs


def chosen_in(app: AppTest) -> tuple[str, str]:
    assert not app.exception
    return bound(app)["model"].value, chosen(app, "head")


@pytest.mark.parametrize("cell", ["", "L1H5"])
def test_the_head_stays_on_every_page(cell):
    app = opened("etc_heatmap", **({"head": cell} if cell else {}))
    kept = "demo-gpt2", cell or telling_head("demo-gpt2")
    assert kept == chosen_in(app)
    for name in page_names():
        if needs(name) in ("", "learned", "weights"):
            assert kept == chosen_in(open_page(app, name)), name


def test_a_chosen_model_stays_and_one_click_shows_another():
    """The page says what the model lacks, and draws nothing of it."""
    app = opened("etc_heatmap", head="L2H3")
    open_page(app, TRAINED)
    assert ("demo-gpt2", "L2H3") == chosen_in(app)
    assert "demo\\-gpt2 has no checkpoints" in app.info[0].value
    assert not figures_on(app)
    app.button(key="lend").click().run()
    assert TRAINING == chosen_in(app)[0]
    assert TRAINING == chosen_in(open_page(app, "head"))[0]


def test_who_has_chosen_nothing_is_shown_what_the_page_needs():
    """The first model has no helix and no checkpoints; elsewhere it is the first again."""
    app = opened_as_linked("helix")
    assert "demo-gpt2" == chosen_in(app)[0]
    assert "no helix" in app.info[0].value
    assert TRAINING == chosen_in(open_page(app, TRAINED))[0]
    assert "so this page shows demo\\-training" in app.info[0].value
    app.run()
    assert TRAINING == chosen_in(app)[0]
    assert FIRST == chosen_in(open_page(app, "head"))[0]


@pytest.mark.parametrize(("model", "cell", "near", "query"), [
    ("demo-attn-2l", "L3H7", "L1H7", 127), ("demo-rotary", "L3H2", "L3H2", 511),
])  # fmt: skip
def test_another_model_shows_the_nearest_head(model, cell, near, query):
    """And position; back at the first, the head stays there."""
    app = opened("head", head=cell, query="511")
    bound(app)["model"].select(model).run()
    assert (model, near, query) == (*chosen_in(app), chosen(app, "query"))
    bound(app)["model"].select("demo-gpt2").run()
    assert ("demo-gpt2", near) == chosen_in(app)


def test_who_has_chosen_a_rotary_model_keeps_it_on_the_helix():
    app = opened("helix", model="demo-rotary")
    assert "demo-rotary" == chosen_in(app)[0]


def test_a_model_that_was_chosen_on_purpose_is_kept():
    """A model with checkpoints is the reader's, also where one was lent before."""
    app = opened("etc_heatmap")
    bound(app)["model"].select(TRAINING).run()
    open_page(app, TRAINED)
    assert not [each for each in app.info if "this page shows" in each.value]
    assert (TRAINING, "L0H0") == chosen_in(open_page(app, "head"))


@pytest.mark.parametrize(
    ("name", "model", "topic"),
    [("contextual", "demo-gpt2", "contextual"), (TRAINED, TRAINING, "induction")],
)
def test_a_more_telling_head_is_offered(name, model, topic):
    cell = telling_head(model, topic)
    app = opened(name, model=model)
    button = app.button(key="select-offered")
    assert button.label.startswith(f"{cell} is ")
    button.click().run()
    assert (model, cell) == chosen_in(app)
    assert not [each for each in app.button if each.key == "select-offered"]
    assert (model, cell) == chosen_in(open_page(app, "head"))


@pytest.mark.parametrize("name", [name for name in page_names() if needs(name)])
def test_what_a_page_needs_is_lent(name):
    need = NEEDS[needs(name)]
    app = opened_as_linked(name)
    wanted = FIRST if need.met(FIRST) else need.model
    assert wanted == chosen_in(app)[0]
    assert wanted == FIRST or need.why in app.info[0].value
