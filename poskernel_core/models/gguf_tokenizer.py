"""Convert the vocabulary in a GGUF file to a tokenizer, with transformers' converters."""

import json
import os
from pathlib import Path

from poskernel_core.common.errors import PosKernelError, UnsupportedModel
from poskernel_core.models.gguf import check_same, read_header, writing

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
    return "tokenizer.ggml.tokens" in read_header(name, file).values


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
    try:
        text, settings = _converted(name, file)
    except PosKernelError:
        raise
    except Exception as error:  # untrusted input can make transformers raise anything
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


def _converted(name: str, file: Path) -> tuple[str, str]:
    """Return the contents of ``tokenizer.json`` and ``tokenizer_config.json``."""
    from tokenizers import pre_tokenizers
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    architecture, told, settings = get_gguf_tokenizer(str(file))
    tokens, rule = told["tokens"], told.get("pre_tokenizer_type")
    if len(tokens) > MAX_TOKENS or max(map(len, tokens), default=0) > MAX_TOKEN:
        raise ValueError(f"more than {MAX_TOKENS:,} tokens, or one of over {MAX_TOKEN}")
    byte_level = told.get("tokenizer_type") == "gpt2"
    if byte_level and rule not in AS_GPT2 and rule not in GGUF_PRE_TOKENIZER_SPLITS:
        raise UnsupportedModel(
            f"{name!r} cuts text by the rule {str(rule)[:40]!r}, which is not read from GGUF: give "
            "ready token windows as a .npy file, or the model it was made from."
        )
    backend, _ = convert_gguf_tokenizer(architecture, told)
    if byte_level and rule in WITH_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    special = {kind: settings[kind] for kind in ("bos_token", "eos_token") if settings[kind]}
    return backend.to_str(), json.dumps(special)
