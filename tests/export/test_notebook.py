"""The notebook in docs runs from top to bottom, offline, and draws its figures."""

import os

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support import ROOT

NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))
LIBRARY = "window.Plotly = Plotly"


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_runs(file, tmp_path, monkeypatch):
    """Every cell, in a kernel of its own on an empty store; plotly.js is in one output."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(file, as_version=4)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()

    if file.stem != "kernels":
        outputs = [out for cell in book.cells for out in cell.get("outputs", ())]
        shown = "".join(out.get("data", {}).get("text/html", "") for out in outputs)
        assert "<figure" in shown
        return
    outputs = [out for cell in book.cells for out in cell.get("outputs", ())]
    assert {"execute_result"} == {out.output_type for out in outputs}
    figures = [html for out in outputs if "<figure" in (html := out.data.get("text/html", ""))]
    assert 4 == len(figures)
    assert [True, False, False, False] == [LIBRARY in html for html in figures]
    assert all("model demo-gpt2" in out.data["text/plain"] for out in outputs
               if "<figure" in out.data.get("text/html", ""))  # fmt: skip


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_is_kept_without_outputs(file):
    """They are large, and belong to whoever ran it."""
    book = nbformat.read(file, as_version=4)
    nbformat.validate(book)

    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in book.cells)
