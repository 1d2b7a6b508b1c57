"""What decides a number is part of its identity: the weights that are run, and the tokenizer."""

import json
import shutil
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi, constants
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, normalizers
from tokenizers import Tokenizer as Backend
from transformer_lens.model_bridge.sources import tl_legacy
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.tokenization_auto import (
    TOKENIZER_MAPPING_NAMES,
    tokenizer_class_from_name,
)

import poskernel_core as pk
from poskernel_core.common.errors import NoNetwork, PosKernelError, UnsupportedModel
from poskernel_core.engine.engine import describe_run
from poskernel_core.forward import loading
from poskernel_core.forward.bridge import to_bridge
from poskernel_core.forward.proof import Patterns
from poskernel_core.models import catalog, hub, tokenizer_files
from poskernel_core.models.tokenizers import PROBE, load_tokenizer
from tests.data import test_pieces as made
from tests.support import builders
from tests.support.builders.gguf import build as build_gguf
from tests.support.builders.gguf import write_gguf
from tests.support.builders.made import START_TOKEN

NORM = "model.norm.weight"
NAMED = {
    None: (),
    "other.safetensors": ("other.safetensors",),
    "in/other.safetensors": ("in/other.safetensors",),
    "other.safetensors.index.json": ("other.safetensors.index.json", "o-1.safetensors"),
}
OPENED: list[str] = []
"""The files that were opened while somebody looked."""


def _note(event, args):
    if event == "open" and OPENED and isinstance(args[0], str):
        OPENED.append(args[0])


@pytest.fixture(scope="session")
def _hooked():
    sys.addaudithook(_note)  # for as long as the process lives


@pytest.fixture
def opened(_hooked):
    OPENED.append("")
    yield OPENED
    OPENED.clear()


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return builders.llama(tmp_path_factory.mktemp("identity") / "m")


@pytest.fixture
def path(llama, tmp_path):
    return Path(shutil.copytree(llama, tmp_path / "m"))


def changed_json(file, **fields):
    file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | fields))


def of_weights(path, weights, whole, index, pickled, named):
    """Put files of weights into a directory; each has a number of its own in one norm."""
    (path / "model.safetensors").unlink()
    number = iter(range(2, 99))

    def put(file):
        file.parent.mkdir(exist_ok=True)
        save_file(
            weights | {NORM: torch.full_like(weights[NORM], next(number))}, file, {"format": "pt"}
        )

    def point(file, shard):
        put(path / shard)
        told = {"metadata": {}, "weight_map": dict.fromkeys(weights, shard)}
        (path / file).write_text(json.dumps(told))

    if whole:
        put(path / "model.safetensors")
    if index:
        point("model.safetensors.index.json", "m-1.safetensors")
    if pickled:
        torch.save(weights, path / "pytorch_model.bin")
    put(path / "model.fp16.safetensors")  # a variant, which nobody asks for
    if named is not None:
        changed_json(path / "config.json", transformers_weights=named)
        if named.endswith("json"):
            point(*NAMED[named])
        else:
            put(path / named)


@pytest.mark.parametrize("named", NAMED)
def test_what_is_hashed_is_what_is_run(path, named):
    weights = load_file(path / "model.safetensors")
    for place, (whole, index, pickled) in enumerate(product((True, False), repeat=3)):
        folder = path.parent / f"{place}"
        shutil.copytree(path, folder)
        of_weights(folder, weights, whole, index, pickled, named)
        if not (whole or index or named):
            with pytest.raises(PosKernelError, match="pickled" if pickled else "is missing"):
                catalog.locate(folder)
            continue
        plain = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True)
        (file,) = catalog.weight_files("m", folder)
        with safe_open(file, "pt") as tensors:
            assert torch.equal(plain.model.norm.weight, tensors.get_tensor(NORM))
        assert f"Runs {file.name}, not " in catalog.note_of(str(folder))
        located = catalog.locate(folder)
        assert torch.equal(
            plain.model.norm.weight, loading.load(located, "cpu").module.model.norm.weight
        )
        save_file(weights, file, {"format": "pt"})
        assert located.spec != catalog.locate(folder).spec


def test_a_language_model_has_no_other_files_of_weights():
    """Which :func:`catalog.weight_files` would have to know."""
    with_more = [CONFIG_MAPPING[kind] for kind in CONFIG_MAPPING]
    with_more = [kind for kind in with_more if getattr(kind, "extra_files", ())]
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        assert [] == [kind for kind in with_more if kind in auto._model_mapping]  # noqa: SLF001


