"""Chat templates: how a model writes conversations, and what of it the template adds.

A template is part of an untrusted model. transformers renders it with Jinja's sandbox; nothing of
it runs as code of the model.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import BadRequest, NoNetwork, UnsupportedModel
from poskernel_core.models.catalog import Located, read_config
from poskernel_core.models.gguf import read_header
from poskernel_core.models.hub import fetch_optional, file_here
from poskernel_core.models.tokenizer_files import special_tokens
from poskernel_core.models.tokenizers import tokenizer_file_of, unreadable

Turn = tuple[str, str]
"""A role, and what is said."""

MARKED = re.compile("\ue000([0-9]+)\ue001")
"""What stands for a turn's text in a template; private letters of Unicode around its number."""
SETTINGS, FILE = "tokenizer_config.json", "chat_template.jinja"
DATE = "2024-07-26"
"""The day on which conversations are written, unless another is given: Llama 3's own default."""
DATED = ("strftime_now", "date_string")
"""What a template that writes a date has it from."""


@dataclass(frozen=True)
class Rendered:
    """A conversation as the model reads it.

    Attributes:
        text: the whole text, with the template's own tokens.
        said: for each turn its first character, the one after its last, and its role.
    """

    text: str
    said: tuple[tuple[int, int, str], ...]


def chat_template(located: Located, *, fetch: bool = False) -> str | None:
    """Return the source of a model's chat template; None if it has none, or only results.

    With ``fetch``, the files of a model on the hub are fetched if they are not here.
    """
    if located.away:
        return None
    if located.gguf is not None:
        template = read_header(located.spec.name, located.gguf).values.get(
            "tokenizer.chat_template"
        )
        return template if isinstance(template, str) else None
    if (file := _file(located, FILE, fetch)) is not None:
        return file.read_text(encoding="utf-8")
    template = _settings(located, fetch).get("chat_template")
    if isinstance(template, list):  # several templates by name
        named = {
            entry.get("name"): entry.get("template")
            for entry in template
            if isinstance(entry, dict)
        }
        template = named.get("default", next(iter(named.values()), None))
    return template if isinstance(template, str) else None


def writes_date(template: str | None) -> bool:
    """Return whether a template may write the date."""
    return template is not None and any(name in template for name in DATED)


def render(located: Located, turns: Sequence[Turn], date: str | None = None) -> Rendered:
    """Write a conversation by the model's chat template, as on a day (:data:`DATE`).

    The template is rendered a second time with marks in place of what is said: what stands between
    the marks is the template's own.

    Raises:
        BadRequest: the model has no template, or its template refuses the conversation.
        UnsupportedModel: the template rewrites what is said, so that its own part cannot be told.
    """
    name, template = located.spec.name, chat_template(located, fetch=True)
    if template is None:
        raise BadRequest(lacking(name))
    day = datetime.fromisoformat(date or DATE)
    text = _rendered(located, template, turns, day)
    marks = [(role, f"\ue000{number}\ue001") for number, (role, _) in enumerate(turns)]
    parts = MARKED.split(_rendered(located, template, marks, day))
    written, said = parts[0], []
    for (role, content), after in zip(turns, parts[2::2], strict=False):
        own = content if text.startswith(written + content + after) else content.strip()
        said.append((len(written), len(written) + len(own), role))
        written += own + after
    if parts[1::2] != [str(number) for number in range(len(turns))] or written != text:
        raise UnsupportedModel(
            f"The chat template of {name!r} rewrites or drops what is said, so that its own part "
            "cannot be told: shorten the conversation to plain turns of user and assistant."
        )
    return Rendered(text, tuple(said))


def lacking(name: str) -> str:
    """Return why a model cannot read conversations."""
    return (
        f"{name!r} has no chat template, so conversations cannot be written for it: choose a model "
        "that was trained on them, such as one called Instruct."
    )


def _rendered(located: Located, template: str, turns: Sequence[Turn], day: datetime) -> str:
    # Not render_jinja_template: it turns whatever is callable into a text.
    from transformers.utils.chat_template_utils import _compile_jinja_template

    tokens = _special_tokens(located)
    messages: Any = [{"role": role, "content": content} for role, content in turns]
    try:
        text = _compile_jinja_template(template).render(
            messages=messages,
            tools=None,
            documents=None,
            add_generation_prompt=False,
            strftime_now=day.strftime,
            date_string=day.strftime("%d %b %Y"),
            **tokens,
        )
    except Exception as error:  # of Jinja, or raised by the template
        raise BadRequest(
            f"The chat template of {located.spec.name!r} refuses the conversation: "
            f"{' '.join(str(error).split())[:150]}."
        ) from error
    return str(text)


def _special_tokens(located: Located) -> dict[str, str]:
    file = tokenizer_file_of(located) or _file(located, SETTINGS, fetch=True)
    try:
        return {} if file is None else special_tokens(file.parent)
    except ValueError as error:
        raise unreadable(located.spec.name, error) from error


def _settings(located: Located, fetch: bool) -> dict[str, Any]:
    file = _file(located, SETTINGS, fetch)
    return {} if file is None else read_config(located.spec.name, file)


def _file(located: Located, file: str, fetch: bool) -> Path | None:
    name, commit = located.spec.name, located.spec.fingerprint
    if located.directory is not None:
        path = Path(located.directory) / file
        return path if path.is_file() else None
    if not fetch:
        return file_here(name, file, commit)
    with suppress(NoNetwork):
        return fetch_optional(name, file, commit)
    return None
