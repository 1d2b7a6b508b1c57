"""The methods page's text: read from docstrings, whole for every question."""

import re

import pytest

from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.base import Analysis, Params
from poskernel_core.methods import PARTS, as_markdown, methods

FOUND = {method.name: method for method in methods()}


@pytest.mark.parametrize("name", ANALYSES)
def test_every_question_is_defined(name):
    """Formula, choices, limits and source; every value listed; parameters with their meaning."""
    method = FOUND[name]

    for part in PARTS:
        assert len(getattr(method, part.lower())) > 10, part
    assert method.values
    assert method.summary.endswith(".")
    assert '"' in method.source
    assert "$" in method.formula or "that of" in method.formula
    assert 0 == method.formula.count("$") % 2
    assert set(ANALYSES[name].params.model_fields) == {each[0] for each in method.params}
    assert all(meaning for _, _, meaning in method.params)


@pytest.mark.parametrize("name", ANALYSES)
def test_no_mark_of_restructured_text_is_left(name):
    """No double backticks, no roles; no word of a document that readers do not have."""
    method = FOUND[name]
    text = " ".join([method.summary, method.about, *method.values, method.formula, method.choices,
                     method.limits, method.source])  # fmt: skip

    assert "``" not in text
    assert not re.search(r":[a-z]+:`", text)
    assert not re.search(r"definitions|section \d", text)


class _Example(Analysis):
    r"""One sentence.

    A further paragraph
    on two lines.

    * ``a [layer]``: the first,
      on two lines; ``b``: another.
    * ``c``: the last.

    Formula: $a = b$ and
    $c = d$.

    Choices: see :class:`~poskernel_core.analyses.Helix`.

    Limits: none.

    Source: "A post".
    """

    name, title, params = "example", "Example", Params

    def needs(self, run, params):
        """Nothing."""

    def compute(self, statistics, params, progress):
        """Nothing."""


def test_reading_a_docstring(monkeypatch):
    """By hand: paragraphs, bullets over several lines, parts, references."""
    monkeypatch.setattr("poskernel_core.methods.ANALYSES", {"example": _Example()})

    (method,) = methods()

    assert "One sentence." == method.summary
    assert "A further paragraph\non two lines." == method.about
    assert ("`a [layer]`: the first, on two lines; `b`: another.", "`c`: the last.") == (
        method.values
    )
    assert ("$a = b$ and $c = d$.", "see `Helix`.", "none.", '"A post".') == (
        method.formula, method.choices, method.limits, method.source
    )  # fmt: skip
    assert ((), False) == (method.params, method.runs_model)


def test_markdown():
    """Code marks and references."""
    assert "`a` and `Helix`, `log`" == as_markdown(
        "``a`` and :class:`~poskernel_core.analyses.Helix`, :func:`log`"
    )
