"""A model that is an object: its numbers are a directory's, and it is afterwards as it was."""

import _thread
import copy
import json
import random
import threading
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, PolyConfig, PromptTuningConfig, get_peft_model
from torch import nn
from transformer_lens import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources import build_bridge_from_module
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    GPT2ForSequenceClassification,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.common import arithmetic
from poskernel_core.common.errors import PosKernelError
from poskernel_core.engine.engine import Engine
from poskernel_core.models.attached import attached
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.objects.twin import unwrap
from poskernel_core.passes.streaming import Pass
from poskernel_core.storage.store import Store
from tests.support.builders.made import START
from tests.support.passes import FEW

DEMO = str(BUNDLED_MODELS["demo-gpt2"])
RUN = {"windows": 10, "context": 37}
SHELLS = "She sells sea shells by the sea shore."

pytestmark = [
    pytest.mark.usefixtures("near_worker", "unchecked"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),  # of peft
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A default store for every test."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))


def demo(**more):
    return AutoModelForCausalLM.from_pretrained(DEMO, **more)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(DEMO)


@pytest.fixture
def of_directory(tmp_path):
    """Asks a directory, by an engine and a store that no lab knows."""
    engine = Engine(Store(tmp_path / "apart"))
    yield partial(pk.show, engine=engine)
    engine.close()


def bridge_of(model, tokenizer=None):
    name = type(model).__name__
    return build_bridge_from_module(model, name, hf_config=model.config, tokenizer=tokenizer)


def adapted(model, **more):
    torch.manual_seed(5)
    config = LoraConfig(
        r=2, target_modules=["c_attn", "c_proj", "c_fc"], init_lora_weights=False,
        fan_in_fan_out=True, **more,
    )  # fmt: skip
    found = get_peft_model(model, config)
    with torch.no_grad():  # as large as after some training
        for name, each in found.named_parameters():
            each.mul_(0.1 if "lora" in name else 1)
    return found


def equal(found, expected, tolerance=0):
    assert found.values.keys() == expected.values.keys()
    for name, value in expected.values.items():
        np.testing.assert_allclose(
            found.values[name], value, rtol=tolerance, atol=tolerance, err_msg=name
        )


def needed(name):
    """What a question needs to be told, and what spares it work."""
    fields = ANALYSES[name].params.model_fields
    given = FEW | {"text": "She sells sea shells."}
    params = {name: value for name, value in given.items() if name in fields}
    return {"params": params} | ({"head": "L1H2"} if "head" in fields else {})


def everything(model):
    """All that can be seen of an object and of the process: attributes, tensors, random state."""
    parts = {
        path: {
            name: [(key, id(each)) for key, each in value.items()]
            if isinstance(value, dict)
            else (id(value), str(value))
            for name, value in vars(part).items()
        }
        for path, part in model.named_modules()
    }
    tensors = {
        name: (
            each.data_ptr(), isinstance(each, nn.Parameter) and each._version,  # noqa: SLF001
            each.requires_grad, each.dtype,
            each.detach().numpy().tobytes(),
            None if each.grad is None else each.grad.numpy().tobytes(),
        )
        for name, each in [*model.named_parameters(), *model.named_buffers()]
    }  # fmt: skip
    chance = torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())
    config = json.loads(model.config.to_json_string()) if hasattr(model, "config") else None
    chosen = getattr(getattr(model, "config", None), "_attn_implementation", None)
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads()
    threads = [each.name for each in threading.enumerate() if "_work" in each.name]
    return parts, tensors, chance, config, chosen, modes, threads


def trained(model):
    """A model in the midst of training: some weights frozen, a gradient, a hook of its owner."""
    model.train()
    model.transformer.wpe.weight.requires_grad_(False)
    ids = torch.arange(12)[None]
    model(ids, labels=ids).loss.backward()
    return model


def test_the_object_is_as_before(tokenizer):
    model = trained(demo())
    before = everything(model)
    lab = pk.attach(model, tokenizer)
    lab.show("etc", **RUN)
    lab.show("induction-scores", **RUN)
    assert before == everything(model)


