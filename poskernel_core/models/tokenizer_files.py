"""The files that decide how a model's tokenizer cuts text.

``tokenizer.json`` is not all: files beside it tell more tokens, and which one starts a text. They
are read as transformers reads them, without transformers.
"""

from collections.abc import Hashable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

from poskernel_core.common.errors import NoNetwork
from poskernel_core.common.files import MAX_JSON_BYTES, read_object
from poskernel_core.models.hub import fetch_optional
from poskernel_core.models.pieces import normalizer_steps

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
FIRST = (TOKENIZER, SETTINGS, "vocab.json", "merges.txt", "tokenizer.model")
"""The files whose bytes enter the fingerprint of a directory without their names."""

TELLING = ("special_tokens_map.json", "added_tokens.json")
"""What tells of tokens where :data:`SETTINGS` has no list of them."""

OTHERS = (
    *TELLING, "chat_template.json*", "chat_template.jinja", "additional_chat_templates/*.jinja",
    "vocab.txt", "vocab-*.json", "target_vocab.json", "entity_vocab.json", "word_*.json",
    "*.model", "*.spm", "tokenizer.*", "tekken*.json", "bpe.codes", "byte_maps.json", "dict.txt",
    "emoji.json", "normalizer.json", "prophetnet.tokenizer",
)  # fmt: skip
"""What else a tokenizer of transformers may open, by name or pattern."""

NAMED = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
)  # fmt: skip
EXTRA, OLD_EXTRA = "extra_special_tokens", "additional_special_tokens"
LISTED, OLDER = "added_tokens_decoder", "added_tokens.json"
SPACE = "tokenizer.ggml.add_space_prefix"
FIELDS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
DICE, TOLD, BARE = "dropout off", "tokens of the files beside tokenizer.json", "no space in front"
"""What changes the cutting of text, in the identity of a model and its provenance."""

MAX_BYTES = 200 * 2**20
"""Largest ``tokenizer.json`` that is read."""


def first_files(directory: Path) -> list[Path]:
    """Return those files of a directory that always entered its fingerprint, in this order."""
    return [file for name in FIRST if (file := directory / name).is_file()]


def other_files(directory: Path) -> list[Path]:
    """Return the other files of a directory that a tokenizer may open, sorted."""
    files = {file for pattern in OTHERS for file in directory.glob(pattern) if file.is_file()}
    return sorted(files - {directory / name for name in FIRST})


def read_settings(directory: Path) -> dict[str, Any]:
    """Return what the files beside ``tokenizer.json`` tell, merged in transformers' order.

    Raises:
        ValueError: a file is no JSON object.
    """
    settings = _object(directory / SETTINGS)
    if not settings.get(EXTRA) and OLD_EXTRA in settings:
        settings[EXTRA] = settings.pop(OLD_EXTRA)
    if LISTED in settings:
        return settings
    for name, value in _object(directory / TELLING[0]).items():
        if name == EXTRA and isinstance(value, list):
            more = [
                token if isinstance(token, str) else {**token, "special": True} for token in value
            ]
            value = [*(settings.get(EXTRA) or []), *more]
        settings[name] = value
    if OLD_EXTRA in settings:
        settings.setdefault(EXTRA, settings.pop(OLD_EXTRA))
    extra = settings.get(EXTRA) if isinstance(settings.get(EXTRA), list) else None
    every = (*map(settings.get, NAMED), *(extra or ()))
    special = {_content(token) for token in every if "__type" not in (token or ())}
    settings[OLDER] = {
        number: {"content": text, "normalized": text not in special, "special": text in special}
        for text, number in _object(directory / TELLING[1]).items()
    }
    return settings


def named_token(settings: dict[str, Any], name: str) -> str | None:
    """Return the text of a named token, such as ``bos_token``; None if none is told."""
    token = settings.get(name)
    return _content(token) if isinstance(token, str | dict) else None


def complete(backend: Tokenizer, settings: dict[str, Any]) -> None:
    """Add the tokens that files tell beside ``tokenizer.json``, as transformers does.

    Raises:
        TypeError, ValueError: a token is described in another form than transformers writes.
    """
    backend.encode_special_tokens = settings.get("split_special_tokens") is True
    own = backend.get_added_tokens_decoder()
    listed = {int(number): _token(entry) for number, entry in settings.get(LISTED, {}).items()}
    listed |= {n: _token(entry) for n, entry in settings.get(OLDER, {}).items() if n not in own}
    known = {*map(repr, own.values())}
    new = [added for _, added in sorted(listed.items()) if repr(added) not in known]
    texts = {added.content for added in (*own.values(), *new)}
    named, extra = _special(settings)
    for described in [*named, *extra]:
        token = _token(described)
        if token.content not in texts and token not in new:
            new.append(token)
    names = {*map(_content, named)}
    for token in new:
        token.special = token.special or token.content in names
    backend.add_tokens(new)


