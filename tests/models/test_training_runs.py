"""Training runs: steps by name, by schedule and on the hub; directories; equal weights."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants
from safetensors.numpy import load_file, save_file

from poskernel_core.api import build_request
from poskernel_core.common.errors import BadRequest, NoNetwork, UnknownModel, UnsupportedModel
from poskernel_core.engine.plan import make_plan
from poskernel_core.models import catalog, hub
from poskernel_core.models.checkpoints import Checkpoint, checkpoint_named, one_run
from poskernel_core.models.training import (
    SCHEDULES,
    TrainingRun,
    first_of_equals,
    required_run,
    schedule_for,
    spec_of,
    training_run,
)
from poskernel_core.models.weights import weights_digest
from tests.support.server import ROOT


@pytest.mark.parametrize(
    ("name", "per_step", "expected"),
    [
        ("step143000", 2_097_152, (143_000, 299_892_736_000)),
        ("checkpoint-10", None, (10, None)),
        ("step-7", None, (7, None)),
        ("global_step1000", None, (1000, None)),
        ("iter_0005000", None, (5000, None)),
        ("stage1-step101000-tokens424B", None, (101_000, 424_000_000_000)),
        ("stage1-step-40000", 2_359_296, (40_000, 94_371_840_000)),
        ("step500-tokens1.5M", None, (500, 1_500_000)),
    ],
)
def test_steps_in_names(name, per_step, expected):
    """As pythia, stanford-crfm, OLMo, SmolLM3 and trainers write them."""
    found = checkpoint_named(name, per_step)
    assert Checkpoint(name, *expected) == found


@pytest.mark.parametrize("name", ["main", "step", "v1.0", "footstep3", "stepwise-3", "1000"])
def test_names_without_a_step(name):
    assert checkpoint_named(name) is None


def steps_of(*names):
    return [each.step for each in one_run(names)]


def test_one_run_among_revisions():
    assert [2, 10, 100] == steps_of("step100", "main", "step10", "step2", "v0-step9")
    assert [1, 5, 7] == steps_of("stage1-step1", "stage1-step5", "stage2-step7", "lc-step9")
    assert [1, 5] == steps_of("stage1-step1", "stage2-ingredient1-step9", "stage1-step5")
    assert [6, 9] == steps_of("stage1-step6", "stage1-step9", "stage2-step3", "stage2-step12")
    assert [] == steps_of("main", "v1.0")


def test_schedules_are_those_of_transformer_lens():
    from transformer_lens.tools.model_registry import checkpoints as theirs

    for name, steps in (
        ("pythia", theirs.PYTHIA_CHECKPOINTS),
        ("pythia-v0", theirs.PYTHIA_V0_CHECKPOINTS),
        ("stanford-crfm", theirs.STANFORD_CRFM_CHECKPOINTS),
    ):
        assert sorted(set(steps)) == [each.step for each in SCHEDULES[name]]
    for model in ("EleutherAI/pythia-70m", "EleutherAI/pythia-1b-v0", "stanford-crfm/battlestar"):
        labels, _ = theirs.get_checkpoint_labels(model)
        found = schedule_for(model)
        assert sorted(set(labels)) == [each.step for each in found]
    assert schedule_for("gpt2") == ()


def test_short_names_are_those_of_transformer_lens():
    from transformer_lens.tools.model_registry.registry_io import load_model_aliases

    table = load_model_aliases()
    assert "gpt2-small" in table["gpt2"]
    for name, aliases in table.items():
        for alias in aliases:
            assert name == catalog.official_name(alias) == catalog.official_name(alias.upper())
    for name in ("demo-gpt2", "gpt2", "somebody/some-model", ""):
        assert name == catalog.official_name(name)
    with pytest.raises(NoNetwork, match="NeelNanda/Attn_Only_2L512W_C4_Code"):
        catalog.locate("attn-only-2l")


def test_to_find_a_model_and_its_schedule_imports_nothing_heavy():
    code = (
        "import sys; from poskernel_core.models import catalog, training;"
        "catalog.locate('demo-rotary');"
        "assert 154 == len(training.training_run('pythia-70m').checkpoints);"
        "assert not {'torch', 'transformers', 'transformer_lens'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_chosen_checkpoints():
    run = training_run("EleutherAI/pythia-70m")

    assert run == run.chosen("") == run.chosen("all") == run.chosen("pythia")
    log = [each.step for each in run.chosen("log").checkpoints]
    assert [0, 1, 2, 4] == log[:4]
    assert [1000, 2000, 4000, 8000, 16000, 33000, 66000, 131000, 143000] == log[11:]
    some = run.chosen("step8, step1,step8")
    assert ["step1", "step8"] == [each.revision for each in some.checkpoints]
    (unlisted,) = run.chosen("step1500").checkpoints
    assert ("step1500", 1500) == (unlisted.revision, unlisted.step)
    with pytest.raises(BadRequest, match="no checkpoint 'main': expected all, log, or some of"):
        run.chosen("step1,main")
    with pytest.raises(BadRequest, match="every step once"):
        run.chosen("step1,step-1")


@pytest.mark.parametrize("commas", [",", " , ,", ",,,"])
def test_commas_alone_choose_nothing(commas):
    run = training_run("demo-training")
    expected = rf"^Expected all, log, or some of .* between commas, got '{commas.strip()}': name"

    with pytest.raises(BadRequest, match=expected):
        run.chosen(commas)
    asked = {"measure": "effective token count", "checkpoints": commas}
    with pytest.raises(BadRequest, match=expected):
        make_plan(build_request("over-training", "demo-training", params=asked)[0])


@pytest.fixture
def run_dir(tmp_path, model_dirs):
    """A directory of three checkpoints: the last two have one model's weights."""
    root = tmp_path / "run"
    for name, model in (("step-2", "attn_only"), ("step-10", "gpt2"), ("step-100", "gpt2")):
        shutil.copytree(model_dirs[model], root / name)
    weights = root / "step-100" / "model.safetensors"
    save_file(load_file(weights), weights, metadata={"format": "pt", "steps": "100"})
    return root


