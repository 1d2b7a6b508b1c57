"""Models as they are loaded: where parts lie, in 16 bits, and the proof that long windows end.

From the disk and part by part in float32, the numbers are those of a whole copy in memory.
"""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import poskernel_core as pk
from poskernel_core.common.errors import ComputeFailed, UnsupportedModel
from poskernel_core.forward import adapters, configuration, hooks, loading, memory, proof
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.interventions import AblatedHeads
from poskernel_core.forward.loading import place
from poskernel_core.forward.rotation import cosines_and_sines
from poskernel_core.models import catalog
from poskernel_core.passes import streaming
from poskernel_core.passes.prepare import sizes_for
from poskernel_core.passes.worker_context import ModelCache
from tests.support import Made, builders
from tests.support.builders.families import EVERY_MODEL, FAMILY_MODELS, SLIDE, FamilyModel, rotary

IDS = builders.random_ids(3, 29)
DEEP = {"olmo2": "num_hidden_layers", "mixtral": "num_hidden_layers", "gptj": "n_layer"}
"""Families with plain layers, with experts, and with an adapter; and what counts their layers."""
LAYERS = 11


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Models of so many layers that the embeddings are a small part."""
    root = tmp_path_factory.mktemp("deep")
    return {
        name: replace(
            FAMILY_MODELS[name], config=FAMILY_MODELS[name].config | {count: LAYERS}
        ).build(root / name)
        for name, count in DEEP.items()
    }


@pytest.fixture(scope="module")
def skeleton(deep):
    config = AutoConfig.from_pretrained(deep["olmo2"])
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.fixture
def on_disk(monkeypatch):
    def load(path, dtype="float32", share=0.6):
        located = catalog.locate(str(path))
        whole = (path / "model.safetensors").stat().st_size / (2 if dtype == "bfloat16" else 1)
        monkeypatch.setenv("POSKERNEL_WEIGHTS_ON_DISK", "1")
        monkeypatch.setenv("POSKERNEL_MEMORY_GB", f"{share * memory.REST * whole / 1e9:.9f}")
        return loading.load(located, "cpu", dtype)

    return load


def sizes(skeleton):
    """Bytes of every layer, and of what comes before and after, in float32."""
    count = {name: 4 * sum(p.numel() for p in part.parameters())
             for name, part in skeleton.model.named_children()}  # fmt: skip
    layers = [4 * sum(p.numel() for p in part.parameters()) for part in skeleton.model.layers]
    return layers[0], len(layers), count["embed_tokens"]


def test_layers_are_spread_and_never_cut(skeleton):
    layer, count, embedding = sizes(skeleton)
    half = memory.REST * (embedding + layer * (count // 2 + 2.5))
    found = place("m", skeleton, torch.float32, {0: half, 1: 1e12, "cpu": 1e12})

    assert torch.device("cuda", 0) == found.home
    assert found.devices == ("GPU 0", "GPU 1")
    told = {name: at for name, at in found.parts.items() if name.startswith("model.layers.")}
    assert all(name.count(".") == 2 for name in told)
    assert sorted(told.values()) == list(told.values())
    assert found.parts["model.embed_tokens"] == 0


def test_what_fits_nowhere_else_stays_on_the_disk(skeleton):
    layer, count, embedding = sizes(skeleton)
    room = memory.REST * (embedding + 2.5 * layer)
    found = place("m", skeleton, torch.float32, {"cpu": room})

    assert found.devices == ("memory", "disk")
    assert torch.device("cpu") == found.home
    assert found.parts[f"model.layers.{count - 1}"] == "disk"
    assert found.parts["model.layers.0"] == "cpu"


def test_not_even_a_layer(skeleton):
    with pytest.raises(ComputeFailed, match=r"Not even the first layer of 'm' fits into the 1e-06"):
        place("m", skeleton, torch.float32, {"cpu": 1e3})


@pytest.mark.parametrize("name", DEEP)
def test_from_the_disk_the_numbers_are_the_same(deep, on_disk, name):
    whole = loading.load(catalog.locate(str(deep[name])), "cpu")
    logits, cut = whole.run(IDS), AblatedHeads([(0, 1), (1, 0)])
    gathered = pk.run_pass(whole, IDS.numpy())

    part = on_disk(deep[name])

    assert part.nbytes < 0.8 * whole.nbytes
    assert (part.where, whole.where) == ("cpu, memory, disk", "cpu")
    torch.testing.assert_close(part.run(IDS), logits, rtol=0, atol=0)
    torch.testing.assert_close(part.run(IDS, cut), whole.run(IDS, cut), rtol=0, atol=0)
    again = pk.run_pass(part, IDS.numpy())
    for layer in range(whole.geometry.n_layers):
        expected = gathered.layer(layer)
        for statistic, array in again.layer(layer).items():
            np.testing.assert_array_equal(array, expected[statistic])
    assert any(parameter.is_meta for parameter in part.module.parameters())


def test_the_error_of_16_bits_from_the_disk(deep, on_disk):
    """Read as float32 one part at a time, it is the error that a copy in memory has."""
    located = catalog.locate(str(deep["olmo2"]))
    plan = sizes_for(located.geometry, IDS.numpy(), (3,), 2, True)
    expected = streaming.dtype_error(
        loading.load(located, "cpu", "bfloat16"), plan, IDS.numpy(), "bfloat16"
    )
    part = on_disk(deep["olmo2"], "bfloat16")
    before = part.run(IDS, until=1)

    found = streaming.dtype_error(part, plan, IDS.numpy(), "bfloat16")

    assert any(parameter.is_meta for parameter in part.module.parameters())
    assert found == pytest.approx(expected, rel=1e-6)
    assert {torch.bfloat16} == {parameter.dtype for parameter in part.module.parameters()}
    assert before.shape == part.run(IDS, until=1).shape


def test_without_leave_nothing_stays_on_the_disk(model_dirs, monkeypatch):
    located = catalog.locate(str(model_dirs["llama"]))
    monkeypatch.setenv("POSKERNEL_MEMORY_GB", "0.0000001")
    with pytest.raises(ComputeFailed, match=r"another machine; or .*POSKERNEL_WEIGHTS_ON_DISK=1"):
        loading.load(located, "cpu")


NAMES = ("llama", "gpt2", "gpt-oss")
EACH = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def halves(model_dirs, tmp_path_factory):
    root = tmp_path_factory.mktemp("halves")
    found = {}
    for name in NAMES:
        path = root / name
        if name in FAMILY_MODELS:
            one = FAMILY_MODELS[name]  # products of experts want rows of 16 bytes
            aligned = {"hidden_size": 64, "intermediate_size": 40}
            replace(one, config=one.config | aligned).build(path)
        else:
            shutil.copytree(model_dirs[name], path)
        tensors = load_file(path / "model.safetensors")
        tensors = {key: tensor.bfloat16() for key, tensor in tensors.items()}
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        found[name] = catalog.locate(str(path))
    return found


def dtypes(model):
    return {parameter.dtype for parameter in model.module.parameters()}


def test_a_kept_model_is_of_the_type_that_is_asked_for(halves):
    """A bfloat16 one is loaded for each task, and never in place of another."""
    models = ModelCache()
    half, other, whole = (
        models.take(halves["llama"], "cpu", dtype) for dtype in ("bfloat16", "bfloat16", "float32")
    )
    assert [{torch.bfloat16}, {torch.float32}] == [dtypes(half), dtypes(whole)]
    assert half is not other
    assert whole is models.take(halves["llama"], "cpu")


@EACH
def test_float32_part_by_part_is_float32(halves, name):
    wide = loading.load(halves[name], "cpu")
    half = loading.load(halves[name], "cpu", "bfloat16")
    before = [parameter.clone() for parameter in half.module.parameters()]
    coarse = half.run(IDS)

    with memory.in_float32(half.module):
        found = half.run(IDS)
        half.run(IDS, until=1)  # a pass that is broken off inside a part

    assert torch.equal(found, wide.run(IDS))
    assert not torch.equal(found, coarse)
    assert torch.equal(coarse, half.run(IDS))
    for left, right in zip(before, half.module.parameters(), strict=True):
        assert torch.equal(left, right)
        assert left.dtype == right.dtype


def test_one_part_at_a_time_is_wide(halves):
    half = loading.load(halves["llama"], "cpu", "bfloat16")
    layers, most = half.module.model.layers, []

    with memory.in_float32(half.module):
        for part in half.module.modules():
            if isinstance(part, torch.nn.Linear):
                part.register_forward_hook(
                    lambda *_: most.append(
                        sum(p.dtype == torch.float32 for p in half.module.parameters())
                    )
                )
        half.run(IDS)

    assert 7 * len(layers) <= len(most)
    assert max(most) <= 1


@EACH
def test_the_error_is_that_against_a_copy(halves, name):
    """Measured without one, it is what a float32 copy gives."""
    located = halves[name]
    plan = sizes_for(located.geometry, IDS.numpy(), (3,), 2, True)
    expected = streaming.dtype_error(loading.load(located, "cpu"), plan, IDS.numpy(), "bfloat16")
    model = loading.load(located, "cpu", "bfloat16")

    found = streaming.dtype_error(model, plan, IDS.numpy(), "bfloat16")

    assert 1e-4 < found < 0.1
    assert found == pytest.approx(expected, rel=1e-6)
    assert {torch.bfloat16} == dtypes(model)


def little(monkeypatch, free):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))


def test_memory_is_said_before_anything_is_read(model_dirs, monkeypatch):
    located = catalog.locate(str(model_dirs["llama"]))
    numbers = sum(p.numel() for p in loading.load(located, "cpu").module.parameters())
    little(monkeypatch, 3 * numbers)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    with pytest.raises(ComputeFailed, match=r"needs .* in float32, .* are free: choose bfloat16 "):
        loading.load(located, "cpu")
    little(monkeypatch, numbers)
    with pytest.raises(ComputeFailed, match="free: choose a smaller model"):
        loading.load(located, "cpu", "bfloat16")

    monkeypatch.undo()
    little(monkeypatch, 3 * numbers)
    assert {torch.bfloat16} == dtypes(loading.load(located, "cpu", "bfloat16"))


def test_another_attention_is_refused_with_its_figure(tmp_path, monkeypatch):
    located = catalog.locate(str(FAMILY_MODELS["gemma2"].build(tmp_path / "gemma2")))
    with_all = hooks.AttentionCall
    monkeypatch.setattr(hooks, "AttentionCall", lambda *rule: with_all(*rule[:7], None, *rule[8:]))

    with pytest.raises(UnsupportedModel, match=r"patterns differ by up to 0\.\d+, logits by 0"):
        loading.load(located, "cpu")
    monkeypatch.undo()
    assert proof.difference(loading.load(located, "cpu")).largest < 1e-5


def test_heads_that_are_not_as_told_are_refused(tmp_path):
    path = FAMILY_MODELS["olmo-hybrid"].build(tmp_path / "hybrid")
    located = catalog.locate(str(path))
    geometry = located.geometry
    for layer, words in (
        (0, "width 10 that share 2 keys in layer 0, and the model has no heads"),
        (1, "no heads in layer 1, and the model has 6 heads of width 10"),
    ):
        layers = list(geometry.layers)
        layers[layer] = geometry.layers[1 - layer]
        wrong = replace(located, geometry=replace(geometry, layers=tuple(layers)))
        with pytest.raises(UnsupportedModel, match=words):
            loading.load(wrong, "cpu")


def test_an_attention_that_is_not_known_is_refused(model_dirs):
    """As the classes of transformers could call it: none of the models that are tested does."""
    module = pk.load(str(model_dirs["gpt2"]), device="cpu").module
    attend = ALL_ATTENTION_FUNCTIONS[hooks.IMPLEMENTATION]
    first, second = (block.attn for block in module.transformer.h[:2])
    many, few, longer = (torch.zeros(1, *shape, 3) for shape in ((4, 5), (3, 5), (4, 7)))
    attend(first, many, many, many, None)
    vars(second)["poskernel"] = vars(first)["poskernel"]
    for layer, keys, more, words in (
        (nn.Identity(), many, {}, "Identity computes attention outside of the model's layers"),
        (second, many, {}, "Layer 0 computes two attentions"),
        (first, few, {}, "has 4 heads that share 3 key heads"),
        (first, longer, {}, r"from \(1, 4, 5, 3\) to \(1, 4, 7, 3\), .* no attention of a text to"),
        (first, many, {"is_causal": False}, "hands 'is_causal' to its attention"),
        (first, many, {"position_bias": many}, "hands 'position_bias' to its attention"),
        (first, many, {"attention_mask": torch.zeros(5, 5)}, "hands 'attention_mask' to its"),
    ):
        with pytest.raises(UnsupportedModel, match=words):
            attend(layer, many, keys, keys, **{"attention_mask": None} | more)


def test_layers_that_share_a_module_are_refused(model_dirs):
    model = pk.load(str(model_dirs["gpt2"]), device="cpu")
    block = model.module.transformer.h[1]
    with pytest.raises(UnsupportedModel, match="Layers 1 and 2 of this 'gpt2' model share one mod"):
        model.hooks.add_to_block(block, 2, "gpt2")


LONG = 47
"""Longer than the tokens of the proof of a model without windows."""
MODELS = {
    "window": FamilyModel(
        "qwen2",
        rotary(sliding_window=LONG, layer_types=[SLIDE] * 3, use_sliding_window=True,
               max_position_embeddings=97),
        [LONG] * 3,
    ),
    "chunk": replace(
        EVERY_MODEL["llama4"],
        config=EVERY_MODEL["llama4"].config
        | {"attention_chunk_size": LONG, "max_position_embeddings": 97},
    ),
}  # fmt: skip
BOTH = pytest.mark.parametrize("field", MODELS)
OFF_BY_ONE = pytest.mark.parametrize("off", [-1, 1])


@pytest.fixture(scope="module")
def located(tmp_path_factory):
    root = tmp_path_factory.mktemp("windows")
    return Made(lambda name: catalog.locate(str(MODELS[name].build(root / name))))


@pytest.fixture
def misread(monkeypatch):
    """Let our attention see another window than the model's."""

    def so(field, off):
        class Misread(AttentionCall):
            @property
            def rule(self):
                rule, length = super().rule, getattr(self, field)
                return replace(rule, **{field: length and length + off})

        monkeypatch.setattr("poskernel_core.forward.hooks.AttentionCall", Misread)

    return so


