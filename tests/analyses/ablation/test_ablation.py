"""Heads ablated on many texts: by plain transformers, and where the answer is known."""

import numpy as np
import pytest

from poskernel_core.analyses.ablation.spec import AblateHeads
from poskernel_core.analyses.kernel_only.spec import HeadsReplaced, KernelOnlyHead
from poskernel_core.analyses.views import figure_of
from poskernel_core.data.layouts import TokenPool, sequences, twice_layout
from tests.support import builders, oracles
from tests.support import oracles_kernel_only as oracle
from tests.support.builders.contextual import some_windows, study
from tests.support.builders.families import FAMILY_MODELS
from tests.support.builders.made import START, VOCABULARY
from tests.support.made_findings import found as said
from tests.support.raw import of_all_texts
from tests.support.refusals import refused

SKIP, LENGTH, SAMPLES, PERIOD = 3, 17, 7, 8
SIZES = {"kernel_windows": 7, "loss_windows": 5, "skip": SKIP, "tokens": LENGTH, "samples": SAMPLES}
CELLS = [(0, 1), (1, 2)]
SCALES = {"gpt2": 7**-0.5, "llama": 10**-0.5}


def perform(path, windows, question=AblateHeads, **params):
    subject, _ = study(path, windows, batch=5)
    asked = question.params(**{**SIZES, **params} if question is AblateHeads else params)
    return of_all_texts(question().perform(subject, {}, asked, lambda done, total: None))


def drawn(stream):
    """The sequences of random tokens, a start token before each."""
    source = TokenPool(np.arange(1, VOCABULARY), START, 3)
    return sequences(twice_layout(PERIOD, True), source, stream, range(SAMPLES))


