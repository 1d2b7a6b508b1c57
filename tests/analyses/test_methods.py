"""The methods page's text: read from docstrings, whole for every question."""

import json
import re

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.base import Analysis, Composition, Params
from poskernel_core.analyses.definitions import SECTIONS, as_markdown, errors_of, methods
from poskernel_core.analyses.patching.presets import pairs_for
from poskernel_core.analyses.training.spec import OfCheckpoints
from poskernel_core.common.result import Result, outputs
from poskernel_core.export.files import to_json
from tests.support.passes import FEW

pytestmark = pytest.mark.usefixtures("near_worker")

MODEL = "demo-gpt2"
PAIR = pairs_for(MODEL)[0]
SMALL = {
    "text": "And the king said to the people of the land.",
    "own_texts": "A text of the reader's own.",
    "word": " the", "words": "king", "equalise_norms": True, "change": "remove", "other": 2,
    "measure": "attention sink", **FEW,
}  # fmt: skip
OF_ALIBI = {"alibi_bias"}
FOUND = {method.name: method for method in methods()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ANALYSES)
def test_values_are_those_of_a_result(engine, name, rotary, training_dir, talking):
    """A question on a small run gives every value that is described, with its axes, no other.

    What stands in the description beside values: parameters, axes, and symbols of one letter.
    """
    fields = ANALYSES[name].params.model_fields
    params = {field: value for field, value in SMALL.items() if field in fields}
    cell = {"head": "L0H1"} if "head" in fields and fields["head"].is_required() else {}
    params |= {"heads": "L0H1"} if name == "ablate-heads" else {}
    both = {"clean": PAIR.prompt, **PAIR.params} if name.startswith("patch-") else {}
    params |= {"maker": "copying"} if name in ("edges", "faithfulness") else {}

    model, context = (rotary, 53) if ANALYSES[name].scheme.startswith("rotary") else (MODEL, 64)
    training = isinstance(ANALYSES[name], OfCheckpoints)
    model, context = (str(training_dir), 37) if training else (model, context)
    if name == "conversations":
        model, params["text"] = talking, [{"role": "user", "content": SMALL["text"]}]

    given, validator = {}, Draft202012Validator(pk.schema(name))
    for more in (both, {"maker": "order", "count": 11}) if both else ({},):  # one pair, and a set
        found = pk.show(
            name, model, context=context, windows=20, engine=engine, params=params | more, **cell
        )
        validator.validate(json.loads(to_json(found)))
        given |= found.axes

    listed = " ".join(FOUND[name].values)
    axes = dict(re.findall(r"`([a-z]\w+)(?: \[([\w, ]+)\])?`", listed))
    no_values = {*fields, *(axis for each in given.values() for axis in each)}
    assert {*given} - {"tokens"} == set(axes) - (no_values - {*given}) - {"tokens"} - OF_ALIBI
    for value, written in axes.items():
        assert not written or written == ", ".join(given[value]), value


@pytest.mark.parametrize("name", ANALYSES)
def test_every_question_is_defined(name):
    method = FOUND[name]

    for part in SECTIONS:
        assert len(getattr(method, part.lower())) > 10, part
    assert method.values
    assert method.summary.endswith(".")
    assert '"' in method.source
    assert "$" in method.formula or "that of" in method.formula
    assert 0 == method.formula.count("$") % 2
    assert set(ANALYSES[name].params.model_fields) == {each[0] for each in method.params}
    assert all(meaning for *_, meaning in method.params)


class _Example(Analysis):
    r"""One sentence.

    A further paragraph
    on two lines.

    Formula: $a = b$ and
    $c = d$.

    Choices: see :class:`~poskernel_core.analyses.Helix`.

    Limits: none.

    Source: "A post".
    """

    name, title, params = "example", "Example", Params
    values = (*outputs("a b [layer]", "tokens", "``the first``"), *outputs("c", "nats", "last"))

    def needs(self, run, params):
        """Nothing."""

    def compute(self, statistics, params, progress):
        """Nothing."""


def test_reading_a_docstring(monkeypatch):
    monkeypatch.setattr("poskernel_core.analyses.definitions.ANALYSES", {"example": _Example()})

    (method,) = methods()

    assert "One sentence." == method.summary
    assert "A further paragraph\non two lines." == method.about
    assert ("`a`, `b` `[layer]`, tokens: `the first`", "`c`, nats: last") == method.values
    assert ("$a = b$ and $c = d$.", "see `Helix`.", "none.", '"A post".') == (
        method.formula, method.choices, method.limits, method.source
    )  # fmt: skip
    assert ((), False) == (method.params, method.runs_model)
    shown = as_markdown("``a`` and :class:`~poskernel_core.analyses.Helix`, :func:`log`")
    assert "`a` and `Helix`, `log`" == shown


def with_errors(question, value="x", **provenance):
    """A result of a question with one value and its error."""
    one = {value: np.ones(())}
    return Result(question, {}, one, {value: ()}, {value: ""}, errors=one, provenance=provenance)


QUERIES = "queries alone, not the texts"


@pytest.mark.parametrize(
    ("question", "told", "counted", "wide"),
    [
        ("etc", {"errors": "documents", "groups": 10}, "documents, in 10 groups; ", "2.26"),
        ("etc", {"errors": "stretches", "groups": 3}, "stretches of one text, in 3 gr", "4.30"),
        ("etc", {}, QUERIES, ""),
        ("sinks", {}, "windows; ", "1.96"),
        ("induction-scores", {}, "sequences of random tokens; ", "1.96"),
        ("compare-kernels", {"errors": "queries", "groups": 0}, QUERIES, ""),
        ("verdicts", {"errors": ["queries", "windows", "passages"]},
         "queries, windows or passages; ", "1.96"),
        ("verdicts", {"errors": ["documents", "sequences of random tokens"], "groups": [10, 0]},
         "documents in 10 groups or sequences of random tokens; ", "at most 2.26"),
    ],
)  # fmt: skip
def test_what_errors_count_in_a_sentence(question, told, counted, wide):
    found = errors_of(with_errors(question, **told))
    assert found.startswith(f"Errors count {counted}")
    assert wide in found
    assert bool(wide) == ("95 %" in found)


@pytest.mark.parametrize(("windows", "told"), [(199, True), (200, False), ("unknown", False)])
def test_intervals_that_are_too_narrow_are_named_below_their_windows(windows, told):
    assert ("attention_distance", 200) in ANALYSES["kernel"].narrow_below
    told_of = {"errors": "documents", "groups": 10, "windows": windows}
    one = with_errors("kernel", "attention_distance", **told_of)
    assert ("attention distance (below 200 windows)" in errors_of(one)) == told
    assert "Too narrow" not in errors_of(with_errors("kernel", **told_of))


def test_every_value_with_intervals_too_narrow_has_intervals():
    for name, question in ANALYSES.items():
        known = {value.name for value in question.values if value.has_error}
        assert dict(question.narrow_below).keys() <= known, name


def test_nothing_is_said_of_errors_that_are_none():
    without = Result("etc", {}, {}, {}, {}, provenance={"errors": "documents", "groups": 10})
    assert "" == errors_of(without) == errors_of(with_errors("no question"))


@pytest.mark.parametrize("name", ANALYSES)
def test_every_question_says_what_its_errors_count(name):
    question = ANALYSES[name]
    own = any(value.has_error for value in question.values)
    assert (own and not isinstance(question, Composition)) == bool(question.error_counts)
