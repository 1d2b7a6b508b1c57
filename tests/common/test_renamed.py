"""Old names: each leads to a name that there is, and whoever uses one is told the new one."""

import json
import re
import shutil

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES, find
from poskernel_core.cli.main import main
from poskernel_core.cli.options import Run
from poskernel_core.common import renamed
from poskernel_core.common.errors import BadRequest, UnknownAnalysis, UnknownModel
from poskernel_core.common.specs import ModelSpec, Request, RunSpec
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import check_params
from poskernel_core.models.catalog import locate
from poskernel_core.models.curated import BUNDLED_MODELS
from tests.support.server import ROOT

MODEL = "demo-gpt2"
KEYS = {
    key
    for file in (ROOT / "pages").rglob("*.py")
    for key in re.findall(r'"(\w+)"', file.read_text("utf-8"))
}
FIELDS = [
    *(set(question.params.model_fields) for question in ANALYSES.values()),
    set(RunSpec.model_fields),
    set(Run.__annotations__),
]
VALUES = {v.name for each in ANALYSES.values() for v in (*each.values, *each.texts)}
MEASURES = {declared.title for each in ANALYSES.values() for declared in each.measures}


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (renamed.QUESTIONS, set(ANALYSES)),
        (renamed.PARAMETERS, set().union(*FIELDS)),
        (renamed.VALUES, VALUES),
        (renamed.MEASURES, MEASURES),
        (renamed.MODELS, {*BUNDLED_MODELS}),
        (renamed.KEYS, KEYS),
    ],
)
def test_every_new_name_exists(table, known):
    assert set(table.values()) <= known
    assert not table.keys() & set(table.values())


def test_choices_exist():
    """In the classes that take them; those of addresses are of keys that are bound."""
    for name, choices in renamed.CHOICES.items():
        offered = [
            json.dumps(each.params.model_json_schema()["properties"][name])
            for each in ANALYSES.values()
            if name in each.params.model_fields
        ]
        assert offered
        assert all(f'"{new}"' in each for new in choices.values() for each in offered)
    assert renamed.SHOWN.keys() <= KEYS


def test_questions(capsys):
    old = next(iter(renamed.QUESTIONS))
    sentence = f"'{old}' is called '{renamed.QUESTIONS[old]}' now"
    with pytest.raises(UnknownAnalysis, match=rf"^{sentence}\.$"):
        find(old)
    assert 2 == main(["show", old, MODEL])
    assert capsys.readouterr().err.startswith(sentence)


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("induction-recency", {"silence": "L0H0"}, "'silence' is called 'ablate' now."),
        ("denominators", {"places": 3, "own": "a"}, "'places' is called 'n_positions' now."),
        ("induction-recency", {"ablation": "output"}, "'output' is called 'zero' now."),
        ("etc", {"samples": 3}, "Parameter 'samples' of 'etc': there is no such one, got 3."),
        ("etc", {"skip": "output"}, "Parameter 'skip' of 'etc': "),
    ],
)
def test_parameters(name, given, sentence):
    with pytest.raises(BadRequest) as error:
        check_params(find(name), given)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("induction-recency", MODEL, "--silence", "L0H0"), "'--silence' is called '--ablate' now"),
        (("kernel", MODEL, "--cell=L0H0"), "'--cell' is called '--head' now"),
        (("etc", MODEL, "--silence", "L0H0"), "No such option '--silence'"),
    ],
)
def test_options(capsys, given, sentence):
    assert 2 == main(["show", *given])
    assert capsys.readouterr().err.startswith(sentence)


def test_values():
    question = find("kernel")
    shape = {"layer": 1, "head": 1, "key": 2}
    arrays = {
        value.name: np.zeros([shape[axis] for axis in value.axes]) for value in question.values
    }
    found = (
        type(question)
        .result(question.params(query=3), arrays, {"attention_distance": np.zeros((1, 1))})
        .select(layer=0)
    )
    said = "'fidelity' is called 'attention_distance' now"
    for part in (found.values, found.errors):
        with pytest.raises(KeyError, match=said):
            part["fidelity"]
    with pytest.raises(BadRequest, match=said):
        found.only("fidelity")
    with pytest.raises(KeyError, match=r"^'spread'$"):
        found.values["spread"]
    assert found.values.get("fidelity") is None


@pytest.mark.parametrize("old", renamed.MODELS)
def test_models(old, capsys, tmp_path, monkeypatch, near_worker, fresh_engine):
    sentence = f"'{old}' is called '{renamed.MODELS[old]}' now."
    run = describe_run(MODEL, windows=50, context=64)
    before = run.model_copy(update={"model": ModelSpec(name=old, fingerprint="0" * 64)})
    for ask in (
        lambda: pk.load(old),
        lambda: pk.show("etc", old),
        lambda: pk.show("over-training", old),
        lambda: pk.show("compare-kernels", MODEL, params={"heads": f"L0H0,L0H1@{old}"}),
        lambda: fresh_engine.result(Request(analysis="etc", run=before)),
    ):
        with pytest.raises(UnknownModel) as error:
            ask()
        assert sentence == str(error.value)
    monkeypatch.setenv("POSKERNEL_MODELS", "")  # which serving sets
    for words in (("show", "etc"), ("precompute",), ("serve", "--model"), ("reproduce",)):
        assert 2 == main([*words, old])
        assert capsys.readouterr().err.startswith(sentence)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(locate(MODEL).directory, old)
    assert old == locate(old).spec.name
