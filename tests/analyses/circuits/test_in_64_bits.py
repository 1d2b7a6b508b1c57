"""Edges, faithfulness and effects over sets, where ours and plain transformers have 64 bits."""

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.analyses.circuits.spec import KEPT, REMOVED, Edges, Faithfulness
from poskernel_core.analyses.patching.spec import PatchHeads
from poskernel_core.common.heads import parse_cell
from poskernel_core.forward.loaded import ModuleState
from tests.analyses.patching.test_sets import by_hooks, ratio
from tests.support.builders import hf_eager_model
from tests.support.builders.contextual import some_windows
from tests.support.circuits import Exchanged, Fed, random_rows, subject_of, table
from tests.support.raw import of_all_texts

WAYS = {"gpt2": "clean-into-changed", "llama": "changed-into-clean"}
NEAR = {"abs": 1e-8, "rel": 0}


@pytest.fixture(params=WAYS)
def kind(request):
    return request.param


@pytest.fixture
def rows(model_dirs, kind):
    return random_rows(model_dirs[kind], count=5)


@pytest.fixture
def ask(model_dirs, kind, rows, monkeypatch):
    """Ask a question about the rows; from then on, whatever says 32 bits gets 64."""
    model, usual = pk.load(str(model_dirs[kind]), device="cpu"), torch.get_default_dtype()

    def answer(question, windows, *plain, **params):
        for module in (model.module, *plain):
            module.double()
        model.state = ModuleState(model.module)
        torch.set_default_dtype(torch.float64)
        for name in ("float", "float32"):
            monkeypatch.setattr(torch, name, torch.float64)
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
        asked = question.params(pairs=table(rows), **params)
        subject = subject_of(model, windows, batch=4)
        return of_all_texts(question().perform(subject, {}, asked, lambda done, total: None))

    yield answer
    torch.set_default_dtype(usual)


def test_edges(model_dirs, kind, rows, ask):
    """Of four senders and all of them together, by query, key and value."""
    plain, way = Fed(model_dirs[kind]), WAYS[kind]
    found = ask(Edges, np.zeros((1, 5), dtype=int), plain.model, head="L2H1", direction=way)
    pairs = [(row[:2] if way.startswith("changed") else row[1::-1], row[2:4]) for row in rows]
    apart = sum(plain.margin(both[1], ids) - plain.margin(both[0], ids) for both, ids in pairs)
    senders = found.words("sender")
    for side, sender in [(0, "embeddings"), (1, "L0H1"), (2, "L1H3"), (0, "MLP 1"), (1, None)]:
        expected = sum(plain.edge(*both, ids, (2, 1), side, sender) for both, ids in pairs) / apart
        edges = found.values["whole" if sender is None else "edge"][0, side]
        edge = edges if sender is None else edges[senders.index(sender)]
        assert expected == pytest.approx(float(edge), **NEAR)


def test_faithfulness(model_dirs, kind, rows, ask):
    """With the first heads kept or removed, by the rankings of both halves."""
    plain, windows = Exchanged(model_dirs[kind]), some_windows(7, 11, True)
    found = ask(Faithfulness, windows, plain.model, skip=3)
    every = [*np.ndindex(3, plain.count)]
    rankings = [[parse_cell(each, 3, plain.count) for each in half]
                for half in found.texts["ranking"]]  # fmt: skip

    def margins(curve, count):
        total = []
        for at, (clean, changed, *answers, _) in enumerate(rows):
            order = rankings[at % 2]
            left_out = order[:count] if curve == REMOVED else order[count:]
            outputs = plain.outputs(changed)
            with torch.no_grad():
                given = {cell: np.asarray(outputs[cell]) for cell in left_out}
                total.append(float(plain.margin(clean, answers, given)))
        return sum(total)

    none, whole = margins(KEPT, 0), margins(KEPT, len(every))
    counts = found.coordinates["first"].tolist()
    for curve in (KEPT, REMOVED):
        place = found.words("curve").index(curve)
        for count in (1, 2, 5, 9, 14):
            expected = (margins(curve, count) - none) / (whole - none)
            recovered = found.values["recovered"][place, counts.index(count)]
            assert expected == pytest.approx(float(recovered), **NEAR)


def test_a_set(model_dirs, kind, rows, ask):
    """The exact effects of all heads, more than twelve."""
    plain, way = hf_eager_model(model_dirs[kind]), WAYS[kind]
    found = ask(PatchHeads, [[0]], plain, direction=way, exact="all")
    names = "clean", "changed", "answer", "other_answer"
    texts = [(*(" ".join(map(str, ids)) for ids in row[:2]), *row[2:4]) for row in rows]
    written = [dict(zip(names, row, strict=True)) for row in texts]
    effect = found.plug_ins["effect"]
    moved, ends = by_hooks(plain, kind, written, way, effect.shape[1])
    of = (ends[:, 0] - ends[:, 1]) * (1 if kind == "gpt2" else -1)
    assert effect.size > 12
    np.testing.assert_allclose(effect, ratio(moved, of), rtol=0, atol=1e-8)
