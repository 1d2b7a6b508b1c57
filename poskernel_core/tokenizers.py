"""Text <-> token ids with a model's own ``tokenizer.json``, without importing torch."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from poskernel_core.catalog import Located
from poskernel_core.errors import BadRequest, NoNetwork, UnknownModel, UnsupportedModel
from poskernel_core.hub import fetch_file

__all__ = ["Tokenizer", "load_tokenizer"]


OLDER = ("vocab.json", "vocab.txt", "tokenizer.model", "spiece.model")
"""Files of tokenizers that transformers can convert."""


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer and the token that starts its texts."""

    model: str
    backend: tokenizers.Tokenizer
    start_token: str | None

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def decode_each(self, ids: list[int]) -> list[str]:
        """Return the text of each token by itself."""
        return [self.backend.decode([token], skip_special_tokens=False) for token in ids]

    def known_start(self) -> int | None:
        """Return the id of the start token, or None where the model has none."""
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
        """Return the ids below ``vocabulary`` that the tokenizer has, special tokens excepted."""
        added = self.backend.get_added_tokens_decoder()
        special = {number for number, token in added.items() if token.special}
        known = sorted(set(self.backend.get_vocab().values()) - special)
        return [number for number in known if number < vocabulary]

    def single_id(self, text: str) -> int:
        """Return the id of a text that is exactly one token, such as ``" the"``.

        Raises:
            BadRequest: the text is no token, or more than one.
        """
        ids = self.encode(text)
        if len(ids) != 1:
            raise BadRequest(
                f"Expected text that is one token of {self.model!r}; {text!r} is {len(ids)} tokens "
                f"({', '.join(map(repr, self.decode_each(ids)[:6]))}): mind the leading space."
            )
        return ids[0]


def load_tokenizer(located: Located) -> Tokenizer | None:
    """Load a model's ``tokenizer.json``; None where a local model has none.

    Raises:
        UnsupportedModel: the file is damaged.
        NoNetwork: a hub model's tokenizer is not on this machine.
    """
    name = located.spec.name
    file = _tokenizer_file(located)
    if file is None:
        return _converted(located)
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises a bare Exception
        raise UnsupportedModel(f"The tokenizer.json of {name!r} cannot be read.") from error
    backend.no_truncation()
    backend.no_padding()
    return Tokenizer(name, backend, _start_token(located, file, backend))


def _tokenizer_file(located: Located) -> Path | None:
    if located.directory is not None:
        file = Path(located.directory) / "tokenizer.json"
        return file if file.is_file() else None
    repository = located.config.get("tokenizer_name") or located.spec.name
    revision = None if repository != located.spec.name else located.spec.fingerprint
    with contextlib.suppress(UnknownModel, NoNetwork):  # it names the start token, if it is there
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
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    backend = getattr(found, "backend_tokenizer", None)
    if backend is None:
        return None
    return Tokenizer(located.spec.name, backend, found.bos_token or found.eos_token)


def _start_token(located: Located, file: Path, backend: tokenizers.Tokenizer) -> str | None:
    """Return the beginning-of-text token, or the end-of-text token where there is no other."""
    beside = file.with_name("tokenizer_config.json")
    settings = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    for field in ("bos_token", "eos_token"):
        token = settings.get(field)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return token
        number = located.config.get(f"{field}_id")
        if isinstance(number, int) and backend.id_to_token(number) is not None:
            return backend.id_to_token(number)
    return None
