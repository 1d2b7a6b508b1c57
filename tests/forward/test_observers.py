"""What an observer is shown of a pass, edited or not; and what no attention may be told."""

import functools

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

import poskernel_core as pk
from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward import attention, hooks
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.interventions import AblatedHeads, RemovedEmbeddings
from poskernel_core.passes.prepare import sizes_for
from poskernel_core.passes.streaming import Pass
from poskernel_core.statistics import STATISTICS
from tests.support import builders
from tests.support.truth import Recorder

ALL = pytest.mark.parametrize("name", builders.ARCHITECTURES)
LENGTH = 23


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(attention, "BLOCK", 11)


@pytest.fixture(scope="module")
def ids():
    return builders.random_ids(3, LENGTH, seed=17)


@ALL
def test_both_roads_show_the_same(loaded, ids, name):
    plain, edited = Recorder(patterns=True), Recorder(patterns=True)
    loaded[name].run(ids, observers=[plain], until=-1)
    loaded[name].run(ids, Edit(), [edited], until=-1)

    layers = loaded[name].geometry.n_layers
    assert (3 * layers, layers) == (len(plain.blocks), len(edited.blocks))
    assert (loaded[name].geometry.scheme == "learned") == len(plain.embeddings)
    for moment in ("embeddings", "residuals", "inputs", "outputs"):
        found = getattr(edited, moment)
        assert len(found) == (layers if moment != "embeddings" else len(plain.embeddings))
        for one, other in zip(found, getattr(plain, moment), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)
    for one, other in zip(edited.patterns(), plain.patterns(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_observers_see_what_the_edit_left(loaded, ids):
    removed, ablated = Recorder(), Recorder()
    loaded["gpt2"].run(ids, RemovedEmbeddings("positions"), [removed], keep=0)
    loaded["gpt2"].run(ids, AblatedHeads([(1, 2)]), [ablated], keep=0)
    assert 0 == removed.embeddings[0].abs().max() < ablated.embeddings[0].abs().max()
    per_head = ablated.outputs[1].abs().amax(dim=(0, 2, 3))
    assert [2] == torch.nonzero(per_head == 0).flatten().tolist()


@pytest.mark.parametrize("edit", [None, Edit()])
def test_only_who_wants_patterns_sees_them(loaded, ids, edit):
    with_patterns, without = Recorder(patterns=True), Recorder()
    loaded["llama"].run(ids, edit, [without, with_patterns], until=-1)
    assert [] == without.blocks != with_patterns.blocks
    assert len(without.calls) == len(with_patterns.calls) == 3


@ALL
@pytest.mark.parametrize("edit", [None, Edit()])
def test_every_moment_comes_with_its_batch(loaded, ids, name, edit):
    model, earlier = loaded[name], Recorder(patterns=True)
    model.run(ids[:1], edit, [earlier], until=0)
    recorder = Recorder(patterns=True)
    model.run(ids, edit, [recorder], samples=range(40, 43))

    for seen, tokens, samples in ((earlier, ids[:1], range(1)), (recorder, ids, range(40, 43))):
        moments = sum(
            len(getattr(seen, each))
            for each in ("embeddings", "residuals", "inputs", "calls", "blocks", "outputs")
        )
        assert moments == len(seen.batches) > 4
        assert all(torch.equal(tokens, batch.tokens) for batch in seen.batches)
        assert {samples} == {batch.samples for batch in seen.batches}


@pytest.mark.parametrize(("until", "layers"), [(0, 1), (1, 2), (-1, 3), (-3, 1), (None, 3)])
@pytest.mark.parametrize("edit", [None, Edit()])
def test_a_pass_ends_where_it_is_told_to(loaded, ids, until, layers, edit):
    recorder, ran, last = Recorder(), [], loaded["gpt2"].module.transformer.h[-1].mlp
    with last.register_forward_hook(lambda *_: ran.append(1)):
        logits = loaded["gpt2"].run(ids, edit, [recorder], until=until)
    assert (until is None) == bool(ran)
    assert layers == len(recorder.calls) == len(recorder.outputs)
    assert (until is None) == bool(logits.numel())
    with pytest.raises(IndexError):
        loaded["gpt2"].run(ids, until=3)
    assert layers == len(recorder.calls)  # the observer is gone


@pytest.mark.parametrize(
    ("name", "edit", "off"),
    [("gpt2", None, 1e-6), *((name, Edit(), 2e-4) for name in ("gpt2", "gpt_neo", "mistral"))],
)
def test_statistics_know_their_batch_by_argument_alone(loaded, ids, name, edit, off):
    """Batches in another order, or of an edited run, give the sums of the usual pass."""
    model, windows = loaded[name], torch.cat([ids, ids[:1]])
    windows[1:, 7] = windows[1:, 6]  # a repeated token
    many = np.repeat(windows.numpy(), 10, axis=0)
    plan = sizes_for(model.geometry, many, (0, 5, 22), 30, True)
    work = Pass(model, plan, tuple(STATISTICS))
    work.run(many, range(0, 40, 10), 2)
    statistics = [each(plan, model.device) for each in STATISTICS.values()]
    for some in (range(2, 4), range(1), range(1, 2)):
        part = slice(some.start, some.stop)
        model.run(windows[part], edit, statistics, samples=range(0, 40, 10)[part], keep=0)

    expected = work.sums()
    assert 14 < len(expected)
    passing = {"_diagonals", "_previous", "_rotations", "_texts"}
    for statistic in statistics:
        assert vars(statistic).keys() <= {"sizes", "device", "sums", *passing}
        for sums, found in statistic.sums.items():
            close = {"rtol": min(off, 1e-4), "atol": off, "err_msg": sums}
            np.testing.assert_allclose(found.numpy(), expected[sums], **close)


TOLD = {
    "indices": torch.ones(5),
    "is_causal": False,
    "made_up": False,
    "attention_mask": torch.zeros(1, 1, 5, 5),
}


@pytest.mark.parametrize("argument", TOLD)
def test_an_unknown_argument_is_refused(loaded, argument):
    module = loaded["llama"].module.model.layers[1].self_attn
    ours = AttentionInterface()[hooks.IMPLEMENTATION]
    q, k = torch.ones(1, 5, 4, 10), torch.ones(1, 1, 4, 10)
    told = {"attention_mask": None} | {argument: TOLD[argument]}

    with pytest.raises(UnsupportedModel, match=f"LlamaAttention hands '{argument}' ") as error:
        ours(module, q, k, k, **told)
    assert 1 == str(error.value).count(".")


def test_a_model_that_tells_more_is_refused(loaded, ids, monkeypatch):
    kind = type(loaded["gpt2"].module.transformer.h[1].attn)
    forward = kind.forward
    monkeypatch.setattr(kind, "forward", functools.partialmethod(forward, made_up=3))
    with pytest.raises(UnsupportedModel, match="'made_up'"):
        pk.run_pass(loaded["gpt2"], ids.numpy(), positions=(3,))

    monkeypatch.setattr(kind, "forward", functools.partialmethod(forward, made_up=None))
    assert (3, LENGTH, builders.VOCABULARY) == loaded["gpt2"].run(ids).shape


def test_an_observer_that_fails_is_taken_off(loaded, ids):
    class Broken(Recorder):
        def attention(self, call, batch) -> None:
            raise ZeroDivisionError

    model, recorder = loaded["llama"], Recorder()
    with pytest.raises(ZeroDivisionError):
        model.run(ids, observers=[Broken()])
    with torch.inference_mode():
        model.module(ids, use_cache=False)
    model.run(ids, observers=[recorder])
    assert 3 == len(recorder.calls)
