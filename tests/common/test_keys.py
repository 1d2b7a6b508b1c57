"""Keys: whatever determines a result changes its key, and nothing else does."""

import numpy as np
import pytest

from poskernel_core import analyses
from poskernel_core.analyses.base import Composition
from poskernel_core.analyses.training.spec import OfCheckpoints
from poskernel_core.common import specs
from poskernel_core.common.errors import InvalidField
from poskernel_core.common.specs import (
    OF_PATTERNS,
    CorpusSpec,
    Execution,
    ModelSpec,
    Request,
    RunSpec,
)
from poskernel_core.engine.plan import Plan, make_plan
from poskernel_core.storage.statistics import part_key, windows_of

MODEL = ModelSpec(name="gpt2", fingerprint="abc")
CORPUS = CorpusSpec(name="sample", fingerprint="def")
RUN = RunSpec(model=MODEL, corpus=CORPUS, context=41, positions=(3, 11))
REQUEST = Request(analysis="etc", run=RUN, params={"skip": 4})

MODELS = {
    "name": "gpt3", "revision": "main", "fingerprint": "abd", "angles": "by length",
    "tokenizer": "dropout off",
}  # fmt: skip
CORPORA = {
    "name": "bible", "item": "Genesis 24", "text": "In the beginning", "whole": True,
    "revision": "main", "fingerprint": "deg",
}  # fmt: skip
RUNS = {
    "model": ModelSpec(name="gpt2", fingerprint="abd"),
    "corpus": CorpusSpec(name="sample", fingerprint="deg"),
    "context": 43, "windows": 499, "start_token": False, "dtype": "bfloat16", "seed": 1,
    "positions": (3, 13), "queries_per_position": 63, "gather": ("keys", "queries"),
    "destination": " the", "repeat_every": 8, "pattern_windows": 64, "until": "kinds",
}  # fmt: skip
REQUESTS = {"analysis": "kernel", "run": RUN.model_copy(update={"seed": 1}), "params": {"skip": 5}}


def changed(spec, field, value):
    return type(spec).model_validate({**dict(spec), field: value})


@pytest.mark.parametrize(
    ("spec", "changes"),
    [(MODEL, MODELS), (CORPUS, CORPORA), (RUN, RUNS), (REQUEST, REQUESTS)],
    ids=["model", "corpus", "run", "request"],
)
def test_every_field_is_tried(spec, changes):
    assert set(type(spec).model_fields) == set(changes)
    assert all(getattr(spec, field) != value for field, value in changes.items())


def keys_of(run):
    request = REQUEST.model_copy(update={"run": run})
    return {run.key(), part_key(run, "keys", "manifest"), part_key(run, "keys", "0"), request.key}


@pytest.mark.parametrize("field", RUNS)
def test_each_field_of_a_run(field):
    """No key of a run, of its statistics or of a result on it survives a change of one field.

    What else is gathered is no matter of a statistic, nor is how much attention is formed one of
    keys; it is of everything else.
    """
    other = changed(RUN, field, RUNS[field])
    same = {part_key(RUN, "keys", part) for part in ("manifest", "0")}
    alike = same if field in ("gather", "pattern_windows") else set()
    assert alike == keys_of(RUN) & keys_of(other)
    assert (field == "gather") == (windows_of(RUN).digest() == windows_of(other).digest())


@pytest.mark.parametrize(
    ("part", "spec", "changes"), [("model", MODEL, MODELS), ("corpus", CORPUS, CORPORA)]
)
def test_each_field_of_a_model_and_of_a_corpus(part, spec, changes):
    for field, value in changes.items():
        other = changed(RUN, part, changed(spec, field, value))
        assert not keys_of(RUN) & keys_of(other), field


@pytest.mark.parametrize("field", REQUESTS)
def test_each_field_of_a_request(field):
    assert REQUEST.key != changed(REQUEST, field, REQUESTS[field]).key


SOURCE = {"source": "text", "text": "a", "text_corpus": "sample", "text_item": "b", "token": " a"}


@pytest.mark.parametrize(
    ("analysis", "params"),
    [
        ("etc", {"skip": 5, "local_tokens": 11, "local_share": 0.6, "uniform_share": 0.6}),
        ("kernel", {"skip": 5, "query": 11, **SOURCE}),
        ("kernel-map", {"skip": 5, "head": "L1H1", **SOURCE}),
    ],
)
def test_each_parameter(analysis, params):
    plain = make_plan(Request(analysis=analysis, run=RUN))
    assert set(plain.request.params) == set(params)
    for name, value in params.items():
        other = make_plan(Request(analysis=analysis, run=RUN, params={name: value}))
        assert plain.key != other.key, name


def test_parts_have_their_own_keys():
    parts = [
        part_key(RUN, statistic, part)
        for statistic in ("keys", "queries")
        for part in ("0", "1", "manifest", "checkpoint")
    ]
    assert 9 == len({*parts, REQUEST.key})


