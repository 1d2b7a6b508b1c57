"""Emergence by hand and in plain loops; a run whose heads emerge at known checkpoints."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.kernels.formulas import KINDS
from poskernel_core.analyses.training.spec import emergence
from poskernel_core.common.errors import BadRequest, UnknownModel
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine.checkpoints import Precomputing, precompute_checkpoints
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.models import hub
from poskernel_core.models.checkpoints import Checkpoint
from poskernel_core.models.training import TrainingRun, training_run
from poskernel_core.storage.store import Store
from tests.support import builders
from tests.support.made_results import result
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("near_workers")

STEPS = (0, 1, 4, 16, 64)
HEAD_WIDTH = 38
CONTEXT, WINDOWS, QUERY = 37, 5, 36
PREVIOUS = "attention to the previous token"
QUERIES_OF_0 = (slice(None), slice(0, HEAD_WIDTH))
KEYS_OF_2 = (slice(None), slice(5 * HEAD_WIDTH, 6 * HEAD_WIDTH))


def checkpoint(root: Path, step: int, context: int = CONTEXT, **gains: float) -> Path:
    """A model with a previous-token head, and one that decays, as strong as the gains say."""
    path = builders.look_back(root / f"step-{step}", 1, context)
    file = path / "model.safetensors"
    tensors = load_file(file)
    weight = tensors["transformer.h.0.attn.c_attn.weight"].copy()
    weight[QUERIES_OF_0] *= gains.get("previous", 0)
    weight[KEYS_OF_2] *= gains.get("decay", 0)
    save_file(
        tensors | {"transformer.h.0.attn.c_attn.weight": weight}, file,
        metadata={"format": "pt", "step": str(step)},
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run: head 0 looks back from step 16 on, half as hard at step 4; head 2 decays at 64."""
    root = tmp_path_factory.mktemp("run")
    back = {"previous": 1.0}
    for step, gains in zip(STEPS, ({}, {}, {"previous": 0.1}, back, back | {"decay": 1.0}),
                           strict=True):  # fmt: skip
        checkpoint(root, step, **gains)
    return root


@pytest.fixture(scope="module")
def asked(made, tmp_path_factory):
    """Random tokens, and the fields of a run over them."""
    ids = tmp_path_factory.mktemp("ids") / "ids.npy"
    np.save(ids, builders.random_ids(WINDOWS, CONTEXT, seed=3).numpy())
    return {"corpus": CorpusSpec(name=str(ids)), "context": CONTEXT, "windows": WINDOWS}


@pytest.fixture(scope="module")
def look_back(made, asked, engine):
    """The attention to the previous token, over the run."""
    return pk.show("over-training", str(made), engine=engine, params={"measure": PREVIOUS}, **asked)


def test_a_head_emerges_where_it_was_made_to(look_back):
    """Uniform until step 1, weakly at 4, wholly at 16: it passes half between 4 and 16."""
    measure = look_back.values["measure"]
    assert list(STEPS) == look_back.coordinates["step"].tolist()
    own = measure[:, 0, 0]
    uniform = np.mean([1 / (n + 1) for n in range(2, CONTEXT)])
    assert own[0] == own[1] == pytest.approx(uniform, abs=0.02)
    assert own[1] < own[2] < 0.5 < 0.99 < own[3]
    assert own[3] == pytest.approx(own[4], abs=1e-6)

    names = ("emergence", "emergence_earliest", "emergence_latest")
    assert [4, 16] == [look_back.values[name][0, 0] for name in names[1:]]
    for at in np.ndindex(measure.shape[1:]):
        expected = by_loops(STEPS, measure[:, *at].tolist())
        found = [look_back.values[name][at] for name in names]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert look_back.values["change"][0, 0] == pytest.approx(own[4] - own[0])


