"""What a result says of where it comes from, and what determines it is in its key."""

import json
import shutil
from contextlib import closing

import numpy as np
import pytest

from poskernel_core import api
from poskernel_core.analyses.contextual_heads.spec import BEHAVIOURS
from poskernel_core.common.errors import BadRequest, UnknownModel
from poskernel_core.common.header import PassHeader
from poskernel_core.common.specs import CorpusSpec, Execution, ModelSpec, RunSpec
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.execute import perform
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import from_entry, provenance, to_entry
from poskernel_core.forward import loading
from poskernel_core.models import catalog
from poskernel_core.passes import worker_context
from poskernel_core.passes.runner import gather_run
from poskernel_core.passes.streaming import default_batch
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.encoding import decode, encode
from poskernel_core.storage.store import Store
from tests.support.builders import random_ids
from tests.support.made_results import answer

RUN = RunSpec(
    model=ModelSpec(name="m", revision="main", fingerprint="abc"),
    corpus=CorpusSpec(name="bible", item="Exodus 12", revision="7", fingerprint="def"),
    context=41, windows=500, start_token=False, dtype="bfloat16", seed=3, positions=(3, 11),
)  # fmt: skip
HEADER = PassHeader.read({
    "n_layers": 2, "n_heads": 3, "n_kv_heads": 3, "n_ctx": 64, "n_vocab": 100, "d_head": 5,
    "d_model": 15, "start_token": False, "dtype": "bfloat16", "resumed_at_window": 0,
    "architecture": "gpt2", "scheme": "learned", "context": 29, "windows": 20, "samples": 5,
    "positions": [3, 11], "sliding_windows": [None, 7], "scales": [1.0, 0.5], "device": "cpu",
    "dtype_error": 0.01, "seconds": 2.5,
})  # fmt: skip


def test_provenance():
    """What was asked for comes from the run, what was read from the header of its statistics."""
    found = provenance(RUN, HEADER, 0.12345)

    expected = {
        "model": "m", "revision": "main", "model_fingerprint": "abc", "architecture": "gpt2",
        "position_scheme": "learned", "corpus": "bible", "corpus_item": "Exodus 12",
        "corpus_revision": "7", "corpus_fingerprint": "def", "context": 29, "windows": 20,
        "windows_asked": 500, "queries_per_position": 5, "start_token": False, "seed": 3,
        "positions": [3, 11],
        "sliding_windows": [None, 7], "score_scales": [1.0, 0.5], "dtype": "bfloat16",
        "dtype_error": 0.01, "device": "cpu", "pass_seconds": 2.5, "analysis_seconds": 0.123,
    }  # fmt: skip
    assert expected == {name: found[name] for name in expected}
    assert {"date", "versions"} == set(found) - set(expected)
    assert found["date"].endswith("+00:00")
    assert {"schema", "python", "torch", "numpy"} <= set(found["versions"])


def test_fewer_patterns_are_said():
    """A bound below the windows that were read is told, one above them changes nothing."""
    few = RUN.model_copy(update={"pattern_windows": 11})
    assert provenance(few, HEADER, 0.0)["pattern_windows"] == 10
    many = RUN.model_copy(update={"pattern_windows": 64})
    assert "pattern_windows" not in provenance(many, HEADER, 0.0)


def test_values_come_back_in_their_order():
    """The bytes know arrays by name alone, in an order that changes from reading to reading."""
    written = answer("induction-recency")
    read = from_entry(decode(encode("key", *to_entry(written)), "key"))

    assert len(written.values) > 3
    assert [*written.values] == [*read.values]


def test_kinds_are_called_what_they_are_called_today():
    """A stored answer may have been written before a kind was given another name."""
    header, arrays = to_entry(answer("contextual-heads"))
    header["labels"] = {"group": ["duplicate token", "detokenization", "contextual", "other"]}
    assert {"group": BEHAVIOURS} == from_entry((header, arrays)).labels


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


def test_windows_of_a_text_that_changed_are_not_those_of_the_text(copied, tmp_path):
    """Nor when the text is there again."""
    text, first = tmp_path / "text.txt", "She sells sea shells by the sea shore. " * 30
    text.write_text(first)
    run = describe_run(copied, corpus=text, context=11, windows=3)
    text.write_text("The king said unto the people. " * 30)
    with closing(Store(tmp_path / "store")) as store:
        shared = WorkerContext(store)
        told = run, Execution(device="cpu"), catalog.locate(copied)
        tokenizer = shared.tokenizer(told[2])
        with pytest.raises(BadRequest, match="changed meanwhile"):
            shared.prepare(*told, tokenizer)
        text.write_text(first)
        windows, _ = shared.prepare(*told, tokenizer)
    assert (
        api.token_windows(copied, corpus=text, context=11, windows=3).tolist() == windows.tolist()
    )


@pytest.mark.parametrize("what", ["text", "conversations"])
def test_an_experiment_on_a_text_that_changed(copied, tmp_path, what):
    """Whatever reads the text, windows or turns."""
    file = tmp_path / ("text.txt" if what == "text" else "turns.json")
    first = [{"role": "user", "content": "She sells sea shells by the sea shore."}]
    file.write_text(json.dumps(first * 9))
    (copied / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    question = "ablate-heads" if what == "text" else "conversations"
    params = {"heads": "L0H1"} if what == "text" else {}
    request, _ = api.build_request(
        question, copied, corpus=file, context=11, windows=3, params=params
    )
    plan = make_plan(request)
    file.write_text(json.dumps(first * 10))
    with closing(Store(tmp_path / "store")) as store:
        plan = plan.looked_up(store)
        assert not plan.missing
        with pytest.raises(BadRequest, match="changed meanwhile"):
            perform(WorkerContext(store), plan, Execution(device="cpu"), lambda *_: None)
        assert not store.has(plan.key)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer_config.json"])
def test_files_that_change_while_they_are_read(copied, tmp_path, monkeypatch, name):
    """As a training run replaces its last checkpoint."""
    located, file = catalog.locate(copied), copied / name
    data = {"model.safetensors": file.read_bytes()[:-1] + b"\0"}.get(name, b"{}")
    of_weights = name == "model.safetensors"
    module = loading if of_weights else worker_context
    function = "_load_hub_format" if of_weights else "load_tokenizer"
    read = getattr(module, function)

    def replaced(*given):
        assert data != file.read_bytes()
        file.write_bytes(data)
        return read(*given)

    monkeypatch.setattr(module, function, replaced)
    with closing(Store(tmp_path / "store")) as store:
        reads = loading.load if of_weights else WorkerContext(store).tokenizer
        with pytest.raises(BadRequest, match="changed meanwhile: ask again"):
            reads(located)


def test_revisions_that_are_paths():
    """A revision is a branch, tag or commit, and nothing else."""
    for revision in ("../../x", "refs/pr/1", "a b", "-x"):
        with pytest.raises(UnknownModel, match="A revision is"):
            catalog.locate("owner/model", revision)


def test_default_batch():
    """A batch holds 2,048 tokens on a CPU, and one window where that is longer."""
    assert [16, 2, 1] == [default_batch("cpu", length) for length in (128, 1024, 4096)]