def test_arithmetic_follows_the_object(tokenizer):
    """After another model on a GPU, that of an object on the CPU is NumPy's again."""
    arithmetic.run_on(torch.tensor)
    try:
        pk.attach(demo(), tokenizer).show("etc", **RUN)
        assert np.ndarray is arithmetic.carry_out(type, np.ones(3))
    finally:
        arithmetic.run_on(None)


@pytest.mark.parametrize("end", ["interrupt", "error"])
def test_the_object_is_as_before_a_run_that_broke_off(tokenizer, end):
    model = trained(demo())
    lab, before, run = pk.attach(model, tokenizer), everything(model), Pass.run

    def breaks(self, *args):
        run(self, *args)
        if end == "error":
            raise RuntimeError("no more")
        _thread.interrupt_main()
        threading.Event().wait(0.3)

    broken = pytest.raises(KeyboardInterrupt if end == "interrupt" else PosKernelError)
    with patch.object(Pass, "run", breaks), broken:
        lab.show("etc", **RUN)
    assert before == everything(model)
    assert np.isfinite(lab.show("etc", query=36, head="L1H1", **RUN).values["etc"])


def test_every_question_of_a_directory(model_dirs, of_directory):
    """Each is answered with the same numbers, or refused in the same words."""
    path = str(model_dirs["llama"])
    lab = pk.attach(AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path))
    answered = 0
    for name in ANALYSES:
        try:
            expected = of_directory(name, path, **needed(name), **RUN)
        except PosKernelError as error:
            with pytest.raises(type(error)):
                lab.show(name, **needed(name), **RUN)
        else:
            equal(lab.show(name, **needed(name), **RUN), expected)
            answered += 1
    assert answered > 40


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "opt"])
def test_numbers_of_other_families(model_dirs, of_directory, family):
    path = str(model_dirs[family])
    model = AutoModelForCausalLM.from_pretrained(path)
    lab = pk.attach(model, AutoTokenizer.from_pretrained(path))
    equal(lab.show("etc", **RUN), of_directory("etc", path, **RUN))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_read_as_a_directory_is(dtype, tokenizer, of_directory, tmp_path):
    """And, loaded as they were saved, they have the directory's results."""
    demo(dtype=dtype).save_pretrained(tmp_path / "halved")
    tokenizer.save_pretrained(tmp_path / "halved")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "halved", dtype=dtype)
    expected = of_directory("etc", tmp_path / "halved", **RUN)
    lab = pk.attach(model, tokenizer)
    assert str(tmp_path / "halved") == lab.model.name
    other = pk.attach(copy.deepcopy(model).float(), tokenizer, name="widened")
    equal(other.show("etc", **RUN), expected)


def nothing_runs():
    return patch.object(Pass, "run", side_effect=AssertionError("computed again"))


def test_the_second_time_nothing_is_computed(tokenizer):
    """Whatever was done to the object that changes none of its numbers, and by whatever name."""
    model = trained(demo())
    found = pk.attach(model, tokenizer, name="mine").show("etc", **RUN)
    with torch.no_grad():
        model(torch.arange(12)[None], output_attentions=True)
    model.set_attn_implementation("eager")
    model.config.pad_token_id, model.config.use_cache = 3, False
    model.zero_grad()
    again = torch.compile(nn.DataParallel(model), backend="eager")
    with nothing_runs():
        equal(pk.show("etc", pk.attach(again, tokenizer, name="other"), **RUN), found)


def test_the_results_of_a_directory(tokenizer):
    """Once it was loaded, an object that was loaded from it has them."""
    expected = pk.show("etc", DEMO, **RUN)
    lab = pk.attach(demo(), tokenizer)
    with nothing_runs():
        equal(lab.show("etc", **RUN), expected)
    assert DEMO == lab.model.name


def scaled(module, args, out):
    return (out[0] * 1.5, *out[1:])


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.transformer.h[2].mlp.c_fc.weight.data.mul_(1.001),
        lambda model: model.transformer.h[1].attn.register_forward_hook(scaled),
        lambda model: setattr(model.config, "layer_norm_epsilon", 1e-3),
        lambda model: model.half(),
        lambda model: model.resize_token_embeddings(4099),
    ],
    ids=["a step", "a hook", "the configuration", "16 bits", "a vocabulary"],
)
def test_what_makes_another_model(tokenizer, change):
    model = demo()
    lab = pk.attach(model, tokenizer)
    before = lab.show("etc", **RUN)
    change(model)
    with nothing_runs(), pytest.raises(PosKernelError):
        lab.show("etc", **RUN)
    assert before.provenance["model_fingerprint"] != lab.model.fingerprint
    assert "my-demo-gpt2" == lab.model.name