def test_every_file_that_decides_tokens_is_part_of_the_identity(path):
    spec = catalog.locate(path).spec
    for name in (
        *("vocab.txt", "spiece.model", "special_tokens_map.json", "added_tokens.json"),
        *("chat_template.jinja", "additional_chat_templates/tools.jinja", "tekken.json"),
        *("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"),
    ):
        (path / name).parent.mkdir(exist_ok=True)
        for content in ("{}", '{"a": 1}'):
            (path / name).write_text(content)
            before, spec = spec, catalog.locate(path).spec
            assert before != spec, name
    (path / "README.md").write_text("Nothing that decides a token.")
    assert spec == catalog.locate(path).spec


def names_of(kind):
    return getattr(kind, "vocab_files_names", {}).values()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of transformers' own
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_nothing_that_a_tokenizer_opens_is_left_out(path, opened):
    kinds = {tokenizer_class_from_name(name) for name in TOKENIZER_MAPPING_NAMES.values() if name}
    kinds -= {None}
    assert len(kinds) > 50
    shutil.copy(path / "tokenizer.json", path / "tokenizer.4.0.json")
    changed_json(path / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.json"])
    (path / "chat_template.jinja").write_text("{{ messages }}")
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / "tools.jinja").write_text("{{ tools }}")
    named = {file for kind in kinds for file in names_of(kind) if file}
    for name in named | {"added_tokens.json", "special_tokens_map.json", "tekken.json"}:
        if not (path / name).exists():
            (path / name).write_text("{}")
    hashed = {*tokenizer_files.first_files(path), *tokenizer_files.other_files(path)}
    assert {path / name for name in named} <= hashed

    for kind in (AutoTokenizer, *kinds):
        try:
            kind.from_pretrained(path, local_files_only=True)
        except BaseException as error:  # most cannot read what is there
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
    seen = {Path(file) for file in opened if file.startswith(str(path))}
    assert {path / "chat_template.jinja", path / "tokenizer.4.0.json"} <= seen
    assert set() == seen - hashed - {path / "config.json"}


def test_dice_are_off(path):
    plain = catalog.locate(path).spec
    told = json.loads((path / "tokenizer.json").read_text())
    told["model"]["dropout"] = 0.3
    (path / "tokenizer.json").write_text(json.dumps(told))
    dice = Backend.from_file(str(path / "tokenizer.json"))
    text = "the previous token shells " * 5
    assert len({tuple(dice.encode(text).ids) for _ in range(9)}) > 1

    ours = load_tokenizer(catalog.locate(path))
    assert 1 == len({tuple(ours.encode(text)) for _ in range(9)})
    one, again = (pk.token_windows(path, windows=3, context=29).tolist() for _ in range(2))
    assert one == again
    assert plain.tokenizer is None
    assert "dropout off" == describe_run(path, windows=3, context=29).model.tokenizer


def test_dice_of_an_attached_tokenizer_are_off(path):
    backend = Backend.from_file(str(path / "tokenizer.json"))
    backend.model.dropout = 0.3
    model = AutoModelForCausalLM.from_pretrained(path)
    labs = [pk.attach(model, backend, "thrown") for _ in range(2)]
    text = "the previous token shells " * 5

    assert labs[0].model == labs[1].model
    assert 1 == len({tuple(labs[0].tokenizer.encode(text)) for _ in range(9)})
    assert any("dropout of 0.3 is off" in note for note in labs[0].notes)
    assert backend.model.dropout  # the caller's own


def test_rules_of_an_attached_tokenizer_are_part_of_the_identity(path):
    """Its merges and its normalizer, also where the text that is tried does not show them."""
    model, told = AutoModelForCausalLM.from_pretrained(path), (path / "tokenizer.json").read_text()
    fewer = json.loads(told)
    word = "".join(fewer["model"]["merges"].pop()).replace("\u0120", " ")
    backends = [Backend.from_str(each) for each in (told, json.dumps(fewer), told)]
    backends[-1].normalizer = normalizers.Replace(word, "a")
    labs = [
        pk.attach(model, PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=START_TOKEN))
        for backend in backends
    ]
    assert 1 == len({tuple(lab.tokenizer.encode(PROBE)) for lab in labs})
    assert 3 == len({tuple(lab.tokenizer.encode(word)) for lab in labs})
    assert 3 == len({lab.model.fingerprint for lab in labs})


