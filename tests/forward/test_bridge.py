"""A loaded model as a bridge of transformer_lens: the same tensors, the same numbers, untouched."""

import copy

import pytest
import torch

import poskernel_core as pk
from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward.edits import Edit

IDS = torch.arange(23)[None] * 7 % 281 + 3


class Patched(Edit):
    """One head's output, taken from another text."""

    def __init__(self, source):
        self.source = source

    def heads(self, layer, z):
        if layer != 1:
            return z
        z = z.clone()
        z[:, 2] = self.source
        return z


ADDED = "lm_head._original_component.bias"
"""A bias of zeros that transformer_lens 4.0 gives models without one; 4.3 does not."""


@pytest.mark.parametrize("name", ["gpt2", "gpt_neo", "opt", "llama", "qwen3", "attn_only"])
def test_it_shares_all_tensors_and_leaves_the_model_as_it_was(loaded, name):
    """Also of what our hooks and adapters put in place; a change of a weight is seen by both."""
    model = loaded[name]
    before, own = model.run(IDS), {part: dict(vars(part)) for part in model.module.modules()}
    bridge = pk.to_bridge(model)

    ours = {each.untyped_storage().data_ptr() for each in model.module.parameters()}
    theirs = {
        each.untyped_storage().data_ptr(): name
        for name, each in bridge.original_model.named_parameters()
    }
    assert ours <= theirs.keys()
    apart = [theirs[each] for each in theirs.keys() - ours]
    apart = [each for each in apart if each != ADDED]
    assert all(".mlp." in each or ".ln_2." in each for each in apart)
    assert bool(apart) == (name == "attn_only")
    for part, kept in own.items():
        assert kept.keys() == vars(part).keys()
        assert all(vars(part)[key] is value for key, value in kept.items())
    assert torch.equal(before, model.run(IDS))
    with torch.inference_mode():
        torch.testing.assert_close(bridge(IDS), before, rtol=1e-4, atol=1e-4)
        weight = model.module.get_input_embeddings().weight
        kept = weight[3].clone()
        weight[3] *= -2
        changed = bridge(IDS)
        weight[3] = kept
    assert float((changed - before).abs().max()) > 1e-2
    assert torch.equal(before, model.run(IDS))


def test_a_patch_has_the_same_effect(loaded):
    """The output of a head from another text: by our edits, and by the bridge's hooks."""
    model = loaded["llama"]
    bridge, hook = pk.to_bridge(model), "blocks.1.attn.hook_z"
    with torch.inference_mode():
        _, cache = bridge.run_with_cache(IDS + 1)

        def patch(z, hook):
            z = z.clone()
            z[:, :, 2] = cache[hook.name][:, :, 2]
            return z

        theirs = bridge.run_with_hooks(IDS, fwd_hooks=[(hook, patch)])
    ours = model.run(IDS, Patched(cache[hook][:, :, 2]))
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-4)
    assert float((ours - model.run(IDS)).abs().max()) > 1e-2


def test_by_name_with_its_tokenizer():
    bridge = pk.to_bridge("demo-attn-2l", device="cpu")
    text = " the king of the house"
    windows = pk.token_windows("demo-attn-2l", corpus={"name": "text", "text": text}, context=64)
    assert windows.tolist() == bridge.to_tokens(text).tolist()
    assert 2 == bridge.cfg.n_layers


@pytest.mark.parametrize(
    ("family", "told"),
    [("qwen2-vl", "transformer_lens has no bridge for"), ("falcon-alibi", "computes '")],
)
def test_a_bridge_that_there_is_not_or_that_differs_is_refused(family, told, model_dirs):
    """In one sentence that says what to use; the bridge of Falcon adds its slopes twice."""
    with pytest.raises(UnsupportedModel, match=told) as refused:
        pk.to_bridge(str(model_dirs[family]), device="cpu")
    assert "use transformers' own module, pk.load(...).module." in str(refused.value)
    assert "\n" not in str(refused.value)


def test_weights_on_several_devices_are_refused(loaded):
    model = copy.copy(loaded["llama"])
    model.lies_on = ("GPU 0", "disk")
    with pytest.raises(UnsupportedModel, match="lies on several devices"):
        pk.to_bridge(model)


def test_windows_of_a_run_are_those_of_the_pass(near_worker, fresh_engine):
    """Also where a corpus is drawn, or the last token is fixed."""
    run = {"corpus": "sample", "context": 40, "windows": 10}
    windows = pk.token_windows("demo-gpt2", **run)
    assert (10, 40) == windows.shape
    model = pk.load("demo-gpt2", device="cpu")
    kernel = pk.analyse("kernel", pk.run_pass(model, windows, positions=[30]), query=30)
    shown = pk.show("kernel", "demo-gpt2", query=30, engine=fresh_engine, **run)
    torch.testing.assert_close(
        torch.tensor(kernel.values["kernel"]), torch.tensor(shown.values["kernel"])
    )
    drawn = pk.token_windows("demo-gpt2", corpus="repeated", context=9, windows=10)
    assert all(len(set(row)) == 1 for row in drawn.tolist())
    the = pk.token_windows("demo-gpt2", destination=" the", **run)[:, -1]
    assert 1 == len(set(the.tolist()))