def test_a_tokenizer_makes_another_model(tokenizer):
    other = copy.deepcopy(tokenizer)
    other.backend_tokenizer.normalizer = __import__("tokenizers").normalizers.Lowercase()
    one, two = (pk.attach(demo(), each).model.fingerprint for each in (tokenizer, other))
    assert one != two


def test_hooks_of_the_caller_are_named_in_results(tokenizer, capsys):
    model = demo()
    model.transformer.h[1].attn.register_forward_hook(scaled)
    lab = pk.attach(model, tokenizer)
    assert "scaled on transformer.h.1.attn" in capsys.readouterr().err
    told = lab.show("etc", **RUN).provenance["device"]
    assert told == f"cpu, with hooks of the caller: {__name__}.scaled on transformer.h.1.attn"


QUESTIONS = ("etc", "contextual-heads", "neuron", "score-components")


def test_adapters_merged_and_not(tokenizer):
    """The same numbers either way, where weights are read as well; another model without them."""
    model = adapted(demo())
    lab = pk.attach(model, tokenizer)
    merged = copy.deepcopy(model).merge_and_unload()
    plain = pk.attach(merged, tokenizer, name="merged")
    kept = copy.deepcopy(model)
    kept.merge_adapter()
    assert 3 == len({each.model.fingerprint for each in (lab, plain, pk.attach(kept, tokenizer))})
    for name in QUESTIONS:
        equal(*(each.show(name, **needed(name), **RUN) for each in (lab, plain)), 5e-4)
    bare = pk.attach(demo(), tokenizer, name="bare").show("etc", **RUN)
    assert np.nanmax(abs(bare.values["etc"] - lab.show("etc", **RUN).values["etc"])) > 0.1
    with model.disable_adapter():
        equal(lab.show("etc", **RUN), bare)


COPIES = {
    "a layer": lambda layers: layers.__setitem__(2, copy.deepcopy(layers[0])),
    "an attention": lambda layers: setattr(
        layers[1], "self_attn", copy.deepcopy(layers[0].self_attn)
    ),
    "every layer": lambda layers: [
        layers.__setitem__(i, copy.deepcopy(layers[0])) for i in range(len(layers))
    ],
}


def patterns_of(model, tokenizer):
    """What plain transformers' eager attention gives for the text `SHELLS`."""
    model.set_attn_implementation("eager")
    for part in model.modules():
        if hasattr(part, "config"):
            part.config._attn_implementation = "eager"  # noqa: SLF001
    ids = tokenizer(SHELLS, return_tensors="pt").input_ids
    ids = torch.cat([torch.full((1, 1), START), ids], dim=1)
    with torch.no_grad():
        found = model.eval()(ids, output_attentions=True, use_cache=False)
    return np.stack([each[0].numpy() for each in found.attentions])


@pytest.mark.parametrize("family", ["llama", "gemma2", "smollm3", "qwen3"])
@pytest.mark.parametrize("copied", COPIES)
def test_layers_that_were_copied(model_dirs, family, copied):
    """They bring their own configuration and the number of the layer that they were copied from."""
    model = AutoModelForCausalLM.from_pretrained(model_dirs[family], dtype=torch.float32)
    COPIES[copied](model.model.layers)
    tokenizer = AutoTokenizer.from_pretrained(model_dirs[family])
    before = everything(model)
    lab = pk.attach(model, tokenizer, name="copies")
    found = lab.show("own-text", params={"text": SHELLS}).values["pattern"]
    assert before == everything(model)
    np.testing.assert_allclose(found, patterns_of(model, tokenizer), atol=1e-5)