def test_each_checkpoint_is_a_result_of_its_own(look_back, made, asked, engine):
    """And what is known of its errors and biases stands beside the numbers over training."""
    question, run = ANALYSES["over-training"], describe_run(str(made), **asked)
    params = question.params(measure=PREVIOUS)
    found, told = {}, {"errors": "documents", "groups": 10}
    for place, step in enumerate(STEPS):
        one = pk.show("previous-token", str(made), engine=engine, revision=f"step-{step}", **asked)
        np.testing.assert_array_equal(
            one.values["previous_mass"], look_back.values["measure"][place]
        )
        assert f"step-{step}" == one.provenance["revision"]
        biases = {value: np.full(error.shape, place**2 / 7) for value, error in one.errors.items()}
        errors = {value: np.full(error.shape, 3.0 + place) for value, error in one.errors.items()}
        found[f"step-{step}"] = replace(
            one, errors=errors, biases=biases, provenance=one.provenance | told, lows={}, highs={}
        )

    all_told = question.compose(found, run, params)
    first = found["step-0"]
    old = replace(first, biases={}, provenance=first.provenance | {"errors": None, "groups": 0})
    before = question.compose(found | {"step-0": old}, run, params)
    for place in range(len(STEPS)):
        assert {place**2 / 7} == set(all_told.biases["measure"][place].ravel().tolist())
    low, high = (all_told.estimate_of("change")[at] for at in (1, 2))
    np.testing.assert_allclose(high - low, 2 * all_told.interval * np.hypot(3, 7))
    np.testing.assert_allclose(all_told.errors["change"], np.hypot(3, 7))
    assert ("documents", 10) == (all_told.error_counts, all_told.groups)
    assert np.isnan(before.biases["measure"][0]).all()
    assert "documents" in before.error_counts


def test_biases_of_a_kernel_over_training(made, asked):
    run, question = describe_run(str(made), **asked), ANALYSES["kernel-over-training"]
    whole = result(
        "kernel", dict.fromkeys(("kernel", "observed"), (2, 3, CONTEXT)) | {"etc": (2, 3)}
    )
    found = {
        f"step-{step}": replace(
            whole, biases={name: place + whole.errors[name] for name in ("kernel", "etc")}
        )
        for place, step in enumerate(STEPS)
    }
    shown = question.compose(found, run, question.params(head="L1H2", query=QUERY))
    assert 3 + whole.errors["etc"][1, 2] == shown.biases["etc"][3]
    assert {"etc"} == set(shown.biases)  # a row is not corrected


def test_equal_checkpoints_are_named(look_back):
    """Steps 0 and 1 have the same weights, though their files say different steps."""
    assert np.isnan(look_back.values["equal_to"][[0, 2, 3, 4]]).all()
    assert 0 == look_back.values["equal_to"][1]
    assert {"step-1": "step-0"} == look_back.provenance["equal_weights"]
    assert "step-0 to step-64" == look_back.provenance["revision"]
    assert [f"step-{step}" for step in STEPS] == look_back.provenance["checkpoints"]
    assert np.isnan(look_back.values["tokens"]).all()


def test_kinds_are_counted(made, asked):
    """Of six heads, which have no emergence: their measure is no number."""
    run, question = describe_run(str(made), **asked), ANALYSES["over-training"]
    codes = np.zeros((5, 2, 3, 1), dtype=int)
    codes[3:, 0, 0], codes[4, 1] = 2, 1
    found = {
        f"step-{step}": result(
            "etc",
            {},
            {"kind": kinds},
            labels={"kind": KINDS},
            coordinates={"query": np.array([QUERY])},
        )
        for step, kinds in zip(STEPS, codes, strict=True)
    }
    shown = question.compose(found, run, question.params(measure="kind of kernel", query=QUERY))
    assert KINDS == shown.labels["measure"]
    expected = [[6, 0, 0], [6, 0, 0], [6, 0, 0], [5, 0, 1], [2, 3, 1]]
    assert expected == shown.values["count"].tolist()
    assert np.isnan([shown.values["emergence"], shown.values["change"]]).all()


