"""What heads write to the logits: plain transformers, the bridge, every family, known heads."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import poskernel_core as pk
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.score_components import experiment as splitting
from poskernel_core.analyses.writing.spec import Copying, HeadWrites, LogitContributions
from poskernel_core.common.errors import UnsupportedModel
from tests.support import Made, builders
from tests.support import oracles_writing as oracle
from tests.support.builders import copying
from tests.support.builders.contextual import ask
from tests.support.builders.families import EVERY_MODEL, tried
from tests.support.passes import loaded
from tests.support.refusals import refused

LENGTH, AT, TOKEN = 23, 19, 37
MORE = ("llama", "granite", "cohere", "bloom", "phi", "jamba", "qwen3-next")
"""A plain one; factors of the stream and the logits; a norm of embeddings; a bias of the logits;
layers without heads, at the ends; a gate behind attention."""
FAMILIES = tuple(dict.fromkeys((*tried(), *MORE)))
REFUSED = ("deepseek2", "deepseek3")
CAPS = {"gemma2": 5.0}
IDS = builders.random_ids(1, LENGTH, seed=11)


@pytest.fixture(scope="module")
def dirs(tmp_path_factory):
    root = tmp_path_factory.mktemp("families")
    return Made(lambda name: EVERY_MODEL[name].build(root / name))


def performed(question, model, windows, **params):
    context = ExperimentContext(
        model, np.asarray(windows), [], lambda each: [str(one) for one in each], False,
        single_id=int,
    )  # fmt: skip
    given = {"text": "x"} if "text" in question.params.model_fields else {}
    asked = question.params(**given, **params)
    return question().perform(context, {}, asked, lambda done, total: None)


def contributions(model, ids=IDS, **params):
    return performed(LogitContributions, model, ids, **{"query": AT, **params})


def total(found):
    return [part for name, part in found.values.items() if name.endswith("_contribution")]


@pytest.mark.parametrize("name", [each for each in FAMILIES if each not in REFUSED])
def test_they_add_up_to_the_logit_of_plain_transformers(dirs, name):
    """And what a head writes is the same in both answers, and the sum over its keys."""
    model = loaded(dirs[name])
    found = contributions(model, token=str(TOKEN))
    module = builders.hf_eager_model(dirs[name])
    if name == "falcon-alibi":  # its eager attention adds the bias twice
        module = AutoModelForCausalLM.from_pretrained(dirs[name], attn_implementation="sdpa").eval()
    with torch.inference_mode():
        plain = module(IDS, use_cache=False).logits[0, AT].double()
    parts = np.concatenate([part.ravel() for part in total(found)])
    size, logit = np.nansum(np.abs(parts)), float(found.values["logit"])
    assert abs(np.nansum(parts) - logit) <= 1e-5 * size
    cap = CAPS.get(name)
    capped = cap * np.tanh(logit / cap) if cap else logit
    assert capped == pytest.approx(float(plain[TOKEN]), abs=1e-4)
    layer = model.geometry.with_heads[-1]
    wrote = performed(HeadWrites, model, IDS, query=AT, head=f"L{layer}H2")
    by_key, sums = wrote.values["by_key"], wrote.values["contribution"]
    np.testing.assert_allclose(
        by_key.sum(axis=1), sums, atol=1e-5 * np.abs(by_key).sum(axis=1).max()
    )
    assert (np.diff(sums) <= 1e-6).all()
    word = int(wrote.texts["words"][0])
    heads = contributions(model, token=str(word)).values["head_contribution"]
    assert sums[0] == pytest.approx(heads[layer, 2], abs=1e-6 * size)
    assert np.isnan(heads).all(axis=1).tolist() == [
        at not in model.geometry.with_heads for at in range(len(heads))
    ]


@pytest.mark.parametrize("name", ["demo-gpt2", "demo-rotary", "llama"])
def test_the_bridge_agrees(dirs, name):
    """Heads' outputs, `W_O`, the final norm's scale and `W_U` of transformer_lens, one by one."""
    model = pk.load(str(dirs[name]) if name == "llama" else name, device="cpu")
    ids = torch.randint(3, 200, (1, LENGTH), generator=torch.manual_seed(2))
    bridge = pk.to_bridge(model)
    with torch.inference_mode():
        logits, cache = bridge.run_with_cache(ids)
    reads = bridge.W_U.double()
    reads = reads - reads.mean(dim=-1, keepdim=True)
    norm = model.module.base_model.ln_f if name == "demo-gpt2" else model.module.base_model.norm
    found = contributions(model, ids, token=str(TOKEN))
    words = performed(HeadWrites, model, ids, query=AT, head="L2H3")
    for layer in range(model.geometry.n_layers):
        z = cache[f"blocks.{layer}.attn.hook_z"][0, AT].double()
        each = torch.einsum("hd,hdm->hm", z, bridge.blocks[layer].attn.W_O.double())
        if name == "demo-gpt2":
            each = each - each.mean(dim=-1, keepdim=True)
        each = each * norm.weight.double() / cache["ln_final.hook_scale"][0, AT].double()
        plain = (each @ reads).detach().numpy()
        ours = found.values["head_contribution"][layer]
        np.testing.assert_allclose(ours, plain[:, TOKEN], atol=1e-5)
        if layer == 2:
            order = np.argsort(-plain[3])
            ours = [int(word) for word in words.texts["words"]]
            np.testing.assert_allclose(words.values["contribution"], plain[3][ours], atol=1e-5)
            best = [*plain[3][order[:10]], *plain[3][order[-10:]]]
            np.testing.assert_allclose(words.values["contribution"], best, atol=1e-5)
    assert float(found.values["logit"]) == pytest.approx(float(logits[0, AT, TOKEN]), abs=1e-4)


def test_the_token_that_follows_or_the_likeliest(dirs):
    model = loaded(dirs["llama"])
    assert int(contributions(model).values["chosen_token"]) == int(IDS[0, AT + 1])
    last = contributions(model, query=-1)
    assert int(last.values["chosen_query"]) == LENGTH - 1
    with torch.inference_mode():
        plain = builders.hf_eager_model(dirs["llama"])(IDS, use_cache=False).logits[0, -1]
    assert int(last.texts["token"]) == int(plain.argmax())


@pytest.mark.parametrize(("name", "kind"), [("gpt2", oracle.Gpt2), ("gemma2", oracle.Gemma2)])
def test_copying_by_whole_matrices(dirs, name, kind):
    """Shares by plain loops; eigenvalues of the whole matrix over the vocabulary."""
    windows = builders.random_ids(4, LENGTH, seed=7).numpy() % 47 + 3
    counts = np.bincount(windows.ravel())
    ids = np.argsort(-counts, kind="stable")[:29]
    found = performed(Copying, loaded(dirs[name]), windows, frequent=29)
    plain = oracle.copying(dirs[name], kind, windows, ids)
    for value, same in (
        ("share", "first"),
        ("share_first_layer", "second"),
        ("eigenvalues", "eigenvalues"),
    ):
        ours = found.values[f"copying_{value}"]
        assert np.isnan(ours).any() == (value == "share_first_layer")
        assert np.nanstd(ours) > 0.01
        np.testing.assert_allclose(ours, plain[same], atol=1e-4)


def test_heads_that_copy_suppress_and_do_nothing(tmp_path):
    path = copying.copying_heads(tmp_path / "copies")
    windows = builders.random_ids(7, copying.LENGTH, seed=1).numpy()
    found = performed(Copying, loaded(path), windows).values
    known = {copying.COPIES: (1.0, 1.0), copying.SUPPRESSES: (0.0, -1.0)}
    for layer in range(2):
        for head, (share, score) in known.items():
            assert found["copying_share"][layer, head] == share
            assert found["copying_eigenvalues"][layer, head] == pytest.approx(score, abs=1e-6)
        assert found["copying_share"][layer, copying.NOTHING] == 0
        assert np.isnan(found["copying_eigenvalues"][layer, copying.NOTHING])
    assert found["copying_share_first_layer"][1].round(1).tolist() == [1, 0, 0]
    wrote = performed(HeadWrites, loaded(path), windows[:1], head="L0H0", query=0)
    assert int(wrote.texts["words"][0]) == windows[0, 0]  # it sees this token alone


def test_by_way_of_the_store(tmp_path, dirs):
    asked = {"text": "She sells sea shells on the sea shore."}
    found = ask(tmp_path, "logit-contributions", dirs["gpt2"], asked | {"query": 3}, windows=3)
    assert str(found.texts["token"]) == found.words("tokens")[4]
    with refused("one token of"):
        ask(tmp_path, "logit-contributions", dirs["gpt2"], asked | {"token": "xylophones"})
    with refused("expected a query from 0 to"):
        ask(tmp_path, "head-writes", dirs["gpt2"], asked | {"head": "L1H1", "query": 99})


def test_refused(dirs, monkeypatch):
    with refused("compressed keys", UnsupportedModel):
        contributions(loaded(dirs["deepseek2"]))
    model = loaded(dirs["gpt2"])
    with refused("A head is written"):
        performed(HeadWrites, model, IDS, head="L9H0")
    monkeypatch.setattr(splitting, "MAX_NUMBERS", 3 * 70 * 22)
    with refused("up to 22 tokens, got 23"):
        contributions(model)
