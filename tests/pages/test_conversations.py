"""Conversations on Text and Overview: only of a model with a chat template."""

import pytest

from tests.support.bound import bound, figure_on, fine, opened_as_linked, press, words

TITLE = "Attention in conversations"
TEXT = "user: the house of the king\nassistant: the king is in the house"
SIZES = {"windows": 20, "context": 96, "head": "L1H0"}


@pytest.fixture(autouse=True)
def _offered(talking, monkeypatch):
    monkeypatch.setenv("POSKERNEL_MODELS", talking)


def test_a_text_is_read_as_turns(computed, talking):
    """The template is put around it, on every figure of the page; the switch is in the address."""
    asked = {"model": talking, "text": TEXT, **SIZES}
    plain = fine(opened_as_linked("own_text", **asked))
    assert TITLE not in words(plain)
    app = fine(bound(plain)["turns"].set_value(True).run())
    assert "In conversations L1H0 gives" in words(app)
    bars = figure_on(app, "conversation").data
    assert ["to template", "to user", "to assistant", "to first of a turn", "to first key"] == [
        each.name for each in bars
    ]
    written = "<|endoftext|>user:the house of the king\n<|endoftext|>assistant:the king is in the"
    (stored,) = [
        entry[0]["texts"]["written"]
        for key in [*computed.store.keys()]
        if (entry := computed.store.get(key)) and "written" in entry[0].get("texts", ())
    ]
    assert stored.startswith(written)
    again = fine(opened_as_linked("own_text", **asked, turns="true"))
    assert figure_on(again, "conversation") == figure_on(app, "conversation")
    refused = opened_as_linked("own_text", **(asked | {"text": "nobody speaks"}), turns="true")
    assert "expected a list of turns such as" in refused.error[0].value


def test_overview_has_a_block(computed, talking):
    asked = {"model": talking, "query": 50, **SIZES}
    app = fine(opened_as_linked("head", **asked))
    assert f"[{TITLE}](own_text?" in words(app)
    assert "turns=true" in words(app)
    app = press(app, "compute-conversation")
    assert 5 == len(figure_on(app, "conversation").data)
    other = fine(opened_as_linked("head", **(asked | {"corpus": "bible"})))
    assert "conversation" not in {each.key for each in other.button}


def test_a_model_without_a_template_shows_nothing_of_it(computed):
    asked = {"model": "demo-attn-2l", **SIZES}
    app = fine(opened_as_linked("own_text", text=TEXT, **asked))
    assert "turns" not in {each.key for each in app.toggle}
    assert TITLE not in words(fine(opened_as_linked("head", **asked)))