def test_a_directory_of_checkpoints(run_dir):
    run = training_run(str(run_dir))

    assert [2, 10, 100] == [each.step for each in run.checkpoints]
    specs = [spec_of(run, each) for each in run.checkpoints]
    assert 3 == len({each.fingerprint for each in specs})
    last = catalog.locate(str(run_dir))
    assert specs[-1] == last.spec
    assert "step-100" == last.spec.revision
    assert run_dir / "step-10" == catalog.locate(str(run_dir), "step-10").directory
    for spec in specs:
        assert spec == catalog.find_again(spec).spec


def test_equal_weights_are_found_by_their_tensors(run_dir):
    """Notes in the header of a file, which change its own hash, play no part; shards neither."""
    run = training_run(str(run_dir))

    assert {"step-100": "step-10"} == first_of_equals(run)
    weights = run_dir / "step-100" / "model.safetensors"
    tensors = load_file(weights)
    first = sorted(tensors)[0]
    shards = [run_dir / "a.safetensors", run_dir / "b.safetensors"]
    save_file({first: tensors.pop(first)}, shards[0])
    save_file(tensors, shards[1])
    assert weights_digest([weights]) == weights_digest(shards)
    last = sorted(tensors)[-1]
    tensors[last] = tensors[last] + 1
    save_file(tensors, shards[1])
    os.utime(shards[1], ns=(0, 0))  # it was written a moment ago, at perhaps the same tick
    assert weights_digest([weights]) != weights_digest(shards)


def test_a_schedule_beside_the_checkpoints(run_dir):
    (run_dir / "step-2").rename(run_dir / "early")
    told = {"tokens_per_step": 7, "checkpoints": {"step-10": 12, "early": 3}}
    (run_dir / "schedule.json").write_text(json.dumps(told), "utf-8")
    expected = (Checkpoint("early", 3, 21), Checkpoint("step-10", 12, 84))
    assert TrainingRun(str(run_dir), expected) == training_run(str(run_dir))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("no json", "is not of the form"),
        ({"checkpoints": []}, "has no 'checkpoints'"),
        ({"checkpoints": {"step-2": -1}}, "step of 'step-2' is not a whole number"),
        ({"checkpoints": {"step-2": True}}, "step of 'step-2' is not a whole number"),
        ({"checkpoints": {"../step-2": 2}}, "not the name of a directory"),
        ({"checkpoints": {"step-2": 2, "step-10": 2}}, "have the same step"),
        ({"checkpoints": {"step-2": 2}, "tokens_per_step": 0}, "'tokens_per_step' is not a number"),
        ({"checkpoints": {"step-3": 3}}, "names 'step-3', and there is no model directory"),
    ],
)
def test_schedules_that_make_no_sense(run_dir, told, words):
    text = told if isinstance(told, str) else json.dumps(told)
    (run_dir / "schedule.json").write_text(text, "utf-8")
    with pytest.raises(UnsupportedModel, match=words) as caught:
        training_run(str(run_dir))
    assert "\n" not in str(caught.value)


def test_what_is_no_checkpoint(run_dir, model_dirs):
    with pytest.raises(UnknownModel, match="one of step-2, step-10, step-100"):
        catalog.locate(str(run_dir), "step-3")
    with pytest.raises(UnknownModel, match="A local model has no revisions, unless"):
        catalog.locate("demo-gpt2", "step-3")
    assert training_run("demo-gpt2") is None
    assert training_run(str(model_dirs["gpt2"])) is None
    with pytest.raises(UnknownModel, match="'demo-gpt2' comes without checkpoints"):
        required_run("demo-gpt2")


