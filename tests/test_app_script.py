"""Every page as a script, without a browser: it runs, and what a stored result costs to show."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server import ROOT, command_line, environment

FILES = sorted((ROOT / "pages").rglob("*.py"))
PAGES = [file for file in FILES if "parts" not in file.parts]
LONGEST_PAGE = 120
COMPUTE = ("models", "passes", "attention", "bridge", "attn_only", "gather", "statistics", "worker")
ALONE = """
import json, sys
from streamlit.testing.v1 import AppTest
app = AppTest.from_file("app.py", default_timeout=120)
app.query_params["texts"], app.query_params["context"] = "50", "64"
app.run()
if sys.argv[1:]:
    app.switch_page(sys.argv[1]).run()
print(json.dumps({
    "exceptions": [each.value for each in app.exception],
    "errors": [each.value for each in app.error],
    "titles": [each.value for each in app.title],
    "charts": len(app.get("plotly_chart")),
    "progress": len(app.get("progress")),
    "modules": sorted(sys.modules),
}))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A store that holds what pages show first, for 50 windows of 64 tokens."""
    directory = tmp_path_factory.mktemp("cache")
    run = ("demo-gpt2", "--texts", "50", "--context", "64")
    command_line(directory, "precompute", *run, "--experiments")
    return directory


def run_alone(cache: Path, *page: str) -> dict[str, Any]:
    """Run the app, and a page of it, in a process of its own; what it drew and imported."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *page],
        cwd=ROOT, env=environment(cache), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def imports(file: Path) -> list[str]:
    """Every module that a file names in an import."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("script", PAGES, ids=lambda file: file.stem)
def test_every_page_runs(cache, script):
    """A title, and but for words a figure; what it still computes is under way in the worker."""
    seen = run_alone(cache, str(script.relative_to(ROOT)))
    assert ([], []) == (seen["exceptions"], seen["errors"])
    assert 1 == len(seen["titles"])
    assert seen["charts"] or seen["progress"] or script.parent.name == "about"


@pytest.mark.slow
@pytest.mark.parametrize(("page", "charts"), [("induction_recency", 7), ("position_vs_token", 7)])
def test_precomputed_experiments_are_those_of_the_pages(cache, page, charts):
    """After `precompute --experiments` nothing is left to be computed on the pages."""
    seen = run_alone(cache, f"pages/experiments/{page}.py")
    assert (charts, 0) == (seen["charts"], seen["progress"])


@pytest.mark.slow
def test_a_stored_result_is_shown_without_torch(cache):
    """A process that draws the landing page from the store imports none of the heavy packages."""
    seen = run_alone(cache)
    assert (["ETC heat map"], 1, []) == (seen["titles"], seen["charts"], seen["errors"])
    heavy = {"torch", "transformers", "transformer_lens", "datasets"}
    assert set() == heavy & set(seen["modules"])


@pytest.mark.parametrize("script", PAGES, ids=lambda file: file.stem)
def test_pages_are_short(script):
    """A page selects, loads and draws."""
    assert len(script.read_text(encoding="utf-8").splitlines()) < LONGEST_PAGE


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_pages_leave_computing_to_the_worker(file):
    """No file of the pages names torch, or a module of the core that runs a model."""
    named = imports(file)
    banned = ("torch", *(f"poskernel_core.{module}" for module in COMPUTE))
    assert [] == [n for n in named if any(n == b or n.startswith(f"{b}.") for b in banned)]


def test_every_page_is_in_the_navigation():
    """And none lies directly under `pages/`, where Streamlit would run it without `app.py`."""
    script = (ROOT / "app.py").read_text(encoding="utf-8")
    assert PAGES
    assert all(f'"{page.relative_to(ROOT).as_posix()}"' in script for page in PAGES)
    assert [] == list((ROOT / "pages").glob("*.py"))
