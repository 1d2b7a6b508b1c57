"""The table of architectures: which of transformers' causal classes run, and why others do not.

`python -m tests.support.architectures` makes it anew, with a small model of each class.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward import loading
from poskernel_core.models import catalog
from poskernel_core.models.configuration import read_geometry
from tests.support import ROOT
from tests.support.builders import hub_form

TABLE = ROOT / "docs/reference/architectures.md"
KINDS = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
RUNS = "runs"
EVERY = bool(os.environ.get("POSKERNEL_EVERY_FAMILY"))
READ = f"{RUNS}, as its configuration tells (no small model of it was made)"
IDS = torch.arange(37)[None] * 7 % 281 + 3


def outcome(path: Path, kind: str) -> str:
    """`runs`, or the sentence that refuses a class; other logits than transformers' are an error.

    The path is one where the model can be made.
    """
    try:
        if not made(path, kind):
            read_geometry("The model", {"model_type": kind})
            return READ
        model = loading.load(catalog.locate(str(path)), "cpu")
    except UnsupportedModel as error:
        return str(error).replace(repr(str(path)), "the model").replace("'The model'", "the model")
    expected = hub_form.plain_logits(path, IDS)
    torch.testing.assert_close(
        model.run(IDS), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())
    )
    return RUNS


def made(path: Path, kind: str) -> bool:
    try:
        return bool(hub_form.build(path, kind))
    except Exception:  # of transformers: sizes that it wants otherwise, or a package it lacks
        return False


def told() -> dict[str, str]:
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", TABLE.read_text("utf-8"), re.MULTILINE)
    return {kind: why for kinds, why in rows for kind in re.findall("`(.*?)`", kinds)}


def page(found: dict[str, str]) -> str:
    rows = "".join(
        f"| {', '.join(f'`{kind}`' for kind, each in found.items() if each == why)} | {why} |\n"
        for why in sorted(set(found.values()), key=lambda why: (not why.startswith(RUNS), why))
    )
    return f"""# Architectures

A small model of each causal class of transformers {transformers.__version__} was made, with
`config.json` in the form that the hub has, and loaded: its patterns and logits were compared with
those of transformers' own attention, or one sentence refused it.
`python -m tests.support.architectures` made this page.

| `model_type` | outcome |
|---|---|
{rows}"""


def main() -> None:
    found = told() if sys.argv[1:] else {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in sys.argv[1:] or KINDS:
            try:
                found[kind] = outcome(Path(folder) / kind, kind)
            except AssertionError as error:
                found[kind] = f"FAILS: {error}"
            print(kind, found[kind], flush=True)
    TABLE.write_text(page({kind: found[kind] for kind in KINDS}), encoding="utf-8")


if __name__ == "__main__":
    main()
