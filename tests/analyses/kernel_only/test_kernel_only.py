"""Heads that attend by position alone: by plain transformers and loops, and where it is known."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import spearmanr

from poskernel_core.analyses.kernel_only import experiment
from poskernel_core.analyses.kernel_only.formulas import (
    heads_for,
    numbers_of_heads,
    shares_kept,
    spread,
)
from poskernel_core.analyses.kernel_only.spec import HeadsReplaced, KernelOnlyCost, KernelOnlyHead
from poskernel_core.common.errors import Cancelled
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data.corpora import token_windows
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.interventions import FixedHeads
from poskernel_core.forward.observers import Observer
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from tests.support import oracles
from tests.support import oracles_kernel_only as oracle
from tests.support.builders import ARCHITECTURES, kernel_only
from tests.support.builders.contextual import some_windows, study
from tests.support.builders.families import FAMILY_MODELS
from tests.support.passes import loaded
from tests.support.raw import of_all_texts
from tests.support.refusals import refused

SKIP, LENGTH = 3, 17
CASES = {
    "gpt2": (True, [7**-0.5] * 3),
    "gpt_neo": (False, [1.0] * 3),
    "llama": (True, [10**-0.5] * 3),
}
NOTHING = {"kernel_windows": 7, "loss_windows": 5, "skip": SKIP, "tokens": LENGTH}


def quiet(done, total):
    """Nobody watches."""


def perform(question, path, windows, start=True, **params):
    subject, _ = study(path, windows, start, batch=5)
    asked = question.params(**{**NOTHING, **params})
    return of_all_texts(question().perform(subject, {}, asked, quiet))


def test_rows_by_hand():
    """Key 0 keeps 0.2 of its attention; a learned sink has taken 0.1; the kernel spreads 0.7."""
    observed = np.array([[0.9, 0.0, 0.0], [0.5, 0.4, 0.0], [0.2, 0.6, 0.1]])
    kernel = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.25, 0.75]])
    rows = spread(kernel, observed, 1)
    np.testing.assert_allclose(rows, [[0.9, 0, 0], [0.5, 0.4, 0], [0.2, 0.175, 0.525]])


def test_shares_and_numbers_by_hand():
    """A kernel that costs a quarter keeps 0.75; the curve passes 0.1 halfway from 2 to 6 heads."""
    cost = np.array([[0.1, 0.4, 0.0], [9.0, 9.0, 9.0], [0.4, 0.4, 0.0]])
    np.testing.assert_allclose(shares_kept(cost), [0.75, 0, np.nan])
    heads, change = np.array([2, 6, 11]), np.array([0.05, 0.15, -0.3])
    assert 4 == pytest.approx(heads_for(0.1, heads, change))
    assert 11 == heads_for(0.2, heads, change)
    assert 1 == pytest.approx(heads_for(0.025, heads, change))


@given(arrays.arrays(float, (2, 7, 7), elements=st.floats(0, 1)), st.integers(0, 5))
def test_mass_and_first_keys_stay(numbers, skip):
    """Rows have the mean observed mass, whatever the kernel; the first keys keep theirs."""
    observed = np.tril(numbers)
    kernel = np.tril(np.ones((2, 7, 7)))
    kernel[..., :skip] = 0
    kernel /= np.maximum(kernel.sum(axis=-1, keepdims=True), 1)
    rows = spread(kernel, observed, skip)
    np.testing.assert_allclose(rows.sum(axis=-1), observed.sum(axis=-1))
    np.testing.assert_array_equal(rows[..., :skip], observed[..., :skip])


@given(st.integers(1, 3000))
def test_numbers_of_heads(total):
    found = numbers_of_heads(total)
    assert (1, total) == (found[0], found[-1])
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("name", CASES)
def test_against_plain_transformers(model_dirs, name):
    """Kernels, exact costs, estimates, errors and many heads at once, by hooks and loops."""
    (start, scale), path = CASES[name], model_dirs[name]
    windows = some_windows(20, LENGTH, start)
    group = np.arange(20) % 10
    of_kernels, of_loss = windows[group < 5][:5], windows[group >= 5][:5]
    known, plain = oracle.rows(path, of_kernels, SKIP, scale), oracle.Plain(path)
    outputs, clean = plain.outputs(of_kernels), plain.loss(of_loss)

    found = perform(KernelOnlyCost, path, windows, start, draws=2, exact="all")
    names, (layers, heads) = found.words("replacement"), found.values["exact"].shape
    assert (found.values["exact"] == 1).all()
    assert (name == "llama") == ("equivariant kernel" in names)
    rows = {each: known[each] for each in known} | {"mean output": outputs}
    rows["zero"] = [np.zeros_like(each) for each in outputs]
    for layer, head in product(range(layers), range(heads)):
        for what, fixed in rows.items():
            change = plain.loss(of_loss, {(layer, head): fixed[layer][head]}) - clean
            at = names.index(what), layer, head
            assert change.mean() == pytest.approx(found.values["cost"][at], abs=3e-6), (what, at)
            error = oracles.jackknife(5, lambda kept, change=change: change[kept].mean())
            assert error == pytest.approx(found.errors["cost"][at], abs=3e-6)
    assert clean.mean() == pytest.approx(float(found.values["clean_loss"]), abs=1e-5)
    one = perform(KernelOnlyHead, path, windows, start, head="L1H2")
    np.testing.assert_allclose(one.values["cost"], found.values["cost"][:, 1, 2], atol=1e-6)

    guessed = oracle.estimated(plain, of_loss, known["kernel"], 2)
    np.testing.assert_allclose(found.values["estimated_cost"], guessed, atol=3e-5)

    many = perform(HeadsReplaced, path, windows, start, draws=2)
    every = {cell: known["kernel"][cell[0]][cell[1]] for cell in np.ndindex(layers, heads)}
    change = plain.loss(of_loss, every) - clean
    assert change.mean() == pytest.approx(many.values["loss_change"][0, -1], abs=1e-5)
    order = np.argsort(oracle.estimated(plain, of_kernels, known["kernel"], 2), axis=None)
    first = [(int(place) // heads, int(place) % heads) for place in order[:2]]
    change = plain.loss(of_loss, {cell: every[cell] for cell in first}) - clean
    at = many.coordinates["heads"].tolist().index(2)
    assert change.mean() == pytest.approx(many.values["loss_change"][0, at], abs=1e-5)
    assert {"errors": "windows", "groups": 5, "kernel_windows": 5, "loss_windows": 5,
            "tokens": LENGTH} == many.provenance  # fmt: skip


def test_position_alone_and_content_alone(tmp_path):
    """A head that is position alone costs nothing and keeps all; one of content keeps nothing."""
    path, texts = kernel_only.position_and_content(tmp_path / "model"), kernel_only.texts()
    subject, _ = study(path, texts, True)
    fixed = experiment.gather(subject, texts, 0)
    cells = [(0, kernel_only.POSITION), (0, kernel_only.CONTENT), (0, kernel_only.NOTHING)]
    exact, _ = experiment.exact_costs(subject, texts, fixed, cells)
    cost = exact.mean(axis=0)
    position, content, _ = shares_kept(cost)
    print(dict(zip(fixed.names, cost.round(4).tolist(), strict=True)), position, content)
    assert (cost[-1, :2] > 0.1).all()
    assert 0 == pytest.approx(cost[0, 0], abs=1e-6)
    assert 1 == pytest.approx(position, abs=1e-5)
    assert 0 == pytest.approx(content, abs=0.03)
    np.testing.assert_allclose(cost[:, 2], 0, atol=1e-6)
    equivariant = fixed.names.index("equivariant kernel")
    assert 0 == pytest.approx(cost[equivariant, 0], abs=1e-4)
    estimate = experiment.estimated_costs(subject, texts, fixed, 4).mean(axis=0)[:, 0]
    assert 0 == pytest.approx(estimate[0, 0], abs=1e-6)
    assert estimate[0, 1] > 0.1
    np.testing.assert_allclose(estimate[:, 2], 0, atol=1e-6)


class Before(Observer):
    """Keeps the residual stream before each layer."""

    def __init__(self):
        self.before = {}

    def residual(self, layer, x, batch):
        self.before[layer] = x


@pytest.mark.parametrize("name", [*ARCHITECTURES, *FAMILY_MODELS])
def test_a_pass_that_begins_later(tmp_path, name):
    """From the stream before any layer on, logits are those of a whole pass; gradients exist."""
    path = (ARCHITECTURES[name] if name in ARCHITECTURES else FAMILY_MODELS[name].build)(
        tmp_path / name
    )
    model, tokens = loaded(path), torch.from_numpy(some_windows(2, 11))
    layers = range(model.geometry.n_layers)
    stream = Before()
    whole = model.run(tokens, Edit(), [stream])
    for layer in layers:
        again = model.run(tokens, Edit(), stream=(layer, stream.before[layer]))
        np.testing.assert_allclose(again, whole, atol=1e-5)
        without = model.run(tokens, stream=(layer, stream.before[layer]))
        np.testing.assert_allclose(without, whole, atol=1e-3)
    assert torch.equal(whole, model.run(tokens, Edit()))
    edit = experiment.Outputs()
    logits = model.run(tokens, edit, graph=True)
    gradients = torch.autograd.grad(logits.square().sum(), list(edit.zeros.values()))
    assert model.geometry.with_heads == tuple(edit.zeros)
    assert all(bool(each.abs().max() > 0) for each in gradients[:-1])
    for cell in ((layer, 0) for layer in model.geometry.with_heads):
        heads = torch.eye(11)
        changed = model.run(tokens, FixedHeads({cell: heads}))
        assert not torch.allclose(changed, whole)


def test_chosen_heads_are_exact(model_dirs):
    """Those with the largest estimates; others have their estimates, and a share only if known."""
    found = perform(KernelOnlyCost, model_dirs["gpt2"], some_windows(20, LENGTH))
    order = np.argsort(-found.values["estimated_cost"], axis=None)
    exact = found.values["exact"].ravel()[order]
    assert [*[1] * experiment.LARGEST, *[0] * 5] == exact.tolist()
    estimates = found.values["exact"] == 0
    np.testing.assert_allclose(found.values["kernel_only_cost"][estimates],
                               found.values["estimated_cost"][estimates])  # fmt: skip
    shown = KernelOnlyCost().shown(found)
    known = shown.lows["cost"][-1] > 0
    assert known.tolist() == np.isfinite(shown.values["kernel_only_share"]).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["demo-gpt2", "demo-attn-2l", "demo-rotary"])
def test_estimates_of_demo_models(name):
    """Ranks and mean of estimate and exact cost; the ten largest estimates are not needed.

    The aim is a rank correlation of 0.9. On demo-rotary, 0.88 is reached without the ten: the
    others' costs are all within a few thousandths of 0.
    """
    located = catalog.locate(name)
    cut = token_windows(CorpusSpec(), load_tokenizer(located), context=128, windows=120,
                        start_token=True)  # fmt: skip
    subject, _ = study(located.directory, cut.tokens, True)
    texts = experiment.divided(subject, KernelOnlyCost.params())
    fixed = experiment.gather(subject, texts.kernels, 4)
    for patterns in fixed.patterns.values():
        for other in [each for each in patterns if each != "kernel"]:
            del patterns[other]
    estimate = experiment.estimated_costs(subject, texts.loss, fixed, 4)[:, 0].mean(axis=0)
    cells = [*np.ndindex(estimate.shape)]
    exact = experiment.exact_costs(subject, texts.loss, fixed, cells)[0][:, 0].mean(axis=0)
    estimate = np.ravel(estimate)
    print(name)
    for what, at in (("all heads", estimate < np.inf),
                     ("without ten", estimate < np.sort(estimate)[-10])):  # fmt: skip
        ranks = spearmanr(estimate[at], exact[at])[0]
        print(f"  {what}: rank correlation {ranks:.2f}, mean estimate {estimate[at].mean():.5f}, "
              f"exact {exact[at].mean():.5f}")  # fmt: skip
        assert ranks > (0.85 if (name, what) == ("demo-rotary", "without ten") else 0.9)
    assert abs(estimate[at].mean() - exact[at].mean()) < max(0.3 * abs(exact[at].mean()), 5e-4)


def test_what_cannot_be_done(model_dirs):
    path = model_dirs["gpt2"]
    with refused("Expected four windows of text or more.*got 3 of 17"):
        perform(KernelOnlyHead, path, some_windows(3, LENGTH), head="L0H0")
    with refused("A head is written L<layer>H<head>"):
        perform(KernelOnlyHead, path, some_windows(20, LENGTH), head="L9H0")
    with refused("of 34 tokens or more.*got 20 of 17"):
        perform(KernelOnlyHead, path, some_windows(20, LENGTH), head="L0H0", skip=32)


def test_a_cancel_ends_each_stage(model_dirs):
    """Whenever progress is told, a cancel ends the work; nothing half done is remembered."""
    path, windows = model_dirs["gpt2"], some_windows(20, LENGTH)
    subject, _ = study(path, windows)
    asked = HeadsReplaced.params(**NOTHING, draws=1)
    calls = []
    HeadsReplaced().perform(subject, {}, asked, lambda *at: calls.append(at))
    assert all(done <= total for done, total in calls)
    subject.model.notes.clear()
    for stop in (0, len(calls) // 2, len(calls) - 1):
        left = iter(range(stop + 1))

        def cancel(done, total, left=left, stop=stop):
            if next(left) == stop:
                raise Cancelled("Cancelled.")

        with pytest.raises(Cancelled):
            HeadsReplaced().perform(subject, {}, asked, cancel)
        subject.model.notes.clear()
