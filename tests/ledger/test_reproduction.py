"""Computing the ledger: right and deliberately broken models, runs, and the command line."""

import json

import pytest

from poskernel_core.cli import main as cli
from poskernel_core.ledger.reproduce import compare, request_for
from tests.ledger.test_ledger import TABLE, figure
from tests.support import builders

pytestmark = pytest.mark.usefixtures("near_worker")

BACK, LENGTH = 3, 13
KNOWN = [
    {
        "id": "offset", "figure": "How far back L0H0 looks", "value": "largest_offset",
        "select": {"condition": 1, "layer": 0, "head": 0}, "published": BACK,
    },
    {
        "id": "row", "figure": "L0H0 from query 9", "value": "pattern", "absolute": 1e-3,
        "select": {"condition": 0, "layer": 0, "head": 0, "query": 9},
        "published": [0.0] * 6 + [1.0] + [0.0] * 3,
    },
    {
        "id": "uniform", "figure": "L0H1 from query 9", "value": "pattern", "relative": 1e-3,
        "select": {"condition": 0, "layer": 0, "head": 1, "query": 9}, "published": [0.1] * 10,
    },
]  # fmt: skip


@pytest.fixture
def ledger(tmp_path, monkeypatch, capsys):
    """The ledger of a model that looks back so far, as the command line prints it."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    common = {
        "models": ["known"], "source": "by construction", "question": "position-vs-token",
        "run": {"start_token": True}, "params": {"length": LENGTH, "samples": 4},
    }  # fmt: skip
    file = tmp_path / "figures.json"
    file.write_text(json.dumps([common | each for each in KNOWN]))

    def one(back, *options, name="known"):
        model = builders.look_back(tmp_path / f"back-{back}", back)
        code = cli.main(["reproduce", str(model), "--as", name, "--figures", str(file), *options])
        assert 0 == code
        return capsys.readouterr().out

    return one


@pytest.mark.slow
def test_a_right_and_a_broken_model(ledger):
    right = json.loads(ledger(BACK, "--json"))
    broken = json.loads(ledger(BACK + 2, "--json"))

    assert ["agrees"] * 3 == [line["verdict"] for line in right]
    assert ["differs", "differs", "agrees"] == [line["verdict"] for line in broken]
    assert [BACK, BACK + 2] == [lines[0]["ours"] for lines in (right, broken)]
    assert 1.0 == pytest.approx(broken[1]["worst"], abs=1e-3)


def test_a_model_without_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    assert 2 == cli.main(["reproduce", "demo-gpt2", "--as", "gpt3"])
    said = capsys.readouterr()
    known = "there are some of attn-only-2l, distilgpt2, gpt2"
    assert f"No figures were published for 'gpt3'; {known}" in said.err
    assert "" == said.out
    assert 0 == cli.main(["reproduce", "demo-gpt2"])
    assert "No figures were published for 'demo-gpt2'" in capsys.readouterr().out


def test_the_figure_decides_on_its_run():
    asked = figure(run={"start_token": False, "context": 64, "corpus": "bible"})

    request = request_for(asked, "demo-attn-2l", start_token=True, windows=7)

    run = request.run
    assert (False, 64, "bible", 7) == (run.start_token, run.context, run.corpus.name, run.windows)


def test_a_run_that_is_none():
    runs = {"model": "x"}, {"windows": "many"}, {"seed": -3}, {"colour": 1}, {"context": "abc"}
    for run in runs:
        lines = list(compare("demo-gpt2", [figure(run=run), figure(id="two")], lambda _: TABLE))
        assert "not computed" == lines[0].verdict
        assert "The figure's run" in lines[0].why
        assert "two" == lines[1].figure.id
