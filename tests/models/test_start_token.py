"""The token that begins a window: as the tokenizer names it, else by its number in config.json."""

import json
import shutil

import pytest

from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer

BOS, EOS = 3, 7


@pytest.mark.parametrize(
    ("settings", "config", "expected"),
    [
        ({"bos_token": "{3}", "eos_token": "{7}"}, {}, BOS),
        ({"bos_token": {"content": "{3}"}}, {"bos_token_id": EOS}, BOS),
        ({"eos_token": "{7}"}, {}, EOS),
        ({}, {"bos_token_id": BOS, "eos_token_id": EOS}, BOS),
        ({"bos_token": None, "eos_token": "{7}"}, {"bos_token_id": BOS}, BOS),
        ({}, {"bos_token_id": None, "eos_token_id": EOS}, EOS),
        ({}, {"bos_token_id": 1_000_000, "eos_token_id": [EOS]}, None),
        (None, {"bos_token_id": BOS}, BOS),
        (None, {}, None),
    ],
)
def test_the_start_token(model_dirs, tmp_path, settings, config, expected):
    """``{3}`` stands for the text of token 3; without `settings` there is no such file."""
    directory = shutil.copytree(model_dirs["gpt2"], tmp_path / "copy")
    vocabulary = load_tokenizer(catalog.locate(str(directory))).backend.id_to_token
    beside, file = directory / "tokenizer_config.json", directory / "config.json"
    beside.unlink(missing_ok=True)
    if settings is not None:
        text = json.dumps(settings).replace("{3}", vocabulary(BOS)).replace("{7}", vocabulary(EOS))
        beside.write_text(text, "utf-8")
    known = json.loads(file.read_text("utf-8"))
    known = {name: value for name, value in known.items() if name[4:] != "token_id"}
    file.write_text(json.dumps(known | config), "utf-8")

    found = load_tokenizer(catalog.locate(str(directory))).start_token
    assert (None if expected is None else vocabulary(expected)) == found
