"""The sources of queries, as a script: sampled windows, one text, one token; and no network."""

import pytest

from tests.support.bound import bound, opened
from tools.recorded import figures_on

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("computed")]

SMALL = {"head": "L2H1", "query": "63", "context": "128", "windows": "20"}
FIGURES, WORDS = 9, "The king went up to the city, and the people of the city saw the king. "


def show(**link):
    app = opened("positional_kernels", **SMALL | link)
    assert not app.exception
    return app


def said(app):
    return [each.value.replace("\\", "") for each in (*app.error, *app.info)]


def test_windows_a_chapter_and_a_text_of_the_readers_own():
    own = {"source": "one text", "item": "my own text"}
    for link in ({}, {"source": "one text", "item": "Exodus 12"}, own | {"text": WORDS * 8}):
        app = show(**link)
        assert (FIGURES, []) == (len(figures_on(app)), [*app.error])
    assert any("Type or paste a text" in each for each in said(show(**own)))
    app = show(**own, text="Far too short.")
    assert [] == figures_on(app)
    (told,) = said(app)
    assert "No query at position 63" in told


def test_one_token():
    app = show(source="one token")
    assert " the" == bound(app)["token"].value
    assert any("for the map over all positions" in each for each in said(app))
    (told,) = said(show(source="one token", token="xylophone quark"))
    assert "Expected text that is one token" in told


def test_a_hub_model_without_network():
    app = show(model="gpt2")
    (told,) = app.error
    assert "The model hub cannot be reached" in told.value
    assert [] == figures_on(app)
    assert "revision" in bound(app)
