"""Convert text to token ids and back with a model's ``tokenizer.json``, without importing torch."""

import codecs
import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from poskernel_core.common.errors import (
    NO_START,
    BadRequest,
    PosKernelError,
    UnsupportedModel,
)
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import DEFAULT_TOKEN, ModelSpec, digest
from poskernel_core.models.attached import attached, tokenizers_in_hand
from poskernel_core.models.catalog import Located, find_again
from poskernel_core.models.gguf import check_same, read_header, writing
from poskernel_core.models.pieces import Pieces, normalizer_steps
from poskernel_core.models.tokenizer_files import (
    MAX_BYTES,
    complete,
    fetch_tokenizer,
    named_token,
    read_settings,
    settle,
    without_space,
)

MAX_TOKEN = 1024
MAX_TOKENS = 2_000_000
WITH_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
"""Pre-tokenizers that work like GPT-2's but split digits one by one; transformers lacks them."""

AS_GPT2 = (None, "default", "gpt-2", *WITH_DIGITS)


def has_vocabulary(name: str, file: Path) -> bool:
    """Tell whether a GGUF file contains a vocabulary."""
    return "tokenizer.ggml.tokens" in read_header(name, file).values


def tokenizer_file(name: str, file: Path, directory: Path) -> Path | None:
    """Return the ``tokenizer.json`` of a GGUF file, writing it if necessary.

    Return None if the file has no vocabulary. ``tokenizer_config.json`` is written next to it and
    names the start token.
    """
    made = directory / "tokenizer.json"
    if made.is_file():
        return made
    if not has_vocabulary(name, file):
        return None
    try:
        text, settings = _of_vocabulary(name, file)
    except PosKernelError:
        raise
    except BaseException as error:  # untrusted input: anything, a panic of the tokenizers' Rust too
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UnsupportedModel(
            f"The tokenizer of {name!r} cannot be made of its vocabulary: "
            f"{' '.join(str(error).split())[:150]}."
        ) from error
    check_same(name, file, directory.name)
    with writing(name, directory / "tokenizer.lock"):
        if not made.is_file():
            made.with_name("tokenizer_config.json").write_text(settings, encoding="utf-8")
            unfinished = made.with_suffix(".partial")
            unfinished.write_text(text, encoding="utf-8")
            os.replace(unfinished, made)
    return made


def _of_vocabulary(name: str, file: Path) -> tuple[str, str]:
    from tokenizers import pre_tokenizers
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    architecture, vocabulary, settings = get_gguf_tokenizer(str(file))
    tokens, rule = vocabulary["tokens"], vocabulary.get("pre_tokenizer_type")
    if len(tokens) > MAX_TOKENS or max(map(len, tokens), default=0) > MAX_TOKEN:
        raise ValueError(f"more than {MAX_TOKENS:,} tokens, or one of over {MAX_TOKEN}")
    byte_level = vocabulary.get("tokenizer_type") == "gpt2"
    if byte_level and rule not in AS_GPT2 and rule not in GGUF_PRE_TOKENIZER_SPLITS:
        raise UnsupportedModel(
            f"{name!r} cuts text by the rule {str(rule)[:40]!r}, which is not read from GGUF: give "
            "ready token windows as a .npy file, or the model it was made from."
        )
    backend, _ = convert_gguf_tokenizer(architecture, vocabulary)
    if byte_level and rule in WITH_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    special = {kind: settings[kind] for kind in ("bos_token", "eos_token") if settings[kind]}
    return backend.to_str(), json.dumps(special)


MAX_IDS = 2**31
MAX_NAMED = 6  # most tokens listed in the error about a text that is not a single token
OLDER = ("vocab.json", "vocab.txt", "tokenizer.model", "spiece.model")
"""Files of older tokenizer formats, which transformers can convert."""

NONE_THERE = (
    "The model has no tokenizer.json, so text cannot be cut into its tokens: add one, or give "
    "ready token windows as a .npy file of integers [windows, T]."
)

