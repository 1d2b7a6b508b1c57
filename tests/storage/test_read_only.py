"""A server that computes nothing new: every page shows what there is, and promises nothing else."""

import pytest

from pages.shared.jobs import results
from poskernel_core.cli.main import main
from poskernel_core.common.errors import ComputeDisabled
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.storage.store import Store
from tests.support.bound import opened_as_linked
from tools.recorded import page_names

MODEL = "demo-gpt2"
MORE = {
    "compare": {
        "pins": "L0H0@demo-gpt2;windows=50;context=64,L1H1@demo-gpt2;windows=50;context=64"
    },
    "methods": {"part": "Reproduction ledger", "published": "gpt2", "compute": "true"},
    "own_text": {"text": "blue fire water; blue fire"},
    "over_training": {"model": "demo-training"},
}
PROMISES = ("compute", "look at", "try again", "wait for")


@pytest.fixture
def engine(fresh_engine, monkeypatch):
    monkeypatch.setenv("POSKERNEL_READ_ONLY", "1")
    monkeypatch.setattr(results, "engine", lambda: fresh_engine)
    monkeypatch.setattr("pages.own_text.page.engine", lambda: fresh_engine)
    return fresh_engine


@pytest.mark.parametrize("name", page_names())
def test_a_page_of_what_is_not_there(engine, name, model_dirs, monkeypatch):
    """It says so in a sentence that names what is missing; no button, no worker, no entry."""
    asked = {"model": MODEL, "windows": "50", "context": "64"} | MORE.get(name, {})
    if name == "rotary_spectrum":
        monkeypatch.setenv("POSKERNEL_MODELS", str(model_dirs["llama"]))
        asked = {"model": str(model_dirs["llama"])}
    app = opened_as_linked(name, **asked)
    said = [each.value for each in [*app.info, *app.caption]]

    assert [] == [each.value for each in [*app.exception, *app.error]]
    assert (name == "methods") == bool(app.warning)  # figures published for another model
    assert any("shows what was computed before" in each for each in said)
    labels = [each.label.lower() for each in [*app.button, *app.toggle]]
    assert [] == [each for each in labels if each.startswith(PROMISES)]
    boxes = [each.value for each in app.info]
    assert len(set(boxes)) == len(boxes)
    assert 0 == len(app.get("progress"))
    assert engine.worker_pid is None
    assert [] == list(engine.store.keys())


def test_a_text_is_not_kept(engine):
    app = opened_as_linked("own_text", model=MODEL, text="blue fire")
    assert "blue fire" == app.query_params["text"] == app.text_area[0].value


@pytest.mark.parametrize("way", [("--shard", "0/2"), ("--shards", "2"), ("--devices", "cpu")])
def test_shards_are_refused(tmp_path, monkeypatch, capsys, way):
    monkeypatch.setenv("POSKERNEL_READ_ONLY", "1")
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    told = []
    for each in ((), way):
        code = main(["precompute", MODEL, "--windows", "3", "--context", "32", *each])
        told.append((code, capsys.readouterr().err))

    assert told[0] == told[1]
    assert (2, 1) == (told[0][0], told[0][1].count("\n"))
    assert told[0][1].startswith("This server shows what was computed before")
    assert [] == list(Store(tmp_path).keys(""))


def test_the_engine_refuses(engine):
    run = describe_run(MODEL, windows=50, context=64)
    for analysis, params in (
        ("etc", {}),
        ("head-measures", {}),
        ("random-attention", {"samples": 10, "length": 8}),
        ("own-text", {"text": "blue fire"}),
        ("intervention", {"text": "a b a b", "head": "L0H0", "change": "ablate"}),
    ):
        with pytest.raises(ComputeDisabled, match=r"^This server shows what was computed before"):
            engine.submit(Request(analysis=analysis, run=run, params=params), "anna")
    assert engine.worker_pid is None