def settle(backend: Tokenizer) -> float:
    """Turn off the dropout of merges, as at inference, and return what it was."""
    dropout = getattr(backend.model, "dropout", None) or 0.0
    if dropout:
        backend.model.dropout = None
    return float(dropout)


def reading(directory: Path) -> str | None:
    """Return what changes the cutting of text against ``tokenizer.json`` alone; None: nothing.

    It is part of a model's identity. Cached by path, size and time of the files.
    """
    files = [directory / name for name in (TOKENIZER, SETTINGS, *TELLING)]
    states = [file.is_file() and (file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    with suppress(Exception):  # it is refused where it is read
        return _reading(directory, tuple(states))
    return None


@lru_cache(maxsize=64)
def _reading(directory: Path, _states: Hashable) -> str | None:
    file = directory / TOKENIZER
    if not file.is_file() or file.stat().st_size > MAX_BYTES:
        return None
    backend, settings = Tokenizer.from_file(str(file)), read_settings(directory)
    before = _described(backend, _object(directory / SETTINGS))
    changes = [DICE] if settle(backend) else []
    complete(backend, settings)
    changes += [TOLD] if _described(backend, settings) != before else []
    return ", ".join(changes) or None


def fetch_tokenizer(name: str, config: dict[str, Any], commit: str) -> Path | None:
    """Return a hub model's ``tokenizer.json``, fetched with the files beside it; None: none there.

    Raises:
        NoNetwork: it is not here, and the hub cannot be reached.
    """
    source, revision = _source(name, config, commit)
    for file in (SETTINGS, *TELLING):
        with suppress(NoNetwork):
            fetch_optional(source, file, revision)
    return fetch_optional(source, TOKENIZER, revision)


def reading_on_hub(name: str, config: dict[str, Any], commit: str) -> str | None:
    """Return :func:`reading` of a hub model, with the commit of a tokenizer from elsewhere.

    Raises:
        NoNetwork: as for :func:`fetch_tokenizer`.
    """
    if (file := fetch_tokenizer(name, config, commit)) is None:
        return None
    source, own_reading = _source(name, config, commit)[0], reading(file.parent)
    of = f"of {source} at {file.parent.name}" if source != name else None
    return ", ".join(filter(None, (of, own_reading))) or None


def _source(name: str, config: dict[str, Any], commit: str) -> tuple[str, str | None]:
    named = config.get("tokenizer_name")
    elsewhere = isinstance(named, str) and named not in ("", name)
    return (str(named), None) if elsewhere else (name, commit)


def reading_of_gguf(values: dict[str, Any]) -> str | None:
    """Return what changes the cutting of text against what was made of a GGUF header before."""
    family = str(values.get("general.architecture"))
    puts = values.get("tokenizer.ggml.model") == "llama" and not family.startswith("gemma")
    return BARE if puts and values.get(SPACE) is False else None


def _described(backend: Tokenizer, settings: dict[str, Any]) -> list[Any]:
    added = backend.get_added_tokens_decoder()
    start = [named_token(settings, name) for name in NAMED[:2]]
    return [{n: repr(token) for n, token in added.items()}, backend.encode_special_tokens, start]


def _special(settings: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the named tokens in transformers' order, and the extra ones."""
    extra = settings.get(EXTRA) or []
    return [*_by_name(settings).values()], [] if isinstance(extra, dict) else list(extra)


def _by_name(settings: dict[str, Any]) -> dict[str, Any]:
    named = {name: settings.get(name) for name in NAMED}
    named |= {n: value for n, value in settings.items() if n.endswith("_token") and n not in NAMED}
    named |= extra if isinstance(extra := settings.get(EXTRA), dict) else {}
    return {name: token for name, token in named.items() if isinstance(token, str | dict)}


def special_tokens(directory: Path) -> dict[str, str]:
    """Return the texts of the special tokens that have a name, as transformers gives templates.

    Raises:
        ValueError: as for :func:`read_settings`.
    """
    return {name: _content(token) for name, token in _by_name(read_settings(directory)).items()}


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _token(entry: Any) -> AddedToken:
    if isinstance(entry, str):
        return AddedToken(entry, special=True)
    return AddedToken(**{name: entry[name] for name in FIELDS if name in entry})


def _object(file: Path) -> dict[str, Any]:
    try:
        return read_object(file, MAX_JSON_BYTES) if file.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from error


def without_space(backend: Tokenizer) -> None:
    """Take off the space that a tokenizer puts in front of a text."""
    first: Any = backend.pre_tokenizer
    if isinstance(first, pre_tokenizers.Metaspace):
        first.prepend_scheme = "never"
        backend.pre_tokenizer = first
    if steps := normalizer_steps(backend.normalizer):
        kept = [step for step in steps if not isinstance(step, normalizers.Prepend)]
        backend.normalizer = normalizers.Sequence(kept)
