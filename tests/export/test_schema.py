"""The published form of answers: what `show --json` prints has it, and what is wrong is refused."""

import json
from copy import deepcopy
from functools import cache

import pytest
from jsonschema import Draft202012Validator, ValidationError

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.api import build_request
from poskernel_core.cli import main as cli
from poskernel_core.common.specs import Request
from poskernel_core.engine.provenance import from_entry
from poskernel_core.export.files import to_json
from poskernel_core.models.stored import RESULTS
from poskernel_core.storage.shipped import ASKED_FILE, Shipped

pytestmark = pytest.mark.usefixtures("near_workers")

MODEL = "demo-attn-2l"
TEXT = "And the king said to the people of the land."
LARGE = 10**6
"""Bytes above which one head of an answer stands for all."""
COMPOSED = {
    # what is combined of shipped answers: its model and parameters
    "near-kernels": (MODEL, {}),
    "head-measures": (MODEL, {}),
    "verdicts": (MODEL, {}),
    "depth": (MODEL, {"measure": "attention entropy"}),
    "compare-heads": (MODEL, {"heads": "L0H1,L1H1@demo-gpt2"}),
    "over-training": ("demo-training", {"measure": "kind of kernel"}),
    "kernel-over-training": ("demo-training", {}),
}
PAIR = {"clean": "the king saw the day; the", "changed": "the day saw the king; the"}
PAIR |= {"answer": " king", "other_answer": " day"}
NEURONS = {"query": 11, "heads": "L0H0", "first_windows": 10}
FEW = {"kernel_windows": 5, "loss_windows": 5}
COMPUTED = {
    # no answer is shipped: its model and parameters
    "headvis": (MODEL, {}),
    "head-examples": (MODEL, {}),
    "averaging": ("demo-gpt2", {"loss_windows": 2}),
    "own-text": (MODEL, {"text": TEXT}),
    "own-text-head": (MODEL, {"text": TEXT, "head": "L0H1"}),
    "score-components": (MODEL, {"text": TEXT, "head": "L0H1"}),
    "head-writes": (MODEL, {"text": TEXT, "head": "L0H1"}),
    "logit-contributions": (MODEL, {"text": TEXT}),
    "copying": (MODEL, {"texts": 4, "frequent": 50}),
    "extended-embedding": ("demo-gpt2", NEURONS | {"word": " the"}),
    "word-neurons": ("demo-gpt2", NEURONS | {"words": "king"}),
    "equalised-norms": (MODEL, {"samples": 5, "random_length": 9}),
    "changed-bands": ("rotary", {"loss_windows": 2}),
    "kernel-replicates": (MODEL, {"query": 11}),
    "compare-kernels": (MODEL, {"query": 11, "heads": "L0H0,L0H1"}),
    "how-many-texts": (MODEL, {"query": 11}),
    "patch-heads": ("demo-gpt2", PAIR),
    "patch-positions": ("demo-gpt2", PAIR | {"head": "L2"}),
    "conversations": ("talking", {"conversations": 3}),
    "edges": ("demo-gpt2", {"maker": "copying", "count": 11, "head": "L1H2"}),
    "faithfulness": ("demo-gpt2", {"maker": "copying", "count": 11, "kernel_windows": 5}),
    "kernel-only-cost": (MODEL, FEW),
    "kernel-only-head": (MODEL, FEW | {"head": "L0H1"}),
    "heads-replaced": (MODEL, FEW),
    "ablate-heads": (MODEL, FEW | {"heads": "L0H1,L1H6", "by": "resample", "samples": 5}),
}


@cache
def shipped_answers():
    """The smallest shipped answer to each question, by its name."""
    folders, smallest = sorted(RESULTS.iterdir()), {}
    for folder in folders:
        sizes = {file.stem.split("-")[-1]: file.stat().st_size for file in folder.iterdir()}
        for asked in json.loads((folder / ASKED_FILE).read_text()).values():
            for one in map(Request.model_validate, asked):
                found = (sizes[one.key.split("-")[-1]], one.key)
                smallest[one.analysis] = min(found, smallest.get(one.analysis, found))
    shipped = Shipped(folders)
    return {name: from_entry(shipped.get(key)) for name, (_, key) in smallest.items()}


