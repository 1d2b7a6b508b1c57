"""Who may import whom, and what an import costs."""

import ast
import json
import re
import subprocess
import sys
from functools import cache

import pytest

import poskernel_core
from pages import NAMES
from tests.support import ROOT

CORE = ROOT / "poskernel_core"
ORDER = (
    "common", "models", "plotting", "data", "forward", "statistics", "storage", "passes",
    "analyses", "engine", "export", "api", "ledger", "server", "client", "mcp", "objects", "cli",
)  # fmt: skip
"""The stages of the core: each imports those before it, and itself."""
APART = {
    "analyses": {"storage", "passes"},
    "plotting": {"models"},
    "export": {"forward", "statistics", "storage", "passes"},
}
"""What a stage has no business with although it lies before it."""
TORCH = {"forward", "statistics", "passes", "objects"}
"""The stages whose modules may import torch; of the analyses, ``experiment`` alone."""
LIGHT = (
    "engine.engine", "engine.worker", "models.catalog", "data.corpora", "analyses", "cli.main",
    "api", "storage.archive", "analyses.views", "export.files", "ledger.compare",
)  # fmt: skip
HEAVY = ("torch", "transformers", "transformer_lens", "datasets", "scipy", "streamlit", "pandas")
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(CORE.rglob("*.py"))
    if file.name != "__main__.py"
}


@cache
def imports(file):
    """Every module that a file names in an import, at its top, inside a function or by a string."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            found += [each.value for each in node.args if isinstance(each, ast.Constant)]
    return found


def within(name, package):
    return name == package or name.startswith(f"{package}.")


def own_imports(name):
    """The modules of the core that a module of the core imports, anywhere in it."""
    found = set()
    for each in imports(FILES[name]):
        while each not in FILES and "." in each:  # the name of a thing in a module
            each = each.rpartition(".")[0]
        if within(each, "poskernel_core") and each not in {name, "poskernel_core"}:
            found.add(each)
    return found


def stage(name):
    return name.split(".")[1]


@pytest.fixture(scope="module")
def loaded():
    """The modules in memory after each light module is imported, all in one fresh process."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {LIGHT}: importlib.import_module(f'poskernel_core.{{name}}')\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("package", HEAVY)
def test_light_modules_import_nothing_heavy(loaded, package):
    assert "poskernel_core.engine.engine" in loaded
    assert [] == [name for name in loaded if within(name, package)]


def test_every_file_lies_in_a_stage():
    assert set(ORDER) == {stage(name) for name in FILES if name != "poskernel_core"}


def test_imports_go_one_way():
    wrong = [
        f"{name} imports {each}"
        for name in FILES
        if name != "poskernel_core"
        for each in own_imports(name)
        if stage(each) in ORDER[ORDER.index(stage(name)) + 1 :]
        or stage(each) in APART.get(stage(name), ())
    ]
    assert [] == wrong


def test_no_circles():
    left = {name: own_imports(name) for name in FILES if name != "poskernel_core"}
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]
    assert {} == left


def test_nobody_imports_what_runs_a_model_but_its_like():
    """The questions name the function that answers them; importing them costs no torch."""
    wrong = [
        f"{name} imports {each}"
        for name in FILES
        for each in own_imports(name)
        if ".experiment" in each and stage(each) == "analyses" and ".experiment" not in name
    ]
    assert [] == wrong


def test_torch_is_imported_where_models_run():
    for name, file in FILES.items():
        top = [
            alias.name if isinstance(node, ast.Import) else node.module
            for node in ast.parse(file.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        if any(within(each, "torch") for each in top):
            assert stage(name) in TORCH or ".experiment" in name, name


def test_no_page_imports_another():
    wrong = [
        f"{file.relative_to(ROOT)} imports {each}"
        for file in sorted((ROOT / "pages").rglob("*.py"))
        for each in imports(file)
        for page in NAMES
        if within(each, f"pages.{page}") and page not in file.parts
    ]
    assert [] == wrong


IMPORTED = r"^ *from \S+ import (\([^)]*\)|.*)$"


def test_tests_import_no_private_name():
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for names in re.findall(IMPORTED, file.read_text("utf-8"), re.MULTILINE)
        for name in re.findall(r"(?<![\w.])_(?!_)\w+", names)
    ]
    assert [] == wrong


def test_the_core_neither_draws_pages_nor_pickles():
    banned = ("streamlit", "pages", "pickle", "cloudpickle", "marshal", "dill", "shelve")
    for module, file in FILES.items():
        found = [name for name in imports(file) if any(within(name, b) for b in banned)]
        if module == "poskernel_core.cli.serving":
            found = [name for name in found if not within(name, "streamlit.web.cli")]
        assert [] == found, file


def test_package_offers_what_it_lists():
    assert not hasattr(poskernel_core, "no_such_name")
    assert all(hasattr(poskernel_core, name) for name in poskernel_core.__all__)


def test_error_tree():
    from poskernel_core.common import errors

    for name, found in vars(errors).items():
        if isinstance(found, type):
            assert issubclass(found, errors.PosKernelError)
            assert found is errors.by_name(name)
    assert errors.ComputeFailed is errors.by_name("KeyError") is errors.by_name("by_name")