@pytest.mark.usefixtures("near_worker")
def test_objects_of_one_name_keep_their_tokenizers(path, tmp_path, monkeypatch):
    """Whoever was attached last: the description of the name holds the files of one of them."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    model, told = AutoModelForCausalLM.from_pretrained(path), (path / "tokenizer.json").read_text()
    fewer = json.loads(told)
    text = "".join(fewer["model"]["merges"].pop()).replace("\u0120", " ") * 5
    backends = [Backend.from_str(each) for each in (told, json.dumps(fewer))]
    given = [PreTrainedTokenizerFast(tokenizer_object=b, bos_token=START_TOKEN) for b in backends]
    labs = [pk.attach(model, each, "shared") for each in given]
    model.name_or_path = ""
    labs.append(pk.attach(model, None, "shared"))
    counts = [len(backend.encode(text).ids) for backend in backends]

    assert counts[0] < counts[1]
    for lab, count in zip(labs, counts, strict=False):
        shown = lab.show("own-text", params={"text": text})
        assert 1 + count == len(shown.texts["tokens"])
    with pytest.raises(PosKernelError, match="no tokenizer"):
        labs[-1].show("own-text", params={"text": text})


def test_an_attached_tokenizer_that_splits_special_tokens(path):
    model = AutoModelForCausalLM.from_pretrained(path)
    told = [AutoTokenizer.from_pretrained(path, split_special_tokens=on) for on in (False, True)]
    labs = [pk.attach(model, tokenizer) for tokenizer in told]
    text = f"sea{START_TOKEN}shells"
    for lab, tokenizer in zip(labs, told, strict=True):
        assert tokenizer(text)["input_ids"] == lab.tokenizer.encode(text)
    assert labs[0].model.fingerprint != labs[1].model.fingerprint


def token(content, **more):
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    return {"content": content, **flags, **more}


def named(content, **more):
    return {"__type": "AddedToken", **token(content, **more)}


CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
FORMS = {
    "nothing": {},
    "listed": {
        CONFIG: {
            "added_tokens_decoder": {
                "901": token("<|im_end|>", special=True),
                "900": token("<|im_start|>", special=True),
                "0": token("<|endoftext|>", special=True, normalized=True),
            },
            "bos_token": "<|im_start|>",
        },
        MAP: {"bos_token": "ignored"},
        ADDED: {"ignored": 903},
    },
    "flags": {
        CONFIG: {
            "added_tokens_decoder": {
                "900": token("<|im_start|>", lstrip=True),
                "901": token("<|im_end|>", rstrip=True, special=True),
                "902": token("tail", single_word=True, normalized=True),
                "903": token("HELLO", normalized=True),
            }
        }
    },
    "listed beside named": {
        CONFIG: {
            "added_tokens_decoder": {"900": token("<|im_start|>")},
            "eos_token": named("<|im_start|>", lstrip=True),
            "pad_token": named("<pad>", rstrip=True),
            "extra_special_tokens": ["<x>", named("<y>", lstrip=True)],
        }
    },
    "old extra": {CONFIG: {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}},
    "extra over old": {
        CONFIG: {"additional_special_tokens": ["<x>"], "extra_special_tokens": ["<y>"]}
    },
    "extra by name": {CONFIG: {"extra_special_tokens": {"image_token": "<x>", "end": "<y>"}}},
    "tokens of the model": {CONFIG: {"image_token": "<x>", "pad_token": "<pad>"}},
    "a map": {
        MAP: {
            "bos_token": "<|im_start|>",
            "eos_token": {"content": "<|im_end|>", "lstrip": True, "normalized": False},
            "extra_special_tokens": ["<x>", {"content": "<y>", "lstrip": True}],
        },
        CONFIG: {"bos_token": "<|endoftext|>", "extra_special_tokens": ["<pad>"]},
    },
    "an old map": {MAP: {"additional_special_tokens": ["<x>", "<y>"], "unk_token": "<pad>"}},
    "an old map beside extra": {
        MAP: {"additional_special_tokens": ["<x>"]}, CONFIG: {"extra_special_tokens": ["<y>"]},
    },
    "added": {
        ADDED: {"<|im_end|>": 901, "<|im_start|>": 900, "word": 902},
        MAP: {"eos_token": "<|im_end|>"},
    },
    "added over another": {ADDED: {"<x>": 0, "<y>": 905}},
    "map that takes away": {CONFIG: {"bos_token": "<|endoftext|>"}, MAP: {"bos_token": None}},
    "special tokens are split": {
        CONFIG: {"split_special_tokens": True, "extra_special_tokens": ["<x>"]}
    },
}  # fmt: skip
SAID = (
    "<|im_start|>user\n HELLO the  <|im_end|>  x<y>y <x> <x>word  words <pad>  tail <|endoftext|> "
)
BASES = {
    "bytes": made.three_digits, "sentencepiece": made.sentence_piece_bpe,
    "unigram": made.sentence_piece_unigram, "pieces": made.word_piece,
}  # fmt: skip


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("form", FORMS)
def test_tokens_are_those_of_transformers(path, base, form):
    backend = BASES[base]()
    backend.add_tokens([AddedToken("<|endoftext|>", special=True)])
    backend.save(str(path / "tokenizer.json"))
    changed_json(path / "config.json", bos_token_id=None, eos_token_id=None)
    (path / CONFIG).write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    alone = load_tokenizer(catalog.locate(path))
    for file, fields in FORMS[form].items():
        changed_json(path / file, **fields)
    located, theirs = catalog.locate(path), AutoTokenizer.from_pretrained(path)
    ours = load_tokenizer(located)

    assert theirs.encode(SAID, add_special_tokens=False) == ours.encode(SAID)
    told = theirs.backend_tokenizer.get_added_tokens_decoder()
    assert {n: repr(e) for n, e in told.items()} == {
        n: repr(e) for n, e in ours.backend.get_added_tokens_decoder().items()
    }
    if start := theirs.bos_token or theirs.eos_token:
        assert start == ours.start_token
    same = ours.encode(SAID) == alone.encode(SAID) and ours.start_token == alone.start_token
    if not same:
        assert "tokens of the files beside tokenizer.json" == located.spec.tokenizer
    if form == "nothing":
        assert located.spec.tokenizer is None


@pytest.mark.parametrize("name", ["demo-gpt2", "demo-attn-2l", "demo-rotary", "gpt2-small-layer0"])
def test_what_tells_nothing_new_keeps_its_identity(name):
    assert "tokenizer" not in catalog.locate(name).spec.model_dump()


def test_tokens_told_beside_change_the_keys_of_the_answers(path):
    before = describe_run(path, windows=3, context=29)
    changed_json(path / CONFIG, extra_special_tokens=["shells"])
    after = describe_run(path, windows=3, context=29)

    assert before.key() != after.key()
    assert (
        after.key()
        != after.model_copy(
            update={"model": after.model.model_copy(update={"tokenizer": None})}
        ).key()
    )


SPELLED = ["<unk>", "<s>", "</s>", *"▁abcdest.", "▁a", "st", "▁be", "est", "▁b"]


@pytest.mark.parametrize("family", ["llama", "gemma"])
@pytest.mark.parametrize("space", [False, True, None])
def test_a_gguf_says_whether_a_space_is_put_in_front(tmp_path, family, space):
    directory = build_gguf(tmp_path / "m", family)
    tokens = [*SPELLED, *(f"<0x{i:02X}>" for i in range(293 - len(SPELLED)))]
    values = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.scores": [float(-i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3),
    }  # fmt: skip
    if space is not None:
        values["tokenizer.ggml.add_space_prefix"] = space
    gone = ("tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id")
    located = catalog.locate(
        write_gguf(directory, tmp_path / "x.gguf", values=values, without=gone)
    )
    bare = space is False and family == "llama"

    assert ("no space in front" if bare else None) == located.spec.tokenizer
    first = load_tokenizer(located).encode("a best bed")[0]
    assert tokens.index("a" if bare or family == "gemma" else "▁a") == first
    assert tokens.index("▁be") in load_tokenizer(located).encode("a best bed")


@pytest.fixture
def on_hub(tmp_path, monkeypatch):
    """Return how a directory is put into the cache of the hub, as a commit of a repository."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "offline", lambda: True)

    def put(directory, name, commit):
        repository = tmp_path / "cache" / f"models--{name.replace('/', '--')}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(commit)
        return Path(shutil.copytree(directory, repository / "snapshots" / commit))

    return put


