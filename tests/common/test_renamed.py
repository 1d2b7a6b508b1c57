"""A renamed model: whoever names it by its old name is told the new one."""

import shutil

import pytest

import poskernel_core as pk
from poskernel_core.cli.main import main
from poskernel_core.common.errors import UnknownModel
from poskernel_core.common.renamed import MODELS
from poskernel_core.common.specs import ModelSpec, Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.models.catalog import locate
from poskernel_core.models.curated import BUNDLED_MODELS

MODEL = "demo-gpt2"


def test_every_new_name_exists():
    assert set(MODELS.values()) <= {*BUNDLED_MODELS}
    assert not MODELS.keys() & set(MODELS.values())


@pytest.mark.parametrize("old", MODELS)
def test_models(old, capsys, tmp_path, monkeypatch, near_worker, fresh_engine):
    sentence = f"'{old}' is called '{MODELS[old]}' now."
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
