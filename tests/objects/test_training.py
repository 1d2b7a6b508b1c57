"""A training run that is logged: what it costs, what it keeps, and who reads it."""

import re
import time
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

import poskernel_core as pk
from pages.shared.jobs import results
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.folders import default_directory
from poskernel_core.engine.engine import close_shared
from poskernel_core.models import catalog
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.objects import training
from poskernel_core.storage.archive import export_model, import_archive
from poskernel_core.storage.store import Store
from tests.support.bound import fine, opened_as_linked

QUESTIONS = ("etc", "previous-token")
MEASURE = "attention to the previous token"

pytestmark = pytest.mark.usefixtures("near_worker", "unchecked")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A default store for every test."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    results.engine.clear()  # pages of other tests may have opened another store
    yield
    close_shared()


def toy():
    torch.manual_seed(7)
    config = GPT2Config(n_layer=2, n_head=3, n_embd=21, vocab_size=53, n_positions=31)
    return GPT2LMHeadModel(config)


def step_of(model, by=0.01):
    with torch.no_grad():
        for each in model.parameters():
            each.add_(by * torch.randn_like(each))


def log_of(run="my-run", **more):
    """A log that is as slow as it likes."""
    found = pk.TrainingLog(run, **{"questions": QUESTIONS, "every": 3} | more)
    found._share = 1e9 if "share" not in more else found._share  # noqa: SLF001
    return found


def test_it_is_read_while_it_grows():
    """And two steps with the same weights are named; the model stays in training mode."""
    model, log = toy().train(), log_of()
    steps = []
    for step in range(10):
        log(model, step)
        if step % 3 == 0:
            steps.append(step)
            found = pk.show("over-training", "my-run", params={"measure": MEASURE})
            assert steps == found.coordinates["step"].tolist()
        if step < 6:
            step_of(model)
    assert model.training
    assert [0, 3, 6, 9] == log.steps
    assert np.array_equal([np.nan, np.nan, np.nan, 6], found.values["equal_to"], equal_nan=True)
    page = fine(opened_as_linked("over_training", model="my-run", follow=MEASURE))
    assert "step 9 has the weights of step 6" in "".join(each.value for each in page.warning)


def test_what_it_costs():
    """It takes no more than its share of the time, and says what a point takes."""
    now, spent = [0.0], []

    def measures(self, model, step):
        now[0] += 2.0
        self.steps.append(step)
        spent.append(now[0])

    clock = patch.object(time, "monotonic", lambda: now[0])
    with clock, patch.object(pk.TrainingLog, "_measure", measures):
        log = pk.TrainingLog("my-run", every=1)
        for step in range(3000):
            now[0] += 0.5
            log(None, step)
    assert 2.0 * len(log.steps) == log.seconds <= 0.02 * now[0]
    assert len(log.steps) > 10
    assert np.diff(spent).min() >= 100 - 1


def test_log_spaced_steps_are_kept():
    """Of a thousand points, 17 stay: the first, the last, and those between in equal ratios."""
    steps = []
    for step in range(1000):
        steps.append(step)
        if len(steps) > 17:
            steps.remove(training.crowded(steps))
    assert [0, 999] == [steps[0], steps[-1]]
    ratios = np.diff(np.log1p(steps))
    assert ratios.max() < 4 * np.median(ratios)


def test_dropped_steps_are_gone(monkeypatch):
    monkeypatch.setattr(training, "KEPT", 3)
    model, log = toy(), log_of(every=1)
    for step in range(5):
        log(model, step)
        step_of(model)
    found = pk.show("over-training", "my-run", params={"measure": MEASURE})
    assert log.steps == found.coordinates["step"].tolist()
    assert (3, 0, 4) == (len(log.steps), log.steps[0], log.steps[-1])


@pytest.mark.parametrize("windows", [7, training.WINDOWS, 20])
def test_as_many_random_windows_as_asked(windows, monkeypatch):
    """And a file of them that was not written to its end is none."""

    def broken(to, array):
        with open(to, "wb") if isinstance(to, Path) else nullcontext(to) as stream:
            stream.write(array.tobytes()[:17])
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", broken)
        with pytest.raises(OSError, match="No space"):
            log_of(windows=windows)(toy(), 1)
    log_of(windows=windows)(toy(), 1)
    (file,) = (default_directory() / "windows").iterdir()
    assert (windows, 31) == np.load(file).shape
    found = pk.show("etc", "my-run", windows=windows, corpus=file)
    assert windows == found.provenance["windows"]


def test_it_is_a_callback(tmp_path):
    """The Trainer's model and tokenizer are measured at its steps, and at the end."""
    path = str(BUNDLED_MODELS["demo-gpt2"])
    log = log_of(context=37)
    told = TrainingArguments(
        output_dir=str(tmp_path / "my-run"), max_steps=4, per_device_train_batch_size=1,
        report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(path, pad_token="<|endoftext|>")
    rows = [{"input_ids": list(range(9)), "labels": list(range(9))}] * 4
    trainer = Trainer(
        AutoModelForCausalLM.from_pretrained(path), told, train_dataset=rows, callbacks=[log],
        processing_class=tokenizer,
    )  # fmt: skip
    trainer.train()
    assert [1, 4] == log.steps
    assert "sample" == catalog.locate("my-run").shown.corpus.name
    assert trainer.model.training


def test_a_run_of_another_machine(tmp_path, monkeypatch):
    model, log = toy(), log_of()
    for step in range(7):
        log(model, step)
        step_of(model)
    there = pk.show("over-training", "my-run", params={"measure": MEASURE})
    export_model(Store(), catalog.locate("my-run"), tmp_path / "run.zip")
    close_shared()
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "here"))
    with pytest.raises(PosKernelError):
        _run()
    import_archive(Store(), tmp_path / "run.zip")
    here = pk.show("over-training", "my-run", params={"measure": MEASURE})
    np.testing.assert_array_equal(here.values["measure"], there.values["measure"])


def test_a_run_goes_on_or_begins_anew(capsys):
    model = toy()
    log_of()(model, 5)
    again = log_of()
    again(model, 8)
    assert [5, 8] == again.steps
    anew = log_of()
    anew(model, 2)
    assert [2] == anew.steps == [each.step for each in _run().checkpoints]
    assert "begun anew" in capsys.readouterr().err


def _run():
    from poskernel_core.models.training import required_run

    return required_run("my-run")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"questions": ("etcc",)}, "No analysis 'etcc'"),
        ({"questions": "over-training"}, "made of other answers"),
        ({"share": 2}, "share of the time"),
        ({"every": "often"}, "whole number as 'every'"),
        ({"windows": "many"}, "whole number as 'windows'"),
        ({"windows": -3}, "'windows' of at least 1, got -3"),
        ({"context": 0}, "'context' of at least 1, got 0"),
    ],
)
def test_bad_input(given, words):
    with pytest.raises(PosKernelError, match=words):
        log_of(**given)


def test_a_failure_later_does_not_end_the_training(capsys):
    model, log = toy(), log_of()
    with pytest.raises(PosKernelError, match="got Linear"):
        log(torch.nn.Linear(2, 2), 0)
    log(model, 1)
    with torch.no_grad():
        model.transformer.wte.weight.fill_(torch.nan)
    log(model, 9)
    told = capsys.readouterr().err
    assert re.search("step 9 was not measured: .*NaN", told)
    assert [1] == log.steps