@BOTH
def test_long_windows_are_proved(located, field):
    model = loading.load(located[field], "cpu")
    assert proof.difference(model).largest < 1e-5
    assert proof.difference(model, proof.made_up(model, 97)).largest < 1e-5


@BOTH
@OFF_BY_ONE
def test_a_window_that_our_attention_misreads_by_one(located, misread, monkeypatch, field, off):
    misread(field, off)
    with pytest.raises(UnsupportedModel, match="patterns differ"):
        loading.load(located[field], "cpu")
    monkeypatch.setattr(proof, "MAX_WINDOW", 46)  # beyond the bound, nothing is seen
    loading.load(located[field], "cpu")


@BOTH
@OFF_BY_ONE
def test_a_window_that_is_read_wrongly_from_the_configuration(located, field, off):
    geometry = located[field].geometry
    layers = tuple(replace(each, window=each.window and each.window + off)
                   for each in geometry.layers)  # fmt: skip
    wrong = replace(located[field], geometry=replace(geometry, layers=layers))
    with pytest.raises(UnsupportedModel, match=f"window of {LONG + off} .* has one of {LONG} "):
        loading.load(wrong, "cpu")


def test_a_transformers_that_was_not_tested(monkeypatch):
    """It is told, and the proof decides."""
    monkeypatch.setattr(configuration, "TESTED", (5, 1))
    with pytest.warns(UserWarning, match=r"newer than 5\.1, the newest tested"):
        pk.load("demo-rotary", device="cpu")
    with (
        pytest.raises(UnsupportedModel, match=r"as it says: this \(.*newer than 5\.1"),
        configuration.refusing("m", "{} fails, as it says"),
    ):
        raise ValueError("this")


def test_gptj_of_a_later_transformers(monkeypatch):
    """Its sines come first, and its attention goes through the registry, as from 5.24 on."""
    assert "_attn" == adapters.own_attention("gptj")
    monkeypatch.delattr(adapters.GPTJAttention, "_attn")
    assert "" == adapters.own_attention("gptj") == adapters.own_attention("llama")
    assert "forward" == adapters.own_attention("bloom")
    cos, sin = torch.ones(3), torch.zeros(3)
    later = type("GPTJRotaryEmbedding", (torch.nn.Module,), {})()
    for module, handed in ((later, (sin, cos)), (torch.nn.Module(), (cos, sin))):
        assert all(map(torch.equal, cosines_and_sines(module, handed), (cos, sin)))
        assert all(map(torch.equal, cosines_and_sines(module, (cos, sin)), handed))


def test_room_is_what_is_free_or_allowed(monkeypatch):
    free = memory.room(torch.device("cpu"))
    assert list(free) == ["cpu"]
    assert free["cpu"] <= psutil.virtual_memory().total
    monkeypatch.setenv("POSKERNEL_MEMORY_GB", "0.25")
    assert memory.room(torch.device("cpu")) == {"cpu": 0.25e9}
