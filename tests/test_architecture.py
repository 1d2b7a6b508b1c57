"""The programs in ARCHITECTURE.md run."""

import ast
import inspect
import json
import re

import plotly.graph_objects as go

from poskernel_core.analyses import find
from poskernel_core.analyses.views import figure_of
from poskernel_core.api import run_pass
from poskernel_core.common.specs import CorpusSpec, Execution, Request
from poskernel_core.data.corpora import token_windows
from poskernel_core.engine.admission import check_plan
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.execute import compute, gather_missing
from poskernel_core.engine.plan import Plan, make_plan, to_compute
from poskernel_core.engine.provenance import stored, to_entry
from poskernel_core.engine.queue import Queue, Task
from poskernel_core.forward.loading import load
from poskernel_core.models.catalog import locate
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.store import Store
from tests.support import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


PROGRAMS = [body for language, body in BLOCK.findall(TEXT) if language == "python"]


def test_the_program_in_one_piece_runs(tmp_path) -> None:
    program = PROGRAMS[0]
    store = Store(tmp_path)
    names = {
        "CorpusSpec": CorpusSpec, "figure_of": figure_of, "find": find, "load": load,
        "load_tokenizer": load_tokenizer, "locate": locate, "run_pass": run_pass, "store": store,
        "to_entry": to_entry, "token_windows": token_windows,
    }  # fmt: skip
    exec(program, names)

    assert isinstance(names["figure"], go.Figure)
    assert (4, 8) == names["result"].select(query=63).values["etc"].shape
    assert store.get("a key") is not None
    store.close()


def called(line, names):
    for node in ast.walk(ast.parse(line)):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield names[name]
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
                yield getattr(names[name], method)


def test_the_walk_of_a_request_runs(tmp_path) -> None:
    """Line by line, each in the file that it names; stages are reached on the way."""
    program, store, reached = PROGRAMS[1], Store(tmp_path), []

    def on_stage(stage):
        reached.append(stage.windows)
        return False

    names = {
        "Plan": Plan, "Request": Request, "check_plan": check_plan, "compute": compute,
        "context": WorkerContext(store), "describe_run": describe_run,
        "execution": Execution(device="cpu"), "gather_missing": gather_missing, "json": json,
        "make_plan": make_plan, "on_stage": on_stage, "queue": Queue(), "store": store,
        "Task": Task, "report": lambda done, total, note: None, "stored": stored,
        "to_compute": to_compute,
    }  # fmt: skip
    exec(program, names)

    assert "etc" == names["result"].analysis
    assert [4, 8, 10] == reached
    lines = program.splitlines()
    assert 10 == len(lines)
    files = []
    for line in lines:
        files.append(line.partition("#")[2].split()[0].strip(":"))
        sources = map(inspect.getsourcefile, map(inspect.unwrap, called(line, names)))
        assert any(source.endswith(f"poskernel_core/{files[-1]}") for source in sources), line
    assert 6 == len(set(files))
    store.close()
