"""What determines a result is in its key, and is checked again when the work begins."""

import shutil

import numpy as np
import pytest

from poskernel_core.common.errors import BadRequest, UnknownModel
from poskernel_core.common.specs import CorpusSpec, Execution
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import catalog
from poskernel_core.passes.runner import gather_run
from poskernel_core.passes.streaming import default_batch
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.store import Store
from tests.support.builders import random_ids


@pytest.fixture
def copied(tmp_path, model_dirs):
    """A model directory of our own to spoil."""
    return shutil.copytree(model_dirs["gpt2"], tmp_path / "model")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_every_file_is_in_the_fingerprint(copied, name):
    """Weights, configuration and tokenizer all change what is computed."""
    before = catalog.locate(str(copied)).spec.fingerprint
    file = copied / name
    data = file.read_bytes()
    changed = {
        "model.safetensors": data[:-1] + bytes([data[-1] ^ 1]),  # the last weight, not the header
        "config.json": data.replace(b"1e-05", b"2e-05"),  # of the layer norms
        "tokenizer.json": data.replace(b"0", b"1", 1),
    }[name]
    assert changed != data
    file.write_bytes(changed)
    assert before != catalog.locate(str(copied)).spec.fingerprint


@pytest.mark.parametrize("what", ["model", "corpus"])
def test_files_that_change_meanwhile(copied, tmp_path, what):
    """Nothing is stored under the key of files that are no longer there."""
    ids = tmp_path / "ids.npy"
    np.save(ids, random_ids(3, 11).numpy())
    run = describe_run(
        str(copied), corpus=CorpusSpec(name=str(ids)), context=11, windows=3, start_token=False
    )
    if what == "model":
        (copied / "tokenizer_config.json").write_text("{}", "utf-8")
    else:
        np.save(ids, random_ids(3, 11, seed=1).numpy())
    store = Store(tmp_path / "store")
    with pytest.raises(BadRequest, match="changed meanwhile"):
        gather_run(WorkerContext(store), run, Execution(device="cpu"), {}, lambda *_: None)
    assert [] == list(store.keys())
    store.close()


def test_revisions_that_are_paths():
    """A revision is a branch, tag or commit, and nothing else."""
    for revision in ("../../x", "refs/pr/1", "a b", "-x"):
        with pytest.raises(UnknownModel, match="A revision is"):
            catalog.locate("owner/model", revision)


def test_default_batch():
    """A batch holds 2,048 tokens on a CPU, and one window where that is longer."""
    assert [16, 2, 1] == [default_batch("cpu", length) for length in (128, 1024, 4096)]
