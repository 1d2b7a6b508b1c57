"""Long texts in pieces: the tokens are those of the whole text, whatever the tokenizer."""

import json
import re
from functools import cache, wraps

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.implementations import BertWordPieceTokenizer, SentencePieceUnigramTokenizer

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data import corpora
from poskernel_core.models import catalog, pieces
from poskernel_core.models.tokenizers import Tokenizer as Known
from poskernel_core.models.tokenizers import load_tokenizer

TEXTS = [*corpora.documents(CorpusSpec(name="sample"))][:200]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]


def trained(tokenizer, **more):
    trainer = trainers.BpeTrainer(
        vocab_size=900, show_progress=False, special_tokens=["<unk>", "<|endoftext|>"], **more
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def once(make):
    """What is trained takes seconds: it is trained once, and each call gives another copy."""
    told = cache(lambda: make().to_str())
    return wraps(make)(lambda: Tokenizer.from_str(told()))


def bundled(name):
    return lambda: load_tokenizer(catalog.locate(name)).backend


@once
def sentence_piece_bpe():
    """As Llama 2 has it: no split in front, spaces are letters, bytes for unknown letters."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trained(tokenizer)
    tokenizer.add_tokens(["<0x0A>"])
    whole = json.loads(tokenizer.to_str())
    for byte in FALLBACK:
        whole["model"]["vocab"].setdefault(byte, len(whole["model"]["vocab"]))
    whole["added_tokens"] = [each for each in whole["added_tokens"] if each["id"] < 2]
    whole["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return tokenizer


@once
def sentence_piece_unigram():
    """As ALBERT and XLNet have it."""
    tokenizer = SentencePieceUnigramTokenizer()
    tokenizer.train_from_iterator(
        TEXTS[:20], vocab_size=500, show_progress=False, unk_token="<unk>"
    )
    return Tokenizer.from_str(tokenizer.to_str())


def unigram_without_a_split():
    """The best path through the whole text, spaces among its letters."""
    tokenizer = sentence_piece_unigram()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    return tokenizer


@once
def word_piece():
    """As BERT has it."""
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(TEXTS, vocab_size=900, show_progress=False)
    return Tokenizer.from_str(tokenizer.to_str())


@once
def three_digits():
    """As Llama 3 has it: a split that counts digits by threes."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


TOKENIZERS = {
    "demo-gpt2": bundled("demo-gpt2"),
    "SentencePiece BPE": sentence_piece_bpe,
    "SentencePiece Unigram": sentence_piece_unigram,
    "Unigram without a split": unigram_without_a_split,
    "WordPiece": word_piece,
    "digits by threes": three_digits,
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def backend(request):
    return TOKENIZERS[request.param]()


WORDS = re.findall(r"\S+", " ".join(TEXTS[:20]))
SPACES = st.sampled_from([" ", " ", " ", "", "  ", "\n", "\n\n", "\r\n\t", " " * 30, "\u3000"])
THINGS = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(WORDS),
    st.sampled_from(["it's", "1234567", "。字字、語", "e\u0301", "\u0301", "🙂🙂", "İı", "ﷺ"]),
    st.sampled_from(["<|endoftext|>", "<unk>", "▁", "<0x0A>", "--!?--", "aaaaaaaaaaaaaa", "Ġ"]),
    st.text(max_size=9),
)
LONG = st.lists(st.tuples(THINGS, SPACES), min_size=20, max_size=120).map(
    lambda found: "".join(thing + space for thing, space in found)
)


@settings(max_examples=15)
@given(text=LONG)
def test_pieces_are_the_whole(backend, text):
    expected = backend.encode(text, add_special_tokens=False).ids
    with pytest.MonkeyPatch.context() as small:
        small.setattr(pieces, "PIECE", 96)
        small.setattr(pieces, "MARGIN", 12)
        assert expected == [token for run in pieces.Pieces(backend).encode(text) for token in run]


def test_large_pieces_are_the_whole(backend):
    text = "\n\n".join(TEXTS)[: 4 * pieces.PIECE]
    runs = [*pieces.Pieces(backend).encode(text)]
    assert 5 == len(runs)
    assert backend.encode(text, add_special_tokens=False).ids == [t for run in runs for t in run]


@pytest.fixture
def lengths(monkeypatch):
    seen, run = [], pieces.Pieces.run

    def counted(self, text, begin, size):
        seen.append(len(text[begin : begin + size]))
        return run(self, text, begin, size)

    monkeypatch.setattr(pieces.Pieces, "run", counted)
    return seen


@pytest.fixture(scope="module")
def gpt2():
    return bundled("demo-gpt2")()


@pytest.mark.parametrize("between", [" ", ""])
def test_no_more_than_the_windows_need(gpt2, lengths, tmp_path, between):
    (tmp_path / "long.txt").write_text(between.join(WORDS * 20))

    found = corpora.token_windows(
        CorpusSpec(name=str(tmp_path / "long.txt")),
        Known("m", gpt2, None),
        context=32,
        windows=4,
        start_token=False,
    ).tokens

    assert (4, 32) == found.shape
    assert [pieces.PIECE] * 2 == lengths


def test_what_cannot_be_cut(gpt2, lengths, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 2**12)
    monkeypatch.setattr(pieces, "MOST", 2**14)
    with pytest.raises(UnsupportedModel, match="16,384 characters are one piece"):
        Known("m", gpt2, None).encode("a" * (2 * pieces.MOST))
    assert pieces.MOST == max(lengths)


@pytest.mark.parametrize("around", ["", " ".join(WORDS[:3000])])
def test_what_cannot_be_cut_and_is_short(gpt2, around, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 2**13)
    text = around + "a" * (2 * pieces.PIECE) + around
    assert gpt2.encode(text).ids == Known("m", gpt2, None).encode(text)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (normalizers.Replace("s", "s" * 1000), "1,000 characters"),
        (normalizers.Prepend("s" * 1000), "1,000 characters"),
        (normalizers.Sequence([normalizers.Replace("s", "ss")] * 40), "its normalizer makes"),
        (normalizers.Sequence([normalizers.Replace(Regex("$|s"), "ss")] * 40), "makes more than"),
    ],
)
def test_a_normalizer_that_blows_up(step, words):
    tokenizer = bundled("demo-gpt2")()
    tokenizer.normalizer = step
    with pytest.raises(UnsupportedModel, match=words):
        Known("m", tokenizer, None).encode("She sells.")