def test_tokens_of_a_hub_model_are_part_of_its_identity(path, on_hub):
    on_hub(path, "somebody/plain", "1" * 40)
    changed_json(path / CONFIG, extra_special_tokens=["shells"])
    on_hub(path, "somebody/told", "1" * 40)
    changed_json(path / "config.json", tokenizer_name="somebody/told")
    changed_json(path / CONFIG, extra_special_tokens=[])
    on_hub(path, "somebody/elsewhere", "3" * 40)

    plain, told, elsewhere = (
        catalog.locate(f"somebody/{name}") for name in ("plain", "told", "elsewhere")
    )
    assert plain.spec.tokenizer is None
    assert "tokens of the files beside tokenizer.json" == told.spec.tokenizer
    of = f"of somebody/told at {'1' * 40}, tokens of the files beside tokenizer.json"
    assert of == elsewhere.spec.tokenizer
    whole, *two = (load_tokenizer(each).encode("shells") for each in (plain, told, elsewhere))
    assert len(whole) > 1
    assert 1 == len(two[0]) == len(two[1])


def test_a_hub_model_without_its_tokenizer_is_located(path, on_hub):
    for name in ("tokenizer.json", CONFIG):
        (path / name).unlink()
    on_hub(path, "somebody/bare", "1" * 40)

    located = catalog.locate("somebody/bare")
    assert located.spec.tokenizer is None
    with pytest.raises(NoNetwork, match="somebody/bare"):
        load_tokenizer(located)
    with pytest.raises(NoNetwork, match=r"^The model hub cannot be reached"):
        to_bridge(loading.load(located, "cpu"))


