"""Convert the vocabulary in a GGUF header to a tokenizer, with transformers' converters."""

import json
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import PosKernelError, UnsupportedModel
from poskernel_core.models.gguf import check_same, keep, read_header

TOKENS = "tokenizer.ggml.tokens"
MAX_TOKEN = 1024
MAX_TOKENS = 2_000_000
WITH_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
"""Pre-tokenizers that work like GPT-2's but split digits one by one; transformers lacks them."""

AS_GPT2 = (None, "default", "gpt-2", *WITH_DIGITS)


def has_vocabulary(name: str, file: Path) -> bool:
    """Tell whether a GGUF file contains a vocabulary.

    Raises:
        UnknownModel, UnsupportedModel: as :func:`.gguf.read_header`.
    """
    return TOKENS in read_header(name, file).values


def tokenizer_file(name: str, file: Path, directory: Path) -> Path | None:
    """Return the ``tokenizer.json`` of a GGUF file, writing it if necessary.

    Return None if the file has no vocabulary. ``tokenizer_config.json`` is written next to it and
    names the start token.

    Raises:
        UnsupportedModel: the vocabulary is invalid, or its pre-tokenizer is not supported.
        StoreFailed: the file cannot be written.
    """
    made = directory / "tokenizer.json"
    if made.is_file():
        return made
    if not has_vocabulary(name, file):
        return None
    values = read_header(name, file, vocabulary=True).values
    try:
        text, settings = _converted(name, values)
    except PosKernelError:
        raise
    except Exception as error:  # untrusted input can make transformers raise anything
        raise UnsupportedModel(
            f"The tokenizer of {name!r} cannot be made of its vocabulary: "
            f"{' '.join(str(error).split())[:150]}."
        ) from error
    check_same(name, file, directory.name)
    keep(name, made.with_name("tokenizer_config.json"), settings)
    keep(name, made, text)
    return made


def _converted(name: str, values: dict[str, Any]) -> tuple[str, str]:
    """Return the contents of ``tokenizer.json`` and ``tokenizer_config.json``."""
    from tokenizers import pre_tokenizers
    from transformers.integrations.gguf import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    keys = GGUF_TOKENIZER_MAPPING["tokenizer"]
    told = {ours: values[f"tokenizer.{key}"] for key, ours in keys.items()
            if f"tokenizer.{key}" in values}  # fmt: skip
    tokens = told["tokens"]
    if len(tokens) > MAX_TOKENS or max(map(len, tokens), default=0) > MAX_TOKEN:
        raise ValueError(f"more than {MAX_TOKENS:,} tokens, or one of over {MAX_TOKEN}")
    rule = told.get("pre_tokenizer_type")
    byte_level = told.get("tokenizer_type") == "gpt2"
    if byte_level and rule not in AS_GPT2 and rule not in GGUF_PRE_TOKENIZER_SPLITS:
        raise UnsupportedModel(
            f"{name!r} cuts text by the rule {str(rule)[:40]!r}, which is not read from GGUF: give "
            "ready token windows as a .npy file, or the model it was made from."
        )
    backend, _ = convert_gguf_tokenizer(str(values["general.architecture"]), told)
    if byte_level and rule in WITH_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    special = {
        f"{kind}_token": tokens[number]
        for kind in ("bos", "eos")
        if type(number := told.get(f"{kind}_token_id")) is int and 0 <= number < len(tokens)
    }
    return backend.to_str(), json.dumps(special)
