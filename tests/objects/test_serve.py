"""The dashboard of a lab: it computes where the model is, until the cell is interrupted."""

import os
import signal
import sys
import threading

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import poskernel_core as pk
from pages.shared.jobs import results
from poskernel_core import server
from poskernel_core.api import build_request
from poskernel_core.common.errors import ComputeDisabled
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.process import start_in_lab
from poskernel_core.models.attached import LAB
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.server import Dashboard
from poskernel_core.storage.store import Store
from tests.support.bound import bound, fine, opened_as_linked, words

RUN = {"windows": 10, "context": 37}

pytestmark = pytest.mark.usefixtures("near_worker", "unchecked")


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A model that is in no directory."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    results.engine.clear()  # pages of other tests may have opened another store
    folder = BUNDLED_MODELS["demo-gpt2"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.transformer.wte.weight[5] *= 2
    return pk.attach(model, AutoTokenizer.from_pretrained(folder), name="mine")


def test_a_dashboard_computes_here_until_it_is_interrupted(lab, monkeypatch, capsys):
    """Its engine gets the numbers of the lab; afterwards it says the line to run."""
    found, later = [], []

    def dashboard(line):
        monkeypatch.setenv(LAB, f"{line} {lab.model.fingerprint}")
        engine = Engine(Store(), start=start_in_lab())
        found.append(engine.result(build_request("etc", "mine", **RUN)[0]))
        os.kill(os.getpid(), signal.SIGINT)
        later.append(engine)

    def started(line, fingerprint, page, **query):
        assert (lab.model.fingerprint, "head", {"model": "mine"}) == (fingerprint, page, query)
        threading.Thread(target=dashboard, args=(os.dup(line),)).start()
        return Dashboard("http://localhost:1")

    monkeypatch.setattr(server, "serve_lab", started)
    lab.serve("head")
    assert "http://localhost:1" in capsys.readouterr().out
    here = lab.show("etc", **RUN)
    assert here.values["etc"].tobytes() == found[0].values["etc"].tobytes()
    line = r"run lab.show\('etc', windows=10, context=36, corpus='sample'\) there"
    with pytest.raises(ComputeDisabled, match=line):
        later[0].result(build_request("etc", "mine", windows=10, context=36)[0])
    later[0].close()


def test_who_is_stopped_takes_no_other_along(monkeypatch):
    """Whichever of a process's dashboards ends, the other one is found again."""
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(server, "command", lambda *_: waiting)
    monkeypatch.setattr(server, "_asked", lambda url: None)
    monkeypatch.setattr(server, "answers", lambda url: True)
    monkeypatch.setattr(server, "started", [])
    line = os.open(os.devnull, os.O_RDONLY)
    usual = server.serve("head")
    of_lab = server.serve_lab(line, "0123", "head")
    of_lab.stop()
    again = server.serve()
    assert usual.process is again.process
    other = server.serve_lab(line, "0123", "head")
    again.stop()
    assert other.process is server.serve().process
    other.stop()
    os.close(line)
    assert server.find() is None


def test_another_process_shows_what_is_stored(lab):
    """The run of the last answer is shown first; what is missing is told with its line."""
    lab.show("etc", **RUN)
    page = fine(opened_as_linked("etc_heatmap", model="mine"))
    assert "lab.show" not in words(page)
    page = fine(opened_as_linked("helix", model="mine"))
    assert "mine" in str(bound(page)["model"].value)
    assert "run lab.show('helix', windows=" in words(page)


def test_precompute(lab):
    """What the pages show first, as `precompute` does of a directory."""
    done = pk.precompute(lab, **RUN)
    assert {"etc", "previous-token", "sinks"} <= {*done}
