"""Model directories of strangers: refused in one sentence, and before anything is allocated.

So are files that may not be read, which are not called damaged.
"""

import errno
import json
import re
import resource
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import poskernel_core as pk
from poskernel_core.common.errors import BadRequest, ComputeFailed, UnsupportedModel
from poskernel_core.models import catalog, hub, weights

DEEP = "[" * 100_000 + "]" * 100_000


def fields(**changed):
    def spoil(path):
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, **changed}))

    return spoil


def text(name, content):
    data = content if isinstance(content, bytes) else content.encode()
    return lambda path: (path / name).write_bytes(data)


def normalizer(content):
    def spoil(path):
        file = path / "tokenizer.json"
        step = {"type": "Replace", "pattern": {"String": "s"}, "content": content}
        file.write_text(json.dumps({**json.loads(file.read_text()), "normalizer": step}))

    return spoil


def index(content):
    def spoil(path):
        (path / "model.safetensors").unlink()  # which would be run
        (path / "model.safetensors.index.json").write_text(json.dumps(content))

    return spoil


def header(length, content=b"{}"):
    return text("model.safetensors", length.to_bytes(8, "little") + content)


MODELS = {
    # architecture, what is done to its directory, words of the sentence
    "100,000 layers": ("gpt2", fields(n_layer=10**5), "at most 256, got '100000'"),
    "more layers than weights": ("gpt2", fields(n_layer=200), "they hold"),
    "more tokens than weights": ("opt", fields(vocab_size=10**6), "they hold"),
    "longer than its weights": ("attn_only", fields(n_ctx=10**6), "they hold"),
    "a billion tokens": ("llama", fields(vocab_size=10**9), "n_vocab"),
    "wide": ("gpt2", fields(n_embd=10**12), "n_embd"),
    "no heads": ("gpt2", fields(n_head=0), "'n_head'"),
    "boolean heads": ("gpt2", fields(n_head=True), "got bool"),
    "heads with a point": ("gpt2", fields(n_head=5.0), "value: 5.0"),
    "infinite context": ("gpt2", fields(n_positions=float("inf")), "n_positions"),
    "heads that do not add up": ("gpt2", fields(n_head=4), "divisible by num_heads"),
    "a long number": ("gpt2", fields(n_head=10**4000), "n_head"),
    "head width as text": ("llama", fields(head_dim="10"), "head_dim"),
    "no key heads": ("llama", fields(num_key_value_heads=0), "num_key_value_heads"),
    "uneven key heads": ("llama", fields(num_key_value_heads=4), "6 heads that share 4"),
    "a billion kinds of layers": (
        "gpt_neo", fields(attention_types=[[["global"], 10**9]]), "attention_types",
    ),
    "kinds of layers as text": ("gpt_neo", fields(attention_types="all"), "attention_types"),
    "layers without end": ("llama", fields(layer_types=["full_attention"] * 10**5), "100000"),
    "layers of another kind": ("llama", fields(layer_types=["spiral"] * 3), "entries must be in"),
    "a billion experts": ("llama", fields(num_experts=10**9), "num_experts"),
    "a huge part for pictures": (
        "llama", fields(vision_config={"deep": [{"hidden_size": 10**12}]}), "'hidden_size'",
    ),
    "a window without end": ("mistral", fields(sliding_window=10**12), "sliding_window"),
    "a base of NaN": (
        "llama", fields(rope_parameters={"rope_type": "default", "rope_theta": float("nan")}),
        "Expected a number as 'rope_theta'",
    ),
    "a list with NaN": ("llama", fields(rope_scaling={"long_factor": [float("nan")]}), "NaN"),
    "pickled only": (
        "gpt2", lambda p: (p / "model.safetensors").rename(p / "pytorch_model.bin"), "pickled",
    ),
    "no weights": ("gpt2", lambda p: (p / "model.safetensors").unlink(), "model.safetensors"),
    "no config": ("gpt2", lambda p: (p / "config.json").unlink(), "no config.json"),
    "an encoder": ("gpt2", text("config.json", '{"model_type": "t5"}'), "encoder"),
    "unheard of": ("gpt2", text("config.json", '{"model_type": "abacus"}'), "abacus"),
    "quantized": ("gpt2", fields(quantization_config={"quant_method": "abacus"}), "quantized"),
    "nested config": ("gpt2", text("config.json", DEEP), "nested too deeply"),
    "config in Latin-1": ("gpt2", text("config.json", '{"é": 1}'.encode("latin-1")), "config.json"),
    "large config": ("gpt2", text("config.json", " " * (11 * 2**20)), "larger than 10 MB"),
    "index is a list": ("gpt2", index([]), "index.json"),
    "index without files": ("gpt2", index({}), "weight_map"),
    "weight map holds a number": ("gpt2", index({"weight_map": {"a": 1}}), "weight_map"),
    "weight map leads out": ("gpt2", index({"weight_map": {"a": "../../etc/passwd"}}), "next to"),
    "weights that lead out": (
        "gpt2", fields(transformers_weights="../model.safetensors"), "in the directory",
    ),
    "weights with a root": (
        "gpt2", fields(transformers_weights="/tmp/model.safetensors"), "in the directory",
    ),
    "pickled weights named": (
        "gpt2", fields(transformers_weights="pytorch_model.bin"), "a safetensors file",
    ),
    "a number of weights": ("gpt2", fields(transformers_weights=3), "got 3"),
    "named weights missing": (
        "gpt2", fields(transformers_weights="other.safetensors"), "Expected other.safetensors",
    ),
    "an adapter": ("gpt2", text("adapter_config.json", "{}"), "an adapter"),
    "long header": ("gpt2", header(2**60), "damaged"),
    "header beyond the file": ("gpt2", header(2**20), "damaged"),
    "header no JSON": ("gpt2", header(4, b"true"), "damaged"),
    "empty weights": ("gpt2", text("model.safetensors", b""), "damaged"),
    "no tensors": ("gpt2", header(2), "they hold 0 numbers"),
    "tokenizer is no JSON": ("gpt2", text("tokenizer.json", "{"), "tokenizer.json"),
    "tokenizer nested": ("gpt2", text("tokenizer.json", DEEP), "tokenizer.json"),
    "tokenizer that blows up": ("gpt2", normalizer("s" * 99), "texts of 99 characters"),
    "told tokens no JSON": ("gpt2", text("added_tokens.json", "["), "added_tokens.json"),
    "told tokens a list": (
        "gpt2", text("tokenizer_config.json", '{"added_tokens_decoder": [1]}'), "save_pretrained",
    ),
    "told token a number": (
        "gpt2", text("tokenizer_config.json", '{"added_tokens_decoder": {"1": 5}}'), "save_pretrai",
    ),
    "extra token a number": (
        "gpt2", text("special_tokens_map.json", '{"extra_special_tokens": [1]}'), "save_pretrained",
    ),
    "settings no JSON": ("gpt2", text("tokenizer_config.json", "{"), "tokenizer_config.json"),
    "settings a list": ("gpt2", text("tokenizer_config.json", "[1]"), "holds something else"),
    "no tokenizer": ("gpt2", lambda p: [f.unlink() for f in p.glob("tokenizer*")], ".npy"),
}  # fmt: skip