def printed(answer):
    if answer.nbytes > LARGE:
        answer = answer.select(layer=1, head=1)
    return json.loads(to_json(answer), parse_constant=pytest.fail)


@cache
def validator(name, live=False):
    form = pk.schema(name, live=live)
    Draft202012Validator.check_schema(form)
    return Draft202012Validator(form)


def valid(name, answer, **kind):
    validator(name, **kind).validate(answer)


@pytest.mark.parametrize("name", ANALYSES)
def test_answers(name, request):
    """Shipped ones, what is combined of them, and what is computed here."""
    if name in COMPOSED:
        model, params = COMPOSED[name]
        asked, shipped = (
            build_request(name, model, params=params)[0],
            request.getfixturevalue("shipped"),
        )
        if missing := ",".join(shipped.missing(asked)):
            asked, _ = build_request(name, model, params=params | {"leave_out": missing})
        answer = shipped.cached(asked)
    elif name in COMPUTED:
        model, params = COMPUTED[name]
        made = model in ("rotary", "talking")
        model = request.getfixturevalue(model) if made else model
        given = {"context": 32, "windows": 10, "params": params}
        answer = pk.show(name, model, engine=request.getfixturevalue("engine"), **given)
    else:
        answer = shipped_answers()[name]
    valid(name, printed(answer))


def test_parts_of_an_answer(engine):
    for chosen in ({"head": "L1H2"}, {"query": 31}, {"head": "L1H2", "query": 31}):
        found = printed(pk.show("etc", MODEL, context=32, windows=10, engine=engine, **chosen))
        assert bool(found["at"])
        valid("etc", found)


BREAKS = {
    "a missing value": lambda a: a["values"].pop("etc"),
    "a missing part": lambda a: a.pop("axes"),
    "a missing unit": lambda a: a["units"].pop("etc"),
    "an axis too few": lambda a: a["values"].update(etc=a["values"]["etc"][0]),
    "an axis too many": lambda a: a["values"].update(etc=[a["values"]["etc"]]),
    "an error with an axis too few": lambda a: a["errors"].update(etc=a["errors"]["etc"][0]),
    "other axes": lambda a: a["axes"].update(etc=["head", "layer", "query"]),
    "another unit": lambda a: a["units"].update(etc="characters"),
    "a label of no kind": lambda a: a["values"]["kind"][0][0].__setitem__(0, "fast"),
    "a text for a number": lambda a: a["values"]["etc"][0][0].__setitem__(0, "12"),
    "a value of its own": lambda a: a["values"].update(mine=1.0),
    "a field of its own": lambda a: a.update(mine=1.0),
    "an error where none is declared": lambda a: a["errors"].update(kind=a["errors"]["etc"]),
    "a head that is not told": lambda a: a["at"].update(layer=0, head=0),
    "another question": lambda a: a.update(analysis="kernel"),
    "a parameter out of bounds": lambda a: a["run"]["params"].update(skip=33),
    "a missing parameter": lambda a: a["run"]["params"].pop("skip"),
    "an origin without a model": lambda a: a["run"].pop("model"),
}


@pytest.fixture(scope="module")
def right():
    return printed(shipped_answers()["etc"])


@pytest.mark.parametrize("what", BREAKS)
def test_a_wrong_answer_is_refused(what, right):
    wrong = deepcopy(right)
    BREAKS[what](wrong)

    assert right != wrong
    with pytest.raises(ValidationError):
        valid("etc", wrong)


def test_the_command(capsys):
    assert 0 == cli.main(["schema"])
    every = json.loads(capsys.readouterr().out)
    assert [*ANALYSES] == [*every]
    assert 0 == cli.main(["schema", "--live", "kernel"])
    assert pk.schema("kernel", live=True) == json.loads(capsys.readouterr().out)
    assert pk.schema("kernel") == every["kernel"]

    assert 2 == cli.main(["schema", "nothing"])
    assert "No analysis 'nothing'" in capsys.readouterr().err
