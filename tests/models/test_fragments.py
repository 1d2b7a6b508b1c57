"""Parts of models: what they lack is refused in one sentence, and what they have is compared."""

import json

import numpy as np
import pytest

from pages.shared.jobs import results
from poskernel_core import analyses
from poskernel_core.api import build_request
from poskernel_core.cli import main as cli
from poskernel_core.common.errors import NotInModel
from poskernel_core.ledger.published import figures_of
from poskernel_core.ledger.reproduce import published_name, request_for
from poskernel_core.models import catalog, curated, fragments
from tests.support.bound import bound, opened_as_linked
from tools.recorded import open_page

PART, WHOLE = "gpt2-small-layer0", "gpt2"
WHOLE_ONLY = ("interventions", "induction_recency", "contextual_neurons")
NEEDED = {
    "intervention": {"text": "a b", "change": "remove"}, "averaging": {}, "induction-scores": {},
    "induction-recency": {}, "recency-patterns": {}, "equalised-norms": {}, "position-zero": {},
    "contextual-neurons": {}, "neuron": {}, "extended-embedding": {"word": " the"},
    "token-weights": {},
}  # fmt: skip


@pytest.mark.parametrize("question", NEEDED)
def test_refused_without_loading(fresh_engine, question):
    fields = analyses.find(question).params.model_fields
    params = NEEDED[question] | ({"head": "L0H0"} if "head" in fields else {})
    request, _ = build_request(question, PART, params=params)

    with pytest.raises(NotInModel, match=r"part of 'gpt2', without its .*'demo-gpt2'"):
        fresh_engine.submit(request)
    assert fresh_engine.worker_pid is None


def test_whole_models_lack_nothing():
    for name in curated.BUNDLED_MODELS:
        expected = name == PART
        assert expected == bool(fragments.lacks(catalog.locate(name).config))
    for strange in ("text", {"lacks": "neurons"}, {"part_of": 3, "lacks": ["neurons"]}, None):
        assert fragments.why_not("m", {"poskernel": strange}, ("neurons",)) is None


@pytest.mark.slow
def test_said_on_pages(shipped_engine, monkeypatch):
    """Every page runs with this model in `tests/storage/test_shipped.py`."""
    monkeypatch.setattr(results, "engine", lambda: shipped_engine)
    app = opened_as_linked(model=PART)

    for name in ("etc_heatmap", *WHOLE_ONLY):
        open_page(app, name)
        assert ([], []) == ([*app.exception], [*app.error])
        assert PART == bound(app)["model"].value
        assert any("token embeddings are random" in each.value for each in app.caption), name
        told = [each for each in app.info if "needs them\\: choose a whole model" in each.value]
        assert (name in WHOLE_ONLY) <= len(told) <= 1, name
    assert shipped_engine.worker_pid is None


def test_its_note():
    assert "token embeddings are random" in catalog.note_of(PART)
    assert "" == catalog.note_of("demo-gpt2") == catalog.note_of("elsewhere")


def test_its_ledger_is_the_whole_models():
    assert WHOLE == published_name(PART)
    assert ["demo-gpt2", "gpt2"] == [published_name(name) for name in ("demo-gpt2", "gpt2")]


@pytest.mark.parametrize("figure", figures_of(WHOLE), ids=lambda figure: figure.id)
def test_figures_that_need_more(figure):
    """A figure that names a later layer, or is over all heads, needs later layers."""
    deep = any(not cell.startswith("L0") for cell in figure.heads)
    deep |= figure.params.get("head", "L0").split("H")[0] != "L0"
    deep |= bool(figure.select.get("layer_2") or figure.select.get("layer"))
    deep |= figure.value == "share_previous" or figure.question == "induction-scores"

    assert deep == ("later layers" in figure.needs)
    if figure.needs:
        with pytest.raises(NotInModel):
            request_for(figure, PART)
    else:
        assert figure.question == request_for(figure, PART).analysis


def test_reproduce_holds_a_part_against_the_whole(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    figures = [
        each.model_dump(mode="json") for each in figures_of(WHOLE) if "later layers" in each.needs
    ]
    (tmp_path / "figures.json").write_text(json.dumps(figures))

    assert 0 == cli.main(["reproduce", PART, "--figures", str(tmp_path / "figures.json")])
    text = capsys.readouterr().out
    assert len(figures) == text.count("without its later layers")


def test_weights_are_exact():
    from safetensors.numpy import load_file

    from poskernel_core.forward import loading

    located = catalog.locate(PART)
    stored = load_file(located.directory / "model.safetensors")
    model = loading.load(located, "cpu")

    assert {"float16"} == {str(array.dtype) for array in stored.values()}
    state = model.module.state_dict()
    for name, array in stored.items():
        assert (state[name].numpy() == array.astype(np.float32)).all(), name
    tokens = stored["transformer.wte.weight"].astype(np.float64)
    assert 2 == len(np.unique(tokens))
    assert 3.5 == pytest.approx(np.linalg.norm(tokens[0]), rel=1e-3)


def test_card_and_licence():
    directory = catalog.locate(PART).directory
    assert "**drawn at random**" in (directory / "README.md").read_text("utf-8")
    assert "Copyright (c) 2019 OpenAI" in (directory / "LICENSE").read_text("utf-8")
