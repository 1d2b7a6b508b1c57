"""The page of methods as a script: definitions, and the reproduction ledger."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from poskernel_core.analyses.definitions import methods
from poskernel_core.ledger.compare import brief
from poskernel_core.ledger.published import figures_of, known_models
from tests.support.bound import bound, fine, opened

MODEL, HELD = "demo-attn-2l", "gpt2"
LEDGER = {"model": MODEL, "part": "Reproduction ledger"}
FIGURES = figures_of(HELD)
METHODS = sorted(methods(), key=lambda method: method.runs_model)
"""As the page has them: those that run the model again come after the others."""
PARTS = ("Values", "Formula.", "Choices.", "Limits.", "Source.")


def folds_of(app: AppTest) -> list[tuple[str, str]]:
    """The title and text of each definition, of which those of a heading are one element."""
    joined = "".join(each.value for each in app.main.markdown)
    return re.findall(r"<summary>(.*?)</summary>(.*?)</details>", joined, re.DOTALL)


def test_definitions():
    app = fine(opened("methods"))
    for (title, text), method in zip(folds_of(app), METHODS, strict=True):
        assert f"**{method.title}** (`{method.name}`): {method.summary}" == title.strip()
        assert all(f"**{part}**" in text for part in PARTS)
        assert f"```bash\npython -m poskernel_core show {method.name} MODEL\n```" in text
        assert len(method.params) == text.partition("| --- |")[2].count("\n|")
    assert len(app.main.markdown) < 10
    ((title, _),) = folds_of(fine(opened("methods", method="position-zero")))
    assert "position-zero" in title


def test_before_anything_is_computed():
    """A model without published figures says so, and which have some; a name brings figures."""
    (told,) = fine(opened("methods", **LEDGER)).info
    said = told.value.replace("\\", "")
    for words in (f"No figures were published for {MODEL}", *known_models()):
        assert words in said
    app = fine(opened("methods", published=HELD, **LEDGER))
    warning = f"Computed on {MODEL}, published for {HELD}"
    assert warning in app.warning[0].value.replace("\\", "")
    table = app.dataframe[0].value
    assert [figure.figure for figure in FIGURES] == [*table["published figure"]]
    assert [brief(figure.published) for figure in FIGURES] == [*table["published"]]
    for name, each in (("verdict", "not computed yet"), ("ours", ""), ("difference", "")):
        assert {each} == set(table[name])
    assert [] == [*app.get("download_button")]


@pytest.mark.slow
def test_the_ledger_computed(computed):
    """Each line has our figure, or why there is none, and so have its numbers below."""
    app = fine(opened("methods", published=HELD, compute="true", windows="50", **LEDGER))
    table = app.dataframe[0].value
    assert 1 == len(app.get("download_button"))
    assert {"✗ differs", "– not computed"} <= set(table["verdict"])
    without = table["verdict"] == "– not computed"
    assert [*without] == [*(table["ours"] == "")] == [*(table["why not"] != "")]
    for row in (table[without].index[0], table[~without].index[0]):
        figure = FIGURES[row]
        app = fine(bound(app)["ledgerid"].select(figure.id).run())
        assert any(figure.figure in each.value for each in app.caption)
        told = [each.value.replace("\\", "") for each in app.info]
        assert ([table["why not"][row]] if without[row] else []) == told
        assert ("ours" in app.dataframe[1].value) != without[row]
