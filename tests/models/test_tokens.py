"""Tokens as the vocabulary spells them, one token for a word, and vocabularies with few tokens."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

from pages.shared.cards import plain
from poskernel_core.cli import terminal
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.data import corpora
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.export.files import caption
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import Tokenizer, load_tokenizer
from tests.data import test_pieces as made

LLAMA2 = decoders.Sequence(
    [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
)
LETTERS = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def llama2():
    backend = made.sentence_piece_bpe()
    backend.decoder = LLAMA2
    backend.add_special_tokens(["<s>"])
    return backend


def gemma():
    """No space is put in front of a text."""
    backend = made.sentence_piece_bpe()
    backend.normalizer, backend.decoder = normalizers.Replace(" ", "▁"), LLAMA2
    return backend


def llama3():
    backend = made.three_digits()
    backend.add_special_tokens(["<s>"])
    return backend


def of_letters(letters=LETTERS):
    return Backend(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))


def ends_of_words():
    """As the first GPT has it: the mark of a space ends a word."""
    known = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS)]
    backend = Backend(
        models.BPE({each: id_ for id_, each in enumerate(known)}, [], end_of_word_suffix="</w>")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.BPEDecoder("</w>")
    return backend


LOSSLESS = {
    # what makes a tokenizer, and what it puts around a text
    "Llama 2": (llama2, " {}"),
    "Gemma": (gemma, "{}"),
    "Llama 3": (llama3, "{}"),
    "GPT-2": (made.bundled("demo-gpt2"), "{}"),
    "without a decoder": (made.sentence_piece_bpe, " {}"),
    "letters": (of_letters, "{}"),
    "ends of words": (ends_of_words, "{} "),
    "Metaspace": (made.unigram_without_a_split, " {}"),
}
WORDS = st.lists(st.sampled_from(["She", "sells", "sea-shells", "a", "ABBA"]), min_size=1)


@pytest.fixture(scope="module", params=LOSSLESS)
def lossless(request):
    make, around = LOSSLESS[request.param]
    return Tokenizer("m", make(), None), around


@given(words=WORDS)
def test_the_joined_tokens_are_the_text(lossless, words):
    tokenizer, around = lossless
    text = " ".join(words)
    assert around.format(text) == "".join(tokenizer.decode_each(tokenizer.encode(text)))


BYTES = re.compile(r"<0x([0-9A-F]{2})>")


@pytest.mark.parametrize(("make", "around"), [(llama2, " {}"), (llama3, "{}")])
def test_parts_of_a_character_are_bytes(make, around):
    tokenizer, text = Tokenizer("m", make(), None), "🙂🌍 字é\na 🙂"
    joined = "".join(tokenizer.decode_each(tokenizer.encode(text)))
    assert "<0xF0><0x9F><0x99><0x82><0xF0>" in joined
    whole = BYTES.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), joined)
    assert around.format(text) == whole.encode("utf-8", "surrogateescape").decode("utf-8")


def test_a_word_that_is_one_token():
    llama = Tokenizer("m", llama2(), None)
    assert llama.backend.token_to_id("▁the") == llama.single_id(" the") == llama.single_id("the")
    with pytest.raises(BadRequest, match=r"' 🌍' is 6 tokens \(' ', ' ', '<0xF0>'"):
        llama.single_id(" 🌍")
    unknown = Tokenizer("m", made.sentence_piece_unigram(), None)
    with pytest.raises(BadRequest, match="'🌍' is"):
        unknown.single_id("🌍")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        *((make, " the") for make in (llama2, gemma, llama3, made.bundled("demo-gpt2"))),
        *((make, " the") for make in (made.unigram_without_a_split, made.word_piece)),
        (of_letters, "e"),
        (ends_of_words, "e "),
        (lambda: of_letters("ACGT"), "A"),
    ],
)
def test_the_usual_word(make, expected):
    tokenizer = Tokenizer("m", make(), None)
    assert expected == tokenizer.usual_word()
    assert tokenizer.single_id(expected) in tokenizer.backend.get_vocab().values()


@pytest.fixture(scope="module", params=[LETTERS, "ACGT"], ids=["letters", "four"])
def few(request, tmp_path_factory):
    """A GPT-2 of letters, without special tokens."""
    path = tmp_path_factory.mktemp("few")
    GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(request.param), n_positions=64, n_embd=20, n_layer=2, n_head=2,
            bos_token_id=None, eos_token_id=None,
        )
    ).save_pretrained(path)  # fmt: skip
    of_letters(request.param).save(str(path / "tokenizer.json"))
    return path, len(request.param)


def test_as_many_tokens_as_there_are(few, engine, near_workers):
    """Repeated tokens, copies of tokens, and the default token; the plan names the last."""
    path, letters = few
    run = describe_run(str(path), context=41, windows=20, start_token=False)

    helix = engine.result(Request(analysis="helix", run=run))
    assert (60 if letters == 65 else 4) == helix.provenance["windows"]
    assert 100 == helix.provenance["windows_asked"]

    asked = make_plan(
        Request(analysis="contextual-heads", run=run, params={"query": 40, "samples": 3})
    )
    assert ("e" if letters == 65 else "A") == asked.params.token
    heads = engine.result(asked)
    assert (4 if letters == 65 else 3) == len(heads.coordinates["distance"])


@pytest.mark.parametrize("make", [llama2, llama3])
@pytest.mark.parametrize("typed", ["", "<s>", "<s><s>"])
def test_one_start_token(make, typed):
    """Whether or not the start token is typed in front of the text."""
    tokenizer = Tokenizer("m", make(), "<s>")
    spec = CorpusSpec(name="text", text=typed + "She sells.")
    given = {"context": 64, "windows": 1, "start_token": True}
    (window,) = corpora.token_windows(spec, tokenizer, **given).tokens.tolist()
    assert [tokenizer.start_id(), *tokenizer.encode("She sells.")] == window
    (bare,) = corpora.token_windows(spec, tokenizer, **{**given, "start_token": False}).tokens
    assert tokenizer.encode(spec.text) == bare.tolist()


def test_the_way_without_a_start_token(monkeypatch, capsys):
    """The command line names its option, a page its control."""
    with pytest.raises(BadRequest, match=r"start_token=False") as caught:
        Tokenizer("m", of_letters(), None).start_id()
    terminal.status(caught.value)
    assert (
        "'m' has no start token: run it without one (--no-start-token)." in capsys.readouterr().err
    )
    shown = []
    monkeypatch.setattr(plain.st, "error", lambda text, **_: shown.append(text))
    plain.say_error(str(caught.value))
    assert "turn off 'Start token first'" in shown[0]
    assert "start_token" not in shown[0].replace("\\", "")


def test_a_typed_start_token_is_told():
    run = {"start_token": True, "model": "m"}
    texts = {"tokens": np.array(["<s>", " She"], dtype=object)}
    found = Result(
        analysis="own-text", params={"text": "<s>She"}, values={}, axes={"tokens": ("pos",)},
        units={"tokens": "token"}, texts=texts, provenance=run,
    )  # fmt: skip
    assert "start token once, typed as well" in caption(found)
    assert "start token True" in caption(replace(found, params={"text": "She"}))


BOS, EOS = 3, 7


@pytest.mark.parametrize(
    ("settings", "config", "expected"),
    [
        ({"bos_token": "{3}", "eos_token": "{7}"}, {}, BOS),
        ({"bos_token": {"content": "{3}"}}, {"bos_token_id": EOS}, BOS),
        ({"eos_token": "{7}"}, {}, EOS),
        ({}, {"bos_token_id": BOS, "eos_token_id": EOS}, BOS),
        ({"bos_token": None, "eos_token": "{7}"}, {"bos_token_id": BOS}, BOS),
        ({}, {"bos_token_id": None, "eos_token_id": EOS}, EOS),
        ({}, {"bos_token_id": 1_000_000, "eos_token_id": [EOS]}, None),
        (None, {"bos_token_id": BOS}, BOS),
        (None, {}, None),
    ],
)
def test_the_start_token(model_dirs, tmp_path, settings, config, expected):
    """``{3}`` stands for the text of token 3; without `settings` there is no such file."""
    directory = shutil.copytree(model_dirs["gpt2"], tmp_path / "copy")
    vocabulary = load_tokenizer(catalog.locate(str(directory))).backend.id_to_token
    beside, file = directory / "tokenizer_config.json", directory / "config.json"
    beside.unlink(missing_ok=True)
    if settings is not None:
        text = json.dumps(settings).replace("{3}", vocabulary(BOS)).replace("{7}", vocabulary(EOS))
        beside.write_text(text, "utf-8")
    known = json.loads(file.read_text("utf-8"))
    known = {name: value for name, value in known.items() if name[4:] != "token_id"}
    file.write_text(json.dumps(known | config), "utf-8")

    found = load_tokenizer(catalog.locate(str(directory))).start_token
    assert (None if expected is None else vocabulary(expected)) == found