@pytest.mark.parametrize("merged", [False, True])
def test_layers_that_peft_replicates(model_dirs, merged):
    base = AutoModelForCausalLM.from_pretrained(model_dirs["llama"])
    tokenizer = AutoTokenizer.from_pretrained(model_dirs["llama"])
    torch.manual_seed(5)
    replicated = LoraConfig(layer_replication=[[0, 2], [1, 3], [0, 1]], init_lora_weights=False)
    model = get_peft_model(base, replicated)
    model = model.merge_and_unload() if merged else model
    lab = pk.attach(model, tokenizer, name="replicated")
    found = lab.show("own-text", params={"text": SHELLS}).values["pattern"]
    assert 5 == len(found)
    np.testing.assert_allclose(found, patterns_of(model, tokenizer), atol=1e-5)


def test_a_copied_layer_computes_as_in_its_first_place(model_dirs):
    """The same weights in a place without rotation: another model, unless it is copied anew."""
    path = model_dirs["smollm3"]
    model, other = (AutoModelForCausalLM.from_pretrained(path) for _ in range(2))
    turns = [layer.self_attn.use_rope for layer in model.model.layers]
    there, here = turns.index(0), turns.index(1)
    model.model.layers[there] = copy.deepcopy(model.model.layers[here])
    other.model.layers[there].load_state_dict(other.model.layers[here].state_dict())
    labs = [pk.attach(each, name="a") for each in (model, other, copy.deepcopy(model).train())]
    one, two, again = (each.model.fingerprint for each in labs)
    assert one == again != two


def test_a_bridge_is_what_it_wraps(tokenizer):
    before = pk.attach(demo(), tokenizer).show("etc", **RUN)
    bridge = bridge_of(demo(), tokenizer)
    lab = pk.attach(bridge)
    with nothing_runs():
        equal(lab.show("etc", **RUN), before)
    with torch.no_grad():
        bridge.original_model.transformer.wte.weight[7] *= 2
    seen = everything(bridge)
    plain = demo()
    with torch.no_grad():
        plain.transformer.wte.weight[7] *= 2
    equal(lab.show("kernel", **RUN), pk.attach(plain, tokenizer, name="a").show("kernel", **RUN))
    assert seen == everything(bridge)


NATIVE = {
    "n_layers": 2, "d_model": 35, "n_heads": 5, "d_head": 7, "n_ctx": 41, "act_fn": "gelu",
    "normalization_type": "LN", "positional_embedding_type": "standard",
    "architecture": "TransformerLensNative",
}  # fmt: skip


@pytest.mark.parametrize(("bias", "eps"), [(0, 1e-5), (3, 1e-5), (0, 0.5)])
def test_a_toy_that_a_bridge_built(tokenizer, bias, eps):
    """Its patterns are those that the bridge caches, its logits the bridge's."""
    torch.manual_seed(3)
    config = TransformerBridgeConfig(**NATIVE, d_vocab=4096, attn_only=True, eps=eps)
    bridge = TransformerBridge.boot_native(config)
    bridge.unembed.bias.normal_().mul_(bias)
    lab = pk.attach(bridge, tokenizer, name="toy")
    text = "In the beginning God created the heaven and the earth."
    found = lab.show("own-text", params={"text": text})
    ids = tokenizer("<|endoftext|>" + text, return_tensors="pt").input_ids
    with torch.no_grad():
        _, seen = bridge.run_with_cache(ids)
    expected = np.stack([seen[f"blocks.{layer}.attn.hook_pattern"][0] for layer in range(2)])
    np.testing.assert_allclose(found.values["pattern"], expected, atol=1e-3)


def half_replaced():
    model = demo()
    for layer in (1, 3):
        model.transformer.h[layer].attn = Other()
    return model


class Other(nn.Module):
    """An attention that is not transformers'."""

    def forward(self, hidden_states, **_):
        return hidden_states, None


def hooked_bridge():
    bridge = bridge_of(demo())
    bridge.add_hook("blocks.1.attn.hook_pattern", lambda x, hook: x * 0.5, is_permanent=True)
    return bridge


def compatible_bridge():
    bridge = bridge_of(demo())
    bridge.enable_compatibility_mode(disable_warnings=True)
    return bridge


def on_meta():
    config = demo().config
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def poly():
    config = PolyConfig(target_modules=["q_proj"], n_tasks=2, n_skills=2, r=2)
    return get_peft_model(LlamaForCausalLM(LlamaConfig(**SMALL, intermediate_size=16)), config)