PROBE = (
    "The Quick brown fox's 12,345.67 jumps -- over   them:\n\n\tif (x != 0) { return ['a_b']; }\r\n"
    " \u00dcber \u0391\u03b8\u03ae\u03bd\u03b1 \u6771\u4eac \U0001f600 don't STOP e\u0301 "
)
"""A text on which tokenizers that cut differently differ."""

PIECE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
"""A space in SentencePiece vocabularies."""

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""A byte as SentencePiece spells it."""


_LETTERS = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
_OWN = [ord(letter) for letter in _LETTERS if ord(letter) < 256]
BYTES = dict(zip(_LETTERS, [*_OWN, *sorted({*range(256)} - {*_OWN})], strict=True))
"""The byte that each letter of a byte-level vocabulary stands for."""


def _spelled_bytes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    lost = error.object[error.start : error.end]
    return "".join(f"<0x{byte:02X}>" for byte in lost), error.end


codecs.register_error("spelled bytes", _spelled_bytes)


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer and the token that starts its texts."""

    model: str
    backend: tokenizers.Tokenizer = field(repr=False)
    start_token: str | None

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        return [token for run in self.encode_in_runs(text) for token in run]

    def encode_with_places(self, text: str) -> tuple[list[int], list[int]]:
        """Return the token ids of a text as :meth:`encode`, and the character each begins at."""
        encoding = self.backend.encode(text, add_special_tokens=False)
        return list(encoding.ids), [first for first, _ in encoding.offsets]

    def encode_in_runs(self, text: str) -> Iterator[list[int]]:
        """Yield the token ids of :meth:`encode` lazily, in consecutive lists."""
        try:
            yield from self._pieces.encode(text)
        except Exception as error:  # the library raises a bare Exception
            raise UnsupportedModel(
                f"The tokenizer of {self.model!r} cannot cut the text: {str(error)[:150]}."
            ) from error

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self.backend)

    def decode_each(self, ids: list[int]) -> list[str]:
        """Return the text of each token, as the vocabulary spells it.

        The vocabulary's mark of a space is a space, so the joined texts of a text's tokens are the
        text, if the tokenizer loses nothing (SentencePiece adds a space in front). Bytes that are
        part of a character are written like ``<0xF0>``, ids without a token as empty texts.
        """
        return [self._spelled(self.backend.id_to_token(token) or "") for token in ids]

    def _spelled(self, token: str) -> str:
        if token in self._verbatim:
            return token
        if self._of_bytes and all(letter in BYTES for letter in token):
            return bytes(BYTES[letter] for letter in token).decode("utf-8", "spelled bytes")
        if token.startswith("<0x") and (byte := BYTE.fullmatch(token)) and int(byte[1], 16) < 0x80:
            return chr(int(byte[1], 16))
        for mark in self._marks:
            token = token.replace(mark, " ")
        return token

    @cached_property
    def _verbatim(self) -> frozenset[str]:
        return frozenset(e.content for e in self._added if e.special or self._of_bytes)

    @cached_property
    def _added(self) -> list[AddedToken]:
        return [*self.backend.get_added_tokens_decoder().values()]

    @cached_property
    def _of_bytes(self) -> bool:
        return "ByteLevel(" in self._steps

    @cached_property
    def _marks(self) -> list[str]:
        ending = getattr(self.backend.model, "end_of_word_suffix", None)
        return [mark for mark in (PIECE_MARK * (PIECE_MARK in self._steps), ending) if mark]

    @cached_property
    def _steps(self) -> str:
        backend = self.backend
        return f"{backend.normalizer}{backend.pre_tokenizer}{backend.decoder}"

    def known_start(self) -> int | None:
        """Return the id of the start token, or None if the model has none."""
        return None if self.start_token is None else self.backend.token_to_id(self.start_token)

    def without_start(self, text: str) -> str:
        """Return a text without the start tokens that are typed at its beginning."""
        while self.start_token and text.startswith(self.start_token):
            text = text.removeprefix(self.start_token)
        return text

    def start_id(self) -> int:
        """Return the id of the start token."""
        token_id = self.known_start()
        if token_id is None:
            raise BadRequest(f"{self.model!r} has no start token: run it without one ({NO_START}).")
        return token_id

    def ordinary_ids(self, vocabulary: int) -> list[int]:
        """Return the tokenizer's ids below ``vocabulary``, without special tokens."""
        known = sorted(set(self.backend.get_vocab().values()) - self._special)
        return [number for number in known if number < vocabulary]

    def single_id(self, text: str) -> int:
        """Return the id of a text that is exactly one token, such as ``" the"``.

        SentencePiece puts a space in front of a text, so ``" the"`` is cut in two there; the token
        that is spelled so is returned.
        """
        ids = self.encode(text)
        single = ids if self._known_alone(ids) else self._spelled_as(text)
        if not single:
            parts, word = [repr(piece) for piece in self.decode_each(ids)], f" {text}"
            if len(parts) > MAX_NAMED:
                parts[MAX_NAMED:] = ["…"]
            advice = "choose another, and mind the leading space"
            if self._known_alone(self.encode(word)):
                advice = f"mind the leading space, as in {word!r}"
            raise BadRequest(
                f"Expected text that is one token of {self.model!r}; {text!r} is "
                f"{counted(len(ids), 'token')} ({', '.join(parts)}): {advice}."
            )
        return single[0]

    def _known_alone(self, ids: list[int]) -> bool:
        return len(ids) == 1 and ids[0] not in self._special

    def _spelled_as(self, text: str) -> list[int]:
        ids = sorted(self.backend.get_vocab().values())
        return [token for token in ids if self.decode_each([token]) == [text]]

    def digest(self) -> str:
        """Return the SHA-256 of what it does: its rules, its tokens, and a text's ids."""
        told = json.loads(self.backend.to_str())
        content = [told[part] for part in ("model", "normalizer", "pre_tokenizer")]
        content += [sorted(self.backend.get_vocab().items()), self.start_token, self.encode(PROBE)]
        content += ["special tokens are split"] * self.backend.encode_special_tokens
        usual = {repr(AddedToken(token.content, special=True)) for token in self._added}
        odd = sorted({*map(repr, self._added)} - usual)  # those that strip spaces, and the like
        return digest([*content, odd] if odd else content)

    @cached_property
    def _special(self) -> set[int]:
        added = self.backend.get_added_tokens_decoder()
        return {number for number, token in added.items() if token.special}

    def usual_word(self) -> str:
        """Return ``" the"``, or another token if the tokenizer has none that is spelled so.

        It is the last token that ``" the"`` is cut into, or the first of the vocabulary.
        """
        ids = self.encode(DEFAULT_TOKEN)
        if self._known_alone(ids) and self.decode_each(ids)[0].strip() == DEFAULT_TOKEN.strip():
            return DEFAULT_TOKEN
        if self._spelled_as(DEFAULT_TOKEN):
            return DEFAULT_TOKEN
        parts = [token for token in ids if token not in self._special]
        return self.decode_each([*self.ordinary_ids(MAX_IDS)[:1], *parts])[-1]