@pytest.mark.parametrize("by", ["zero", "mean", "resample", "kernel"])
@pytest.mark.parametrize("name", SCALES)
def test_against_plain_transformers(model_dirs, name, by):
    """Losses, induction scores and their errors, by hooks and loops; texts are paired."""
    path, windows = model_dirs[name], some_windows(20, LENGTH)
    of_kernels, of_loss = (windows[np.arange(20) % 10 // 5 == half][:5] for half in (0, 1))
    plain = oracle.Plain(path)

    def fixed(others):
        if by == "kernel":
            rows = oracle.rows(path, of_kernels, SKIP, [SCALES[name]] * 3)["kernel"]
        elif by == "resample":
            plain.loss(others)
            z = {layer: seen[1].numpy() for layer, seen in plain.seen.items()}
            width = z[0].shape[-1] // plain.count
            rows = {at: {h: z[at][..., h * width : (h + 1) * width] for h in range(plain.count)}
                    for at in z}  # fmt: skip
        else:
            rows = [float(by == "mean") * each for each in plain.outputs(of_kernels)]
        return {cell: rows[cell[0]][cell[1]] for cell in CELLS}

    found = perform(path, windows, heads="L1H2, L0H1", by=by)
    clean = plain.losses(of_loss)
    rise = plain.losses(of_loss, fixed(np.roll(of_loss, 1, axis=0))) - clean
    assert np.isnan(found.values["position_loss_change"][0])
    np.testing.assert_allclose(found.values["position_loss_change"][1:], rise.mean(0), atol=2e-5)
    np.testing.assert_allclose(found.values["clean_position_loss"][1:], clean.mean(0), atol=2e-5)
    assert rise.mean() == pytest.approx(float(found.values["loss_change"]), abs=5e-6)
    error = oracles.jackknife(5, lambda kept: rise[kept].mean())
    assert error == pytest.approx(float(found.errors["loss_change"]), abs=5e-6)

    tokens, runs = drawn(0), []
    for each in ({}, fixed(drawn(1))):
        losses = plain.losses(tokens, each)
        copies = np.stack([losses[:, :PERIOD].mean(1), losses[:, PERIOD:].mean(1)], axis=1)
        runs.append((copies, plain.induction(1, PERIOD)))
    copies, scores = (changed - clean for clean, changed in zip(*runs, strict=True))
    others = np.ones(scores.shape[1:], bool)
    if by == "kernel":  # the plain model still returns the pattern that its hooks replace
        others[tuple(np.transpose(CELLS))] = False
    for what, sample, at in (
        ("copy_loss_change", copies, ...),
        ("induction_change", scores, others),
    ):
        np.testing.assert_allclose(found.values[what][at], sample.mean(0)[at], atol=2e-5)
        error = sample.std(axis=0, ddof=1) / SAMPLES**0.5
        np.testing.assert_allclose(found.errors[what][at], error[at], atol=2e-5)
    np.testing.assert_allclose(found.values["induction"], runs[0][1].mean(0), atol=1e-5)


def test_an_induction_circuit(tmp_path):
    """The head that looks back is position alone: its kernel keeps induction, all else ends it."""
    path = builders.induction(tmp_path / "model")
    windows = np.tile(drawn(2)[:, :LENGTH], (3, 1))
    changes = {}
    for by in ("kernel", "mean", "zero", "resample"):
        found = perform(path, windows, heads="L0H0", by=by, skip=0)
        changes[by] = float(found.values["induction_change"][1, 0])
        loss = found.values["copy_loss_change"][1]
        assert abs(loss) < 1e-3 if by == "kernel" else loss > 0.1
    print(changes)
    assert 0 == pytest.approx(changes.pop("kernel"), abs=1e-3)
    assert max(changes.values()) < -0.2
    found = perform(path, windows, heads="L0H1,L1H1", by="zero", skip=0)  # they write nothing
    for name in ("loss_change", "copy_loss_change", "induction_change"):
        np.testing.assert_allclose(found.values[name], 0, atol=1e-6)
    scores = perform(path, windows, heads="L0H0").only("induction_change")
    assert "L1H0" == figure_of(scores).data[0].y[0]


def test_all_heads_by_their_kernels(model_dirs):
    """All heads may be ablated: by their kernels it is the end of the curve of replaced heads."""
    path, windows = model_dirs["gpt2"], some_windows(20, LENGTH)
    sizes = {name: each for name, each in SIZES.items() if name != "samples"}
    many = perform(path, windows, HeadsReplaced, draws=1, **sizes)
    every = ",".join(f"L{layer}H{head}" for layer in range(3) for head in range(5))
    found = perform(path, windows, heads=every, by="kernel")
    assert float(many.values["loss_change"][0, -1]) == pytest.approx(
        float(found.values["loss_change"]), abs=1e-6
    )
    assert LENGTH - 1 == len(figure_of(found).data[-1].x)


def test_what_cannot_be_ablated(model_dirs):
    path, windows = model_dirs["gpt2"], some_windows(20, LENGTH)
    with refused("Expected heads such as L0H3, L1H4, got none"):
        perform(path, windows, heads=" , ")
    with refused("A head is written L<layer>H<head>, from L0H0 to L2H4 .* got 'L7H0'"):
        perform(path, windows, heads="L0H0, L7H0")
    lfm2 = FAMILY_MODELS["lfm2"].build(path.parent / "lfm2-ablated")
    for question, params in ((AblateHeads, {"heads": "L0H0"}), (KernelOnlyHead, {"head": "L0H0"})):
        with refused("Layer 0 has no attention heads; expected heads such as L"):
            perform(lfm2, windows, question, **params)


def test_findings():
    for by, change, words in (
        ("mean", 0.05, "With the mean output of 2 heads, the model loses 0.05 nats a token."),
        ("kernel", -0.05, "With the kernel alone of 2 heads, the model gains 0.05 nats a token."),
        ("zero", 0.001, ""),
    ):
        assert words == said(
            "ablate-heads", {"loss_change": (change, 0.001)}, {"heads": "L0H1, l0h1,L2H3", "by": by}
        )