@pytest.mark.parametrize("case", MODELS)
def test_refused_at_once(refused, model_dirs, tmp_path, case):
    name, spoil, words = MODELS[case]
    path = shutil.copytree(model_dirs[name], tmp_path / "model\x1b[31m")
    spoil(path)
    assert words in refused("show", "etc", path, "--windows", 7, "--context", 29)


def changed(model_dirs, tmp_path, name, change):
    path = shutil.copytree(model_dirs[name], tmp_path / "model")
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


def put(name, value, dtype=torch.float32):
    def change(tensors):
        tensor = tensors[name].to(dtype)
        tensor.view(-1)[tensor.numel() // 2] = value
        tensors[name] = tensor

    return change


def more(name):
    return lambda tensors: tensors.update({name: torch.ones(3, 5)})


def turned(name):
    return lambda tensors: tensors.update({name: tensors[name].T.contiguous()})


def lost(name):
    return lambda tensors: tensors.update(more=tensors.pop(name).flatten())


NAN, INFINITY, BODY = float("nan"), float("inf"), "transformer.h"
WEIGHTS = [
    # architecture, what is done to a tensor, which, words of the sentence before and after its name
    ("gpt2", put, (f"{BODY}.1.attn.c_attn.weight", NAN), "NaN or infinity, first in ", ""),
    ("gpt2", put, ("transformer.ln_f.bias", -INFINITY), "NaN or infinity, first in ", ""),
    ("gpt2", put, ("transformer.wpe.weight", 1e300, torch.float64), "infinity, first in ", ""),
    ("attn_only", put, (f"{BODY}.0.attn.c_proj.bias", INFINITY), "NaN or infinity, first in ", ""),
    ("llama", put, ("model.layers.2.mlp.up_proj.weight", NAN, torch.bfloat16),
     "NaN or infinity, first in ", ""),
    ("llama", more, ("model.layers.1.mlp.up_proj.weight_scale",), "", ": they may be quantized"),
    ("llama", more, ("model.layers.3.mlp.up_proj.weight",), "", ": they may be quantized"),
    ("gpt2", more, ("transformer.ln_e.weight",), "", ": they may be quantized"),
    ("attn_only", more, (f"{BODY}.0.mlp.c_fc.weight",), "", " is in no such model"),
    ("gpt2", turned, (f"{BODY}.1.attn.c_attn.weight",), "or are damaged: ",
     " has the shape [105, 35], expected [35, 105]"),
    ("attn_only", turned, (f"{BODY}.0.attn.c_attn.weight",), "or are damaged: ",
     " has the shape [105, 35], expected [35, 105]"),
    ("llama", turned, ("model.layers.2.self_attn.k_proj.weight",), "or are damaged: ",
     " has the shape [60, 20], expected [20, 60]"),
    ("attn_only", lost, ("transformer.wte.weight",), "", ""),
    ("attn_only", lost, (f"{BODY}.0.attn.c_attn.bias",), "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "act", "given", "before", "after"), WEIGHTS)
def test_weights_that_are_refused(model_dirs, tmp_path, name, act, given, before, after):
    path = changed(model_dirs, tmp_path, name, act(*given))
    with pytest.raises(UnsupportedModel) as caught:
        pk.load(str(path), device="cpu")
    assert f"{before}{given[0]!r}{after}" in str(caught.value)


@pytest.mark.parametrize(("name", "kind"), [("attn_only", torch.int8), ("gpt2", torch.bool)])
def test_weights_of_a_wrong_kind(refused, model_dirs, tmp_path, name, kind):
    tensor = "transformer.h.1.attn.c_attn.weight"
    path = changed(
        model_dirs, tmp_path, name, lambda held: held.update({tensor: held[tensor].to(kind)})
    )
    assert tensor in refused("show", "etc", path, "--windows", 7, "--context", 29)


@pytest.mark.parametrize(
    ("name", "tensor", "value"),
    [
        ("gpt2", "transformer.h.1.attn.bias", torch.ones(1, 1, 29, 29, dtype=torch.uint8)),
        ("gpt2", "transformer.h.1.attn.masked_bias", torch.tensor(-1e4)),
        ("gpt_neo", "transformer.h.1.attn.attention.bias", torch.ones(29, 29, dtype=torch.bool)),
        ("gpt_neo", "transformer.h.1.attn.attention.masked_bias", torch.tensor(-1e9)),
        ("gpt_neox", "gpt_neox.layers.1.attention.rotary_emb.inv_freq", torch.ones(2)),
        ("llama", "model.layers.1.self_attn.rotary_emb.inv_freq", torch.ones(5)),
        ("llama", "mtp.layers.0.mlp.up_proj.weight", torch.ones(3, 5)),
        ("llama", "model.vision_tower.patch.weight", torch.ones(3, 5)),
        ("llama", "vision_model.embeddings.position_ids", torch.arange(3)),
    ],
)
def test_tensors_that_no_logit_depends_on(model_dirs, tmp_path, name, tensor, value):
    """What older files hold beside weights, further heads and what sees are passed over."""
    path = changed(model_dirs, tmp_path, name, lambda held: held.update({tensor: value}))
    assert 3 == pk.load(str(path), device="cpu").geometry.n_layers


def test_a_file_larger_than_the_memory_allowed(model_dirs, tmp_path):
    path = changed(model_dirs, tmp_path, "llama", lambda _: None)
    weights, size = path / "model.safetensors", 2**38
    data = weights.read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    tensors, held = json.loads(data[8:length]), len(data) - length
    tensors["more"] = {"dtype": "U8", "shape": [size], "data_offsets": [held, held + size]}
    described = json.dumps(tensors).encode()
    with weights.open("wb") as stream:
        stream.write(len(described).to_bytes(8, "little") + described + data[length:])
        stream.truncate(stream.tell() + size)
    bounds = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size, bounds[1]))
    try:
        with pytest.raises(ComputeFailed, match="does not fit into memory"):
            catalog.locate(str(path))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, bounds)


LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 0.0}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rope_parameters": LINEAR}, r"config\.json of .* makes .*inv_freq' NaN or inf"),
        # a wide MLP in a small file, which transformers would make up
        ({"intermediate_size": 500_000}, r"its parts need 2\d\d,\d\d\d,\d\d\d"),
    ],
)
def test_what_the_configuration_makes(model_dirs, tmp_path, changed, words):
    path = shutil.copytree(model_dirs["llama"], tmp_path / "model")
    config = json.loads((path / "config.json").read_text()) | changed
    kept = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(kept))
    with pytest.raises(UnsupportedModel, match=words):
        pk.load(str(path), device="cpu")


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neo"])
def test_weights_too_large_to_run(model_dirs, tmp_path, name):
    def enlarge(tensors):
        for place, tensor in tensors.items():
            if "attn" in place and "weight" in place:
                tensor.mul_(1e25)

    with pytest.raises(ComputeFailed, match="NaN or infinity"):
        pk.load(str(changed(model_dirs, tmp_path, name, enlarge)), device="cpu")
    model = pk.load(str(model_dirs[name]), device="cpu")
    enlarge(dict(model.module.named_parameters()))
    tokens = torch.arange(10).reshape(2, 5)

    for end in ({}, {"keep": 0}, {"until": -1}):
        with pytest.raises(ComputeFailed, match="NaN or infinity"):
            model.run(tokens, **end)


def refuse(monkeypatch, name: str) -> None:
    """Have every attempt to open a file of that name end as for somebody without the right."""
    opened = Path.open

    def locked(path: Path, *more, **options):
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *more, **options)

    monkeypatch.setattr(Path, "open", locked)
    monkeypatch.setattr(weights, "open", lambda path, *more: locked(Path(path), *more), False)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_models_files(model_dirs, tmp_path, monkeypatch, name):
    place = shutil.copytree(model_dirs["gpt2"], tmp_path / "model")
    refuse(monkeypatch, name)
    with pytest.raises(BadRequest, match=rf"{re.escape(str(place / name))}.*Permission denied"):
        catalog.locate(str(place))


def test_the_hubs_cache(monkeypatch):
    def locked(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "/models/hub/version.txt")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", locked)
    with pytest.raises(BadRequest, match=r"cache .*version\.txt': Permission denied"):
        hub.fetch_file("gpt2", "config.json", None)