class Mixed(PeftModel):
    """As X-LoRA does it: the object computes more than its layers."""

    def forward(self, *args, **more):
        found = super().forward(*args, **more)
        found.logits = found.logits * 1.001
        return found


def mixed_by_itself():
    made = adapted(demo())
    made.__class__ = Mixed
    return made


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 5000}
T5 = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 16, "vocab_size": 5000}
PROMPTS = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
REFUSED = {
    "a name": (lambda: "gpt2", "got 'gpt2'"),
    "a part": (lambda: nn.Linear(2, 3), "got Linear: attach the whole model"),
    "without a head": (lambda: GPT2Model(demo().config), "got GPT2Model"),
    "a classifier": (lambda: GPT2ForSequenceClassification(demo().config), "predicts tokens"),
    "an encoder": (lambda: BertForMaskedLM(BertConfig(**SMALL, intermediate_size=16)), "later"),
    "two parts": (lambda: T5ForConditionalGeneration(T5Config(**T5)), "encoder with a decoder"),
    "without numbers": (on_meta, "on the device 'meta'"),
    "half replaced": (half_replaced, "layer 1, and the model has no heads there"),
    "tokens in front": (lambda: get_peft_model(demo(), PROMPTS), "PROMPT_TUNING"),
    "adapters after some words": (
        lambda: adapted(demo(), task_type="CAUSAL_LM", alora_invocation_tokens=[3, 5]),
        "aLoRA",
    ),
    "adapters of tasks": (poly, "POLY"),
    "adapters that are mixed": (
        mixed_by_itself,
        r"differ .* by 0.001 of the largest: its adapters",
    ),
    "hooks of a bridge": (hooked_bridge, "its hooks"),
    "other weights": (compatible_bridge, "in compatibility mode"),
    "a toy with MLPs": (
        lambda: TransformerBridge.boot_native(
            TransformerBridgeConfig(**NATIVE, d_vocab=4096, d_mlp=11)
        ),
        "attention-only ones",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(kind, tokenizer):
    make, words = REFUSED[kind]
    with pytest.raises(PosKernelError, match=words) as refused:
        pk.attach(make(), tokenizer)
    assert "\n" not in str(refused.value)
    assert attached("my-demo-gpt2") is None


@pytest.mark.parametrize("state", ["not merged", "merged", "disabled"])
def test_adapters_are_named_as_they_are(state, tokenizer):
    made = adapted(demo(), task_type="CAUSAL_LM")
    if state == "merged":
        made.merge_adapter()
    if state == "disabled":
        made.base_model.disable_adapter_layers()
    made.train()
    torch.rand(1)
    before = everything(made)

    lab = pk.attach(made, tokenizer, "shades")
    assert any(f"adapters default ({state}" in note for note in lab.notes)
    assert before == everything(made)


def test_adapters_of_transformers_own_are_named(tokenizer):
    model = demo()
    model.add_adapter(
        LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True),
        "sailor",
    )
    lab = pk.attach(model, tokenizer, "sailing")
    assert any("adapters sailor (not merged" in note for note in lab.notes)
    assert lab.model != pk.attach(demo(), tokenizer, "ashore").model


def test_adapters_in_16_bits_are_compared_in_them():
    """With rounding that float32's limit would refuse."""
    _, notes = unwrap(adapted(demo()).to(torch.bfloat16))
    assert any("adapters default" in note for note in notes)


def test_what_goes_with_it_is_checked(tokenizer):
    model = LlamaForCausalLM(LlamaConfig(**SMALL | {"vocab_size": 300}, intermediate_size=16))
    with pytest.raises(PosKernelError, match="tokenizer for the 300 tokens of 'my-llama'"):
        pk.attach(model, tokenizer)
    with pytest.raises(PosKernelError, match="Expected a tokenizer of transformers"):
        pk.attach(model, "gpt2")
    for name, words in (("gpt2", "name of another model"), ("a/b", "Expected a name"), (7, "7")):
        with pytest.raises(PosKernelError, match=words):
            pk.attach(model, name=name)
    with pytest.raises(PosKernelError, match="leave the precision out"):
        pk.attach(demo(), tokenizer).show("etc", dtype="bfloat16", **RUN)
    with pytest.raises(PosKernelError, match="tokenizer"):
        pk.attach(model).show("etc", **RUN)