def usual_word(model: ModelSpec) -> str:
    """Return a word that is one token of a model, as :meth:`Tokenizer.usual_word`.

    It is ``" the"`` for a model without a readable ``tokenizer.json``.
    """
    with contextlib.suppress(PosKernelError):
        return _usual_word(model)
    return DEFAULT_TOKEN


@lru_cache(maxsize=64)
def _usual_word(model: ModelSpec) -> str:
    located = find_again(model)
    if (kept := attached(model.name)) is not None:
        return kept.word
    if located.away or not (file := tokenizer_file_of(located, convert=False)):
        raise UnsupportedModel(NONE_THERE)  # not kept: it may come
    return _read(located, file).usual_word()


def load_tokenizer(located: Located) -> Tokenizer | None:
    """Load a model's tokenizer; None if the model has none, or only results.

    One of another format than ``tokenizer.json`` is converted, which imports transformers.
    """
    if (fingerprint := located.spec.fingerprint) in tokenizers_in_hand:
        in_hand: Tokenizer | None = tokenizers_in_hand[fingerprint]
        return in_hand
    if located.away and attached(located.spec.name) is None:
        return None
    file = tokenizer_file_of(located)
    return _converted(located) if file is None else _read(located, file)


def _read(located: Located, file: Path) -> Tokenizer:
    name = located.spec.name
    if file.stat().st_size > MAX_BYTES:
        raise UnsupportedModel(
            f"The tokenizer.json of {name!r} is larger than {MAX_BYTES / 2**20:.0f} MB: "
            "check the file."
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises a bare Exception
        raise UnsupportedModel(
            f"The tokenizer.json of {name!r} is damaged, or holds something else: fetch it again, "
            "or write it with the tokenizer's save_pretrained."
        ) from error
    try:
        normalizer_steps(backend.normalizer)
    except ValueError as error:
        raise UnsupportedModel(f"The tokenizer of {name!r} is refused: {error}.") from error
    settle(backend)
    try:
        settings = read_settings(file.parent)
        if located.gguf is None and attached(name) is None:  # whose tokenizer.json holds it all
            complete(backend, settings)
    except (TypeError, ValueError, AttributeError, OSError) as error:
        raise unreadable(name, error) from error
    if located.gguf is not None and located.spec.tokenizer:
        without_space(backend)
    backend.no_truncation()
    backend.no_padding()
    return Tokenizer(name, backend, _start_token(located, settings, backend))


def unreadable(name: str, error: Exception) -> UnsupportedModel:
    """Return the error for tokens that cannot be read from the files beside ``tokenizer.json``."""
    return UnsupportedModel(
        f"The tokens that files tell beside the tokenizer.json of {name!r} cannot be read "
        f"({str(error)[:150]}): write them with the tokenizer's save_pretrained."
    )


def check_tokenizer(located: Located, needed: bool) -> None:
    """Check the tokenizer of a local model, as far as possible without transformers."""
    if located.gguf is not None:
        if needed and not has_vocabulary(located.spec.name, located.gguf):
            raise BadRequest(NONE_THERE)
        return
    directory = Path(str(located.directory))
    if (directory / "tokenizer.json").is_file():
        load_tokenizer(located)
    elif needed and not any((directory / file).is_file() for file in OLDER):
        raise BadRequest(NONE_THERE)


def tokenizer_file_of(located: Located, *, convert: bool = True) -> Path | None:
    """Return a model's ``tokenizer.json``, or None; ``convert`` may import transformers."""
    if located.gguf is not None and located.directory is not None and convert:
        return tokenizer_file(located.spec.name, located.gguf, located.directory)
    if located.directory is not None:
        file = Path(located.directory) / "tokenizer.json"
        return file if file.is_file() else None
    return fetch_tokenizer(located.spec.name, located.config, located.spec.fingerprint)


def _converted(located: Located) -> Tokenizer | None:
    """Convert an older tokenizer (``vocab.json`` and ``merges.txt``) through transformers."""
    from transformers import AutoTokenizer

    local = located.directory is not None
    if local and not any((Path(str(located.directory)) / file).is_file() for file in OLDER):
        return None
    source = str(located.directory) if local else located.spec.name
    revision = {} if local else {"revision": located.spec.fingerprint}
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, local_files_only=local, trust_remote_code=False, **revision
        )
    except Exception:  # untrusted input can make transformers raise anything
        return None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    settle(backend)
    return Tokenizer(located.spec.name, backend, tokenizer.bos_token or tokenizer.eos_token)


def _start_token(
    located: Located, settings: dict[str, Any], backend: tokenizers.Tokenizer
) -> str | None:
    for name in ("bos_token", "eos_token"):
        if isinstance(token := named_token(settings, name), str):
            return token
        number = located.config.get(f"{name}_id")
        if type(number) is int and 0 <= number < 2**31:
            token = backend.id_to_token(number)
            if token is not None:
                return token
    return None