def test_a_kernel_over_training(made, asked, engine):
    """The rows are the kernels of the checkpoints; without skip, key 0 has what is observed."""
    params = {"head": "L0H0", "skip": 0, "query": QUERY}
    with refused("L0H0 to L1H2"):
        pk.show("kernel-over-training", str(made), engine=engine, params={"head": "L5H0"}, **asked)
    found = pk.show("kernel-over-training", str(made), engine=engine, params=params, **asked)

    kernel = found.values["kernel"]
    assert (len(STEPS), CONTEXT) == kernel.shape
    np.testing.assert_allclose(kernel.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(kernel[:2], 1 / CONTEXT, atol=1e-6)
    assert kernel[-1, QUERY - 1] > 0.999
    np.testing.assert_allclose(found.values["observed"], kernel, atol=1e-5)
    np.testing.assert_allclose(found.values["etc"], 1 / (kernel**2).sum(axis=1), rtol=1e-6)


def test_what_is_missing_is_named(made, asked, tmp_path):
    run = describe_run(str(made), **asked)
    some = [{"measure": PREVIOUS, "checkpoints": names} for names in ("step-0,step-4", "")]
    part, whole = (Request(analysis="over-training", run=run, params=each) for each in some)
    engine = Engine(Store(tmp_path))
    try:
        assert engine.cached(part) is None
        assert ["step-0", "step-4"] == engine.missing(part)
        assert engine.result(part) is not None
        assert [] == engine.missing(part)
        assert ["step-1", "step-16", "step-64"] == engine.missing(whole)
        assert engine.cached(whole) is None
        assert engine.cached(part) is engine.cached(part)
        engine.store.drop(next(iter(make_plan(part).parts.values())).key)
        assert ["step-0"] == engine.missing(part)
        assert Engine(engine.store).cached(part) is None
    finally:
        engine.close()
        engine.store.close()


def test_keys_know_the_weights(made, asked, tmp_path):
    copy = shutil.copytree(made, tmp_path / "run")
    params = {"measure": PREVIOUS}

    def key(revision=None):
        run = describe_run(str(copy), revision=revision, **asked)
        return make_plan(Request(analysis="over-training", run=run, params=params)).key

    before = key()
    assert before == key("step-4")
    shutil.copy(copy / "step-64" / "model.safetensors", copy / "step-4" / "model.safetensors")
    assert before != key()


@pytest.mark.parametrize(
    ("model", "params", "error", "words"),
    [
        ("demo-gpt2", {}, UnknownModel, "'demo-gpt2' comes without checkpoints"),
        (None, {"measure": "beauty"}, BadRequest, "No measure 'beauty': expected one of effective"),
        (None, {"checkpoints": "step-3"}, BadRequest, "no checkpoint 'step-3'"),
    ],
)
def test_what_cannot_be_asked(made, asked, engine, model, params, error, words):
    with refused(words, error):
        pk.show("over-training", model or str(made), engine=engine, params=params, **asked)


@pytest.fixture
def precomputing(made, asked, tmp_path):
    """The commands' way through a run: what is asked, said, and which checkpoints were asked."""
    engine, said, answered = Engine(Store(tmp_path)), [], []

    def requests(name):
        run = describe_run(str(made), revision=name, **asked)
        return [Request(analysis="profile", run=run)]

    def answer(request):
        answered.append(request.run.model.revision)
        return engine.result(request)

    yield Precomputing(engine.store, requests, answer, said.append), said, answered
    engine.close()
    engine.store.close()


def test_precompute_names_equal_checkpoints(made, precomputing):
    """Step 1 is not computed: it has the results of step 0, and says whose they are."""
    how, said, answered = precomputing

    precompute_checkpoints(training_run(str(made)).chosen("step-0, step-1, step-4"), how)

    assert ["step-0", "step-4"] == answered
    assert "step-1: the same weights as step-0, so its results are those" in said
    first, second = (
        how.store.get(make_plan(how.requests(f"step-{step}")[0]).key) for step in (0, 1)
    )
    assert ("step-1", "step-0") == (
        second[0]["provenance"]["revision"], second[0]["provenance"]["weights_of"]
    )  # fmt: skip
    assert first[1].keys() == second[1].keys()
    for name, array in first[1].items():
        np.testing.assert_array_equal(array, second[1][name])


def test_precompute_removes_what_it_downloaded(monkeypatch, precomputing):
    how, said, _ = precomputing
    here = {"commit-step2": {"model.safetensors"}}
    events = []

    def published(name, revision):
        return (("model.safetensors", f"sha-{revision}"),)

    def located(name, revision):
        return type(
            "Located", (), {"spec": type("Spec", (), {"fingerprint": f"commit-{revision}"})}
        )

    def remove(name, commit, keep):
        events.append(("removed", commit, sorted(here[commit] - keep)))
        gone = here[commit] - keep
        here[commit] -= gone
        return 3 * 2**20 * len(gone)

    def answer(request):
        here.setdefault(f"commit-{request.step}", set()).add("model.safetensors")
        events.append(("answered", request.step, sum(map(len, here.values()))))

    def requests(name):
        return [SimpleNamespace(analysis="etc", step=name)]

    monkeypatch.setattr(hub, "offline", lambda: False)
    monkeypatch.setattr(hub, "published", published)
    monkeypatch.setattr(hub, "weights_here", lambda name, commit: frozenset(here.get(commit, ())))
    monkeypatch.setattr(hub, "remove_weights", remove)
    monkeypatch.setattr("poskernel_core.models.catalog.locate", located)
    run = TrainingRun("somebody/model", tuple(Checkpoint(f"step{n}", n) for n in (1, 2, 4)))

    precompute_checkpoints(
        run, Precomputing(how.store, requests, answer, said.append, remove_weights=True)
    )

    weights = ["model.safetensors"]
    assert [
        ("answered", "step1", 2), ("removed", "commit-step1", weights),
        ("answered", "step2", 1), ("removed", "commit-step2", []),
        ("answered", "step4", 2), ("removed", "commit-step4", weights),
    ] == events  # fmt: skip
    assert ["step1: 3 MB of weights removed", "step1: cached", "step2: cached"] == said[:3]


MANY_STEPS = np.array([0, 1, 4, 16, 64, 256])


def by_loops(steps, values):
    """Emergence of one head: (step, earliest, latest), NaN where there is none."""
    final = values[-1]
    if math.isnan(final) or final == 0:
        return (math.nan,) * 3
    share = [value / final for value in values]
    place = len(share)
    while place > 0 and share[place - 1] > 0.5:
        place -= 1
    if place == 0 and share[0] > 1:
        return (math.nan,) * 3
    after, before = steps[place], steps[place - 1] if place else 0
    if before == 0 or math.isnan(share[place - 1]):
        return after, before, after
    way = (0.5 - share[place - 1]) / (share[place] - share[place - 1])
    log = math.log(before) + way * (math.log(after) - math.log(before))
    return math.exp(log), before, after


def found_of(steps, values):
    found = emergence(np.array(steps), np.array(values, dtype=float)[:, None])
    return tuple(float(each[0]) for each in found.values())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0, 0, 0.2, 0.8, 0.8], (16 * 4 ** (1 / 3), 16, 64)),  # a third of the way to 64
        ([0, 0, 0, 0.4, 0.8, 0.8], (16, 16, 64)),  # just half is not above it
        ([0, 0.9, 0.1, 0.1, 0.9, 0.8], (16 * 4**0.375, 16, 64)),  # it was there before, and went
        ([0, 0.6, 0.7, 0.8, 0.8, 0.8], (1, 0, 1)),  # between step 0, which has no log, and 1
        ([0.5, 0.6, 0.7, 0.8, 0.8, 0.8], (0, 0, 0)),  # from the first checkpoint on
        ([0, 0, 0, -0.2, -0.8, -0.8], (16 * 4 ** (1 / 3), 16, 64)),  # the sign plays no part
        ([0.9, -0.9, 0, 0.5, 0.3, 1.0], (64 * 4 ** (2 / 7), 64, 256)),
        ([0, 0, 0, math.nan, 0.8, 0.8], (64, 16, 64)),  # nothing is known of step 16
        ([0.9, 0.9, 0.7, 0.8, 0.8, 0.8], (math.nan,) * 3),  # it fell
        ([0.9, 0.1, 0.7, 0.8, 0.8, 0.8], (4**0.5, 1, 4)),  # it fell, and came back
        ([1, 1, 1, 1, 1, 0], (math.nan,) * 3),
        ([1, 1, 1, 1, 1, math.nan], (math.nan,) * 3),
    ],
)
def test_by_hand(values, expected):
    np.testing.assert_allclose(found_of(MANY_STEPS, values), expected, rtol=1e-12)
    assert (7.0, 0.0, 7.0) == found_of([7], [0.3])


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=9, unique=True).map(sorted), st.data())
def test_plain_loops(steps, data):
    number = st.floats(-1, 1) | st.just(math.nan)
    values = data.draw(st.lists(number, min_size=len(steps), max_size=len(steps)))
    assume(abs(values[-1]) > 1e-6 or values[-1] == 0 or math.isnan(values[-1]))
    expected, found = by_loops(steps, values), found_of(steps, values)

    np.testing.assert_allclose(found, expected, rtol=1e-9)
    if math.isfinite(found[0]):
        assert found[1] * (1 - 1e-9) <= found[0] <= found[2] * (1 + 1e-9)
