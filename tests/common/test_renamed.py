"""A renamed model: its old name leads to it, unless a folder here has that name."""

import shutil

import pytest

import poskernel_core as pk
from pages.shared.choices.links import forwarded
from poskernel_core.analyses.comparison.spec import pinned_heads
from poskernel_core.cli.main import main
from poskernel_core.common.outside import from_outside
from poskernel_core.common.renamed import MODELS
from poskernel_core.engine.engine import describe_run
from poskernel_core.models.catalog import entries, locate
from poskernel_core.models.curated import CURATED

MODEL = "demo-gpt2"


def test_every_new_name_exists():
    assert set(MODELS.values()) <= {entry.name for entry in CURATED}
    assert not MODELS.keys() & set(MODELS.values())


@pytest.mark.parametrize("old", MODELS)
def test_models(old, capsys, tmp_path, monkeypatch, shipped):
    new = MODELS[old]
    assert locate(new).spec == locate(old).spec
    assert describe_run(new) == describe_run(old)
    whole, same = (pk.show("etc", name, engine=shipped) for name in (new, old))
    assert whole.fingerprint == same.fingerprint
    runs = [
        [head.run for head in pinned_heads(describe_run(MODEL), f"L0H0,L0H1@{name}", 60)]
        for name in (new, old)
    ]
    assert runs[0] == runs[1]
    assert {"model": [new], "pins": [f"L0H0@{new}"]} == forwarded(
        {"model": [old], "pins": [f"L0H0@{old}"]}, ""
    )
    assert 0 == main(["show", "etc", old, "--head", "L0H1"])
    assert new in capsys.readouterr().out

    monkeypatch.setenv("POSKERNEL_MODELS", f"gpt2, {old}")
    assert ["gpt2", new] == [entry.name for entry in entries()[:2]]
    with from_outside():
        assert new == locate(old).spec.name

    monkeypatch.chdir(tmp_path)
    shutil.copytree(locate(MODEL).directory, old)
    assert old == locate(old).spec.name
