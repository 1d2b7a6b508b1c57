"""The program in ARCHITECTURE.md runs."""

import re

import plotly.graph_objects as go

from poskernel_core.analyses import find
from poskernel_core.analyses.drawing import figure_of
from poskernel_core.api import run_pass
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data.corpora import token_windows
from poskernel_core.engine.provenance import to_entry
from poskernel_core.forward.loading import load
from poskernel_core.models.catalog import locate
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.storage.store import Store
from tests.support import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_program_in_one_piece_runs(tmp_path) -> None:
    program = next(body for language, body in BLOCK.findall(TEXT) if language == "python")
    store = Store(tmp_path)
    names = {
        "CorpusSpec": CorpusSpec, "figure_of": figure_of, "find": find, "load": load,
        "load_tokenizer": load_tokenizer, "locate": locate, "run_pass": run_pass, "store": store,
        "to_entry": to_entry, "token_windows": token_windows,
    }  # fmt: skip
    exec(program, names)

    assert isinstance(names["figure"], go.Figure)
    assert (4, 8) == names["result"].select(query=63).values["etc"].shape
    assert store.get("a key") is not None
    store.close()
