"""Why a token looks at another, on the page Text as a script: its controls, and an answer."""

import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.jobs import results
from tests.analyses.score_components.test_figures_score_components import made
from tests.support.bound import figure_on, headings, opened, words
from tools.recorded import figures_on

LIST = "blue fire water house king garden; blue fire water house king garden; blue fire"
KEY, OTHER = "Key token (position)", "Other key (position)"


SHOWN = """
from types import SimpleNamespace
from pages.own_text.page import draw_reasons
from pages.shared.choices.choices import open_choices

open_choices("own_text")
here = SimpleNamespace(away="")
draw_reasons(SimpleNamespace(cell="L1H2", skip=3, run=None, located=here), "x", 6)
"""
"""Draw the part of the page, for a query at 6."""


@pytest.fixture
def asked(monkeypatch):
    """What the page asks for, answered with made-up numbers."""
    seen = []

    def fetch(_question, _run, params):
        seen.append(params)
        return made()

    monkeypatch.setattr(results, "fetch", fetch)
    return seen


def test_nothing_is_asked_until_the_switch_is_on(asked):
    app = AppTest.from_string(SHOWN).run()
    assert not app.exception
    assert not asked
    assert not app.number_input


def test_the_key_with_most_attention_first(asked):
    """Hidden keys are on no offer; a key of the reader's own is asked for."""
    app = AppTest.from_string(SHOWN).run()
    app.toggle[0].set_value(True).run()
    assert not app.exception
    field = app.number_input[0]
    assert (field.label, field.value, field.min, field.max) == (KEY, 5, 1, 6)
    assert len(asked) == 1
    assert (asked[0].query, asked[0].key, asked[0].skip, asked[0].head) == (6, None, 3, "L1H2")
    field.set_value(2).run()
    assert [None, 2] == [each.key for each in asked[-2:]]


def test_another_key(asked):
    """Its field is there only where it is compared with; it is never the key itself."""
    app = AppTest.from_string(SHOWN)
    app.query_params["split"], app.query_params["against"] = "true", "against another key"
    app.query_params["key"] = "6"
    app.run()
    assert not app.exception
    assert [KEY, OTHER] == [each.label for each in app.number_input]
    assert 5 == app.number_input[1].value
    assert (6, 5) == (asked[-1].key, asked[-1].other)


def test_nothing_is_drawn_while_it_is_computed(monkeypatch):
    monkeypatch.setattr(results, "fetch", lambda *_: None)
    app = AppTest.from_string(SHOWN)
    app.query_params["split"] = "true"
    app.run()
    assert not app.exception
    assert not app.number_input


@pytest.mark.slow
def test_an_induction_head(computed):
    """What the previous-token head wrote, asked for by the first MLP."""
    asked = {"text": LIST, "head": "L3H5", "split": "true", "windows": "20", "context": "128"}
    app = opened("own_text", **asked)
    assert "L3H5: why token 23 looks at token 4" in headings(app)
    found = "what L2H6 wrote there, asked for by what MLP 0 wrote at query 23"
    assert found in words(app)
    assert {"reasons", "stacks"} <= {*figures_on(app)}
    app = opened("own_text", **asked, against="against another key", other="14")
    assert ([], []) == ([*app.exception], [*app.error])
    assert "against another key (nats)" in str(figure_on(app, "reasons"))
