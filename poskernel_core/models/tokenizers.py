"""Convert text to token ids and back with a model's ``tokenizer.json``, without importing torch."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import tokenizers

from poskernel_core.common.errors import BadRequest, NoNetwork, UnknownModel, UnsupportedModel
from poskernel_core.models.catalog import Located, read_config
from poskernel_core.models.gguf_tokenizer import has_vocabulary, tokenizer_file
from poskernel_core.models.hub import fetch_file
from poskernel_core.models.pieces import Pieces, normalizer_steps

MAX_NAMED = 6  # most tokens listed in the error about a text that is not a single token
OLDER = ("vocab.json", "vocab.txt", "tokenizer.model", "spiece.model")
"""Files of older tokenizer formats, which transformers can convert."""

NONE_THERE = (
    "The model has no tokenizer.json, so text cannot be cut into its tokens: add one, or give "
    "ready token windows as a .npy file of integers [windows, T]."
)
MAX_TOKENIZER_BYTES = 200 * 2**20


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer and the token that starts its texts."""

    model: str
    backend: tokenizers.Tokenizer = field(repr=False)
    start_token: str | None

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens.

        Raises:
            UnsupportedModel: the tokenizer cannot cut this text.
        """
        return [token for run in self.encode_in_runs(text) for token in run]

    def encode_in_runs(self, text: str) -> Iterator[list[int]]:
        """Yield the token ids of :meth:`encode` lazily, in consecutive lists.

        Raises:
            UnsupportedModel: the tokenizer cannot cut this text.
        """
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
        """Return the text of each token, decoded separately."""
        return [self.backend.decode([token], skip_special_tokens=False) for token in ids]

    def known_start(self) -> int | None:
        """Return the id of the start token, or None if the model has none."""
        return None if self.start_token is None else self.backend.token_to_id(self.start_token)

    def start_id(self) -> int:
        """Return the id of the start token.

        Raises:
            BadRequest: the model has none.
        """
        found = self.known_start()
        if found is None:
            raise BadRequest(f"{self.model!r} has no start token: run it without one.")
        return found

    def ordinary_ids(self, vocabulary: int) -> list[int]:
        """Return the tokenizer's ids below ``vocabulary``, without special tokens."""
        added = self.backend.get_added_tokens_decoder()
        special = {number for number, token in added.items() if token.special}
        known = sorted(set(self.backend.get_vocab().values()) - special)
        return [number for number in known if number < vocabulary]

    def single_id(self, text: str) -> int:
        """Return the id of a text that is exactly one token, such as ``" the"``.

        Raises:
            BadRequest: the text is not exactly one token.
        """
        ids = self.encode(text)
        if len(ids) != 1:
            parts, word = [repr(each) for each in self.decode_each(ids)], f" {text}"
            if len(parts) > MAX_NAMED:
                parts[MAX_NAMED:] = ["…"]
            advice = "choose another, and mind the leading space"
            if len(self.encode(word)) == 1:
                advice = f"mind the leading space, as in {word!r}"
            raise BadRequest(
                f"Expected text that is one token of {self.model!r}; {text!r} is {len(ids)} tokens "
                f"({', '.join(parts)}): {advice}."
            )
        return ids[0]


def load_tokenizer(located: Located) -> Tokenizer | None:
    """Load a model's ``tokenizer.json``; None if the model has none, or only results.

    Raises:
        UnsupportedModel: the file is damaged.
        StoreFailed: the tokenizer converted from a GGUF file cannot be written.
        NoNetwork: a hub model's tokenizer is not on this machine.
    """
    name = located.spec.name
    if located.away:
        return None
    file = _tokenizer_file(located)
    if file is None:
        return _converted(located)
    if file.stat().st_size > MAX_TOKENIZER_BYTES:
        raise UnsupportedModel(
            f"The tokenizer.json of {name!r} is larger than {MAX_TOKENIZER_BYTES / 2**20:.0f} MB: "
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
    backend.no_truncation()
    backend.no_padding()
    return Tokenizer(name, backend, _start_token(located, file, backend))


def check_tokenizer(located: Located, needed: bool) -> None:
    """Check the tokenizer of a local model, as far as possible without transformers.

    Raises:
        UnsupportedModel: the tokenizer cannot be read.
        BadRequest: the tokenizer is ``needed`` but missing.
    """
    if located.gguf is not None:
        if needed and not has_vocabulary(located.spec.name, located.gguf):
            raise BadRequest(NONE_THERE)
        return
    directory = Path(str(located.directory))
    if (directory / "tokenizer.json").is_file():
        load_tokenizer(located)
    elif needed and not any((directory / file).is_file() for file in OLDER):
        raise BadRequest(NONE_THERE)


def _tokenizer_file(located: Located) -> Path | None:
    if located.gguf is not None and located.directory is not None:
        return tokenizer_file(located.spec.name, located.gguf, located.directory)
    if located.directory is not None:
        file = Path(located.directory) / "tokenizer.json"
        return file if file.is_file() else None
    named = located.config.get("tokenizer_name")
    repository = named if isinstance(named, str) and named else located.spec.name
    revision = None if repository != located.spec.name else located.spec.fingerprint
    with contextlib.suppress(UnknownModel, NoNetwork):  # optional: it names the start token
        fetch_file(repository, "tokenizer_config.json", revision)
    try:
        return fetch_file(repository, "tokenizer.json", revision)
    except UnknownModel:
        return None


def _converted(located: Located) -> Tokenizer | None:
    """Convert an older tokenizer (``vocab.json`` and ``merges.txt``) through transformers."""
    from transformers import AutoTokenizer

    local = located.directory is not None
    if local and not any((Path(str(located.directory)) / file).is_file() for file in OLDER):
        return None
    source = str(located.directory) if local else located.spec.name
    revision = {} if local else {"revision": located.spec.fingerprint}
    try:
        found = AutoTokenizer.from_pretrained(
            source, local_files_only=local, trust_remote_code=False, **revision
        )
    except Exception:  # untrusted input can make transformers raise anything
        return None
    backend = getattr(found, "backend_tokenizer", None)
    if backend is None:
        return None
    return Tokenizer(located.spec.name, backend, found.bos_token or found.eos_token)


def _start_token(located: Located, file: Path, backend: tokenizers.Tokenizer) -> str | None:
    """Return the beginning-of-text token, or the end-of-text token if there is none."""
    beside = file.with_name("tokenizer_config.json")
    settings = read_config(located.spec.name, beside) if beside.is_file() else {}
    for name in ("bos_token", "eos_token"):
        token = settings.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return token
        number = located.config.get(f"{name}_id")
        if type(number) is int and 0 <= number < 2**31:
            token = backend.id_to_token(number)
            if token is not None:
                return token
    return None