def test_a_trainers_directory(run_dir, model_dirs):
    shutil.copytree(model_dirs["llama"], run_dir, dirs_exist_ok=True)
    assert catalog.locate(str(run_dir)).spec.revision is None
    assert "step-10" == catalog.locate(str(run_dir), "step-10").spec.revision
    assert 3 == len(training_run(str(run_dir)).checkpoints)


@dataclass
class FakeHub:
    """What the hub's API tells of a repository: revisions and the hashes of their weights."""

    weights: dict[str, str | None]
    asked: list[str]

    def model_info(self, name, revision, files_metadata):
        assert files_metadata
        self.asked.append(revision)
        sha = self.weights[revision]
        lfs = None if sha is None else SimpleNamespace(sha256=sha)
        files = [
            SimpleNamespace(rfilename="config.json", lfs=None),
            SimpleNamespace(rfilename="model.safetensors", lfs=lfs),
        ]
        return SimpleNamespace(siblings=files)

    def list_repo_refs(self, name):
        return SimpleNamespace(branches=[SimpleNamespace(name=n) for n in self.weights], tags=[])


@pytest.fixture
def fake(monkeypatch):
    def make(**weights):
        found = FakeHub(weights, [])
        monkeypatch.setattr("huggingface_hub.HfApi", lambda: found)
        monkeypatch.setattr(hub, "offline", lambda: False)
        return found

    return make


def test_equal_weights_on_the_hub(fake):
    api, untold = fake(step1="a", step2="b", step4="a", step8=None, step16="a"), []
    run = training_run("somebody/model")
    assert [1, 2, 4, 8, 16] == [each.step for each in run.checkpoints]
    assert {"step4": "step1", "step16": "step1"} == first_of_equals(run, untold.append)
    assert ["step8"] == [each.revision for each in untold]
    assert ["step1", "step2", "step4", "step8", "step16"] == api.asked


def test_a_hub_model_without_checkpoints(fake):
    fake(main="a", v2="b")
    assert training_run("somebody/untrained") is None
    with pytest.raises(UnknownModel, match="somebody/untrained"):
        required_run("somebody/untrained")


def test_no_network(monkeypatch):
    monkeypatch.setattr(hub, "offline", lambda: True)

    with pytest.raises(NoNetwork, match=r"Only the hub can tell.*'demo-training' works offline"):
        required_run("somebody/other-model")
    with pytest.raises(
        NoNetwork, match=r"cannot be reached.* come with the project, such as 'demo"
    ):
        hub.published("somebody/other-model", "step1")
    run = training_run("EleutherAI/pythia-70m").chosen("step1,step2")
    untold = []
    assert {} == first_of_equals(run, untold.append)
    assert 2 == len(untold)
    assert "" == spec_of(run, run.checkpoints[0]).fingerprint


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """A local copy of the hub's: two commits of a model share one file of weights."""
    root = tmp_path / "hub"
    repo = root / "models--somebody--model"
    for commit, revision, files in (
        ("1" * 40, "step1", {"config.json": "c", "a.safetensors": "w1", "b.safetensors": "w2"}),
        ("2" * 40, "step2", {"config.json": "c", "a.safetensors": "w3", "b.safetensors": "w2"}),
    ):
        folder = repo / "snapshots" / commit
        folder.mkdir(parents=True)
        (repo / "refs").mkdir(exist_ok=True)
        (repo / "refs" / revision).write_text(commit, "utf-8")
        for name, content in files.items():
            blob = repo / "blobs" / content
            blob.parent.mkdir(exist_ok=True)
            blob.write_text(content * 10, "utf-8")
            (folder / name).symlink_to(Path("..", "..", "blobs", content))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))
    return repo


def test_weights_are_removed(hub_cache, monkeypatch):
    monkeypatch.setattr(hub, "offline", lambda: True)
    first, second = "1" * 40, "2" * 40
    assert {"a.safetensors", "b.safetensors"} == hub.weights_here("somebody/model", first)
    assert ("step1", "step2") == hub.revisions("somebody/model")

    assert 0 == hub.remove_weights(
        "somebody/model", first, keep=hub.weights_here("somebody/model", first)
    )
    assert 20 == hub.remove_weights("somebody/model", first)
    assert {"c", "w2", "w3"} == {each.name for each in (hub_cache / "blobs").iterdir()}
    assert frozenset() == hub.weights_here("somebody/model", first)
    assert {"a.safetensors", "b.safetensors"} == hub.weights_here("somebody/model", second)
    kept = frozenset({"b.safetensors"})
    assert 20 == hub.remove_weights("somebody/model", second, keep=kept)
    assert kept == hub.weights_here("somebody/model", second)
    assert frozenset() == hub.weights_here("somebody/else", second)


def test_commits_on_this_machine(hub_cache):
    assert "1" * 40 == hub.commit_here("somebody/model", "step1")
    assert hub.commit_here("somebody/model", "step3") is None
    assert hub.commit_here("not a name", "step1") is None