def test_equal_descriptions_have_equal_keys():
    copy = Request.model_validate_json(REQUEST.model_dump_json())
    turned = RunSpec.model_validate(dict(reversed(list(RUN.model_dump().items()))))
    assert (REQUEST.key, REQUEST) == (copy.key, copy)
    assert RUN.key() == turned.key()
    one, other = ({"skip": 4, "query": 11}, {"query": 11, "skip": 4})
    assert 1 == len({Request(analysis="kernel", run=RUN, params=p).key for p in (one, other)})


@pytest.mark.parametrize("params", [{}, {"skip": 4}, {"skip": np.int64(4)}, {"local_share": 0.5}])
def test_defaults_spelt_out(params):
    plain = make_plan(Request(analysis="etc", run=RUN))
    assert plain.key == make_plan(Request(analysis="etc", run=RUN, params=params)).key


def test_keys_begin_with_the_model_and_the_layout(monkeypatch):
    before, prefix = keys_of(RUN), specs.model_prefix("abc")
    assert all(key.startswith(prefix) for key in before)
    assert prefix != specs.model_prefix("abd")
    monkeypatch.setattr(specs, "SCHEMA", specs.SCHEMA + 1)
    assert not before & keys_of(RUN)
    assert prefix != specs.model_prefix("abc")


def asked(name, training_dir):
    fields = analyses.find(name).params.model_fields
    needed = {"head": "L0H0", "text": "a b", "word": " the", "words": "a", "neuron": 0, "query": 11}
    params = {field: value for field, value in needed.items() if field in fields}
    more = {
        "intervention": {"change": "remove"}, "helix": {"prompts": "texts"},
        "sink-anatomy": {"length": 23}, "conversations": {"text": None},
        "ablate-heads": {"heads": "L0H0"},
        **{each: {"maker": "copying"} for each in ("edges", "faithfulness")},
        **{name: {"clean": "a", "changed": "b"} for name in ("patch-heads", "patch-positions")},
    }  # fmt: skip
    params |= more.get(name, {})
    training = isinstance(analyses.find(name), OfCheckpoints)
    model = ModelSpec(name=str(training_dir)) if training else RUN.model
    return Request(analysis=name, run=RUN.model_copy(update={"model": model}), params=params)


@pytest.mark.parametrize("name", analyses.ANALYSES)
def test_what_a_question_ignores(name, training_dir):
    request = asked(name, training_dir)
    key = make_plan(request).key
    training = {"model": ModelSpec(name="demo-training")}
    changes = RUNS | (training if request.run.model != RUN.model else {})

    same = {
        field
        for field, value in changes.items()
        if key == make_plan(changed(request, "run", changed(request.run, field, value))).key
    }
    assert analyses.find(name).ignores == same


@pytest.mark.parametrize(
    "name", [name for name, each in analyses.ANALYSES.items() if not isinstance(each, Composition)]
)
def test_who_stands_on_attention(name, training_dir):
    needs = make_plan(asked(name, training_dir)).needs.values()
    attention = any(set(OF_PATTERNS) & set(run.gather) for run in needs)
    assert attention == ("pattern_windows" not in analyses.find(name).ignores)


@pytest.mark.parametrize("name", analyses.ANALYSES)
def test_canonical_is_canonical(name, training_dir):
    once = make_plan(asked(name, training_dir))
    sent = Request.model_validate_json(once.request.model_dump_json())
    for again in (make_plan(sent), Plan.read(sent.model_dump(mode="json"))):
        assert (once.key, once.params, once.needs) == (again.key, again.params, again.needs)


@pytest.mark.parametrize("positions", [(), (3, 3), (11, 3), (-1, 3)])
def test_positions_are_ascending(positions):
    with pytest.raises(InvalidField):
        changed(RUN, "positions", positions)


@pytest.mark.parametrize("spec", [MODEL, CORPUS, RUN, REQUEST, Execution()])
def test_descriptions_are_frozen(spec):
    with pytest.raises(ValueError, match="frozen"):
        setattr(spec, next(iter(type(spec).model_fields)), "other")
    with pytest.raises(InvalidField):
        changed(spec, "colour", "red")


@pytest.mark.parametrize(
    ("context", "also", "expected"),
    [
        (5, (), (0, 1, 2, 3, 4)),
        (64, (), (*range(1, 64, 2),)),
        (64, (10,), (1, 3, 5, 7, 9, 10, *range(11, 64, 2))),
        (1024, (), tuple(sorted({*range(31, 1024, 32), 400, 1000}))),
    ],
)
def test_default_positions(context, also, expected):
    """About 32 even steps up to the last, the posts' 400 and 1000, and what is asked for."""
    assert expected == specs.default_positions(context, *also)