def test_a_hub_model_runs_the_weights_that_its_directory_runs(path, on_hub):
    of_weights(path, load_file(path / "model.safetensors"), True, True, False, None)
    directory = on_hub(path, "somebody/two", "1" * 40)
    run = loading.load(catalog.locate("somebody/two"), "cpu").module

    plain = AutoModelForCausalLM.from_pretrained(directory, use_safetensors=True)
    assert torch.equal(plain.model.norm.weight, run.model.norm.weight)


TOY, SIZES = "NeelNanda/Attn_Only_2L512W_C4_Code", {
    "n_layers": 2, "n_heads": 5, "d_model": 35, "d_head": 7, "d_mlp": 140, "n_ctx": 41,
    "d_vocab": 97, "act_fn": "gelu", "attn_only": True, "normalization": "LN",
}  # fmt: skip


def toy_weights():
    """Random weights in the names and shapes of ``HookedTransformer``, with its buffers."""
    torch.manual_seed(7)
    shapes = {
        "embed.W_E": (97, 35), "pos_embed.W_pos": (41, 35), "unembed.W_U": (35, 97),
        "ln_final.w": (35,), "ln_final.b": (35,),
    }  # fmt: skip
    for layer in ("blocks.0.", "blocks.1."):
        shapes |= {f"{layer}ln1.w": (35,), f"{layer}ln1.b": (35,), f"{layer}attn.b_O": (35,)}
        shapes |= {f"{layer}attn.W_{x}": (5, 35, 7) for x in "QKV"} | {
            f"{layer}attn.W_O": (5, 7, 35)
        }
        shapes |= {f"{layer}attn.b_{x}": (5, 7) for x in "QKV"}
    buffers = {
        f"blocks.{layer}.attn.{name}": value
        for layer in (0, 1)
        for name, value in (("mask", torch.ones(41, 41).tril() > 0), ("IGNORE", torch.tensor(-1e5)))
    }
    return {name: torch.randn(shape) for name, shape in shapes.items()} | buffers


def toy(folder, weights):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SIZES))
    torch.save(weights, folder / "model_final.pth")
    return folder


@pytest.mark.parametrize("more", [{}, {"unembed.b_U": torch.linspace(-5, 5, 97)}], ids=["", "bias"])
def test_a_toy_of_the_posts_is_what_transformer_lens_runs(tmp_path, on_hub, monkeypatch, more):
    on_hub(toy(tmp_path / "toy", toy_weights() | more), TOY, "1" * 40)
    located = catalog.locate("attn-only-2l")
    assert loading.has_room(located, "cpu")
    model = loading.load(located, "cpu")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(HfApi, "list_repo_files", lambda *_: ["model_final.pth"])
    tokens = torch.arange(82).reshape(2, 41)
    with torch.no_grad():
        expected, seen = tl_legacy.boot(TOY).run_with_cache(tokens)
    torch.testing.assert_close(model.run(tokens), expected, rtol=1e-4, atol=1e-4)
    patterns = Patterns(torch.arange(41))
    model.run(tokens, observers=[patterns])
    for layer in (0, 1):
        theirs = seen[f"blocks.{layer}.attn.hook_pattern"]
        torch.testing.assert_close(patterns.kept[layer].float(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda held: held.pop("pos_embed.W_pos"), "pos_embed.W_pos"),
        (
            lambda held: held.update({"blocks.0.mlp.W_in": torch.ones(35, 140)}),
            "mlp.W_in' is in no",
        ),
        (
            lambda held: held.update({"unembed.b_U": torch.ones(35)}),
            r"lm_head.bias.*\[35\].*\[97\]",
        ),
    ],
    ids=["one less", "one more", "another size"],
)
def test_a_toy_with_other_weights_is_refused(tmp_path, on_hub, change, words):
    weights = toy_weights()
    change(weights)
    on_hub(toy(tmp_path / "toy", weights), TOY, "1" * 40)
    with pytest.raises(UnsupportedModel, match=words):
        loading.load(catalog.locate(TOY), "cpu")
