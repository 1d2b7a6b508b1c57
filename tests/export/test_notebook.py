"""The notebooks in docs run from top to bottom, offline, and draw their figures."""

import os

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support import ROOT

NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))
LIBRARY = "window.Plotly = Plotly"
MARKS = {".view(": "<figure", "pk.matrix(": "DecompressionStream"}
"""What the HTML of a figure holds, by the call that draws it."""


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_runs(file, tmp_path, monkeypatch):
    """Every cell, in a kernel of its own on an empty store; plotly.js is in one output."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # beside other tests, threads wait for each other
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:IProgress not found")  # of tqdm, in transformers
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(file, as_version=4)
    NotebookClient(book, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()

    outputs = [out for cell in book.cells for out in cell.get("outputs", ())]
    assert "error" not in {out.output_type for out in outputs}
    outputs = [out for out in outputs if out.output_type == "execute_result"]
    pages = [out.data.get("text/html", "") for out in outputs]
    for call, mark in MARKS.items():
        drawn = [cell for cell in book.cells if call in cell.source and ".save(" not in cell.source]
        assert len(drawn) == sum(mark in page for page in pages)
    figures = [page for page in pages if "<figure" in page]
    assert [at == 0 for at in range(len(figures))] == [LIBRARY in page for page in figures]
    assert all("model " in out.data["text/plain"] for out in outputs
               if "<figure" in out.data.get("text/html", ""))  # fmt: skip


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_is_kept_without_outputs(file):
    """They are large, and belong to whoever ran it."""
    book = nbformat.read(file, as_version=4)
    nbformat.validate(book)

    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in book.cells)
