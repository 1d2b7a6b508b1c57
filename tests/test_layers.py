"""Who may import whom, and what an import costs."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import poskernel_core

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "poskernel_core"
LIGHT = ("engine", "catalog", "corpora", "analyses", "cli", "api", "compute", "store", "archive")
HEAVY = ("torch", "transformers", "transformer_lens", "datasets", "streamlit", "pandas")
MODULES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in CORE.rglob("*.py")
    if file.name != "__main__.py"
)
# What lies below the store and the engine; `gather` stands above and feeds the store.
LOWER = (
    "models", "attn_only", "attention", "edits", "experiments", "corpora", "passes", "statistics",
    "analyses",
)  # fmt: skip
BANNED = {
    **dict.fromkeys(
        LOWER, ("poskernel_core.store", "poskernel_core.engine", "poskernel_core.worker")
    ),
    "shapes": ("poskernel_core",),
    "errors": ("poskernel_core",),
}


def imports(file):
    """Every module that a file names in an import, at its top or inside a function."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name, package):
    """Whether a module is a package, or lies in it."""
    return name == package or name.startswith(f"{package}.")


def files_of(layer):
    """The files of a module or sub-package of the core."""
    folder = CORE / layer
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [CORE / f"{layer}.py"]


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
    """All that a page needs to show a stored result is imported without torch and its like."""
    assert "poskernel_core.engine" in loaded
    assert [] == [name for name in loaded if within(name, package)]


@pytest.mark.parametrize("layer", BANNED)
def test_lower_layers(layer):
    """Models, corpora, passes, statistics and analyses know neither store nor engine."""
    files = files_of(layer)

    assert files
    for file in files:
        named = list(imports(file))
        for banned in BANNED[layer]:
            assert [] == [name for name in named if within(name, banned)], file


def test_config_stands_on_errors_alone():
    """Of ours, the descriptions of runs import the errors and nothing else."""
    own = {name for name in imports(CORE / "config.py") if within(name, "poskernel_core")}

    assert all(within(name, "poskernel_core.errors") for name in own)


@pytest.mark.parametrize("file", sorted(CORE.rglob("*.py")), ids=lambda f: f.name)
def test_the_core_draws_nothing(file):
    """No module of the core imports streamlit, or pickles."""
    banned = ("streamlit", "pickle", "cloudpickle", "marshal", "dill", "shelve")

    assert [] == [name for name in imports(file) if any(within(name, b) for b in banned)]


@pytest.mark.parametrize("file", sorted(CORE.rglob("*.py")), ids=lambda f: f.name)
def test_only_the_command_line_reaches_for_pages(file):
    """The core does not stand on the pages; the command line borrows their figures."""
    found = [name for name in imports(file) if within(name, "pages")]

    assert [] == found or file.name == "outputs.py"


@pytest.mark.parametrize("name", MODULES)
def test_public_names_exist(name):
    """What a module says that it offers is there, and each name once."""
    module = importlib.import_module(name)
    public = getattr(module, "__all__", [])

    assert len(public) == len(set(public))
    for each in public:
        assert hasattr(module, each), each


def test_package_offers_what_it_lists():
    """The package's names, its lazy table and its type-checking imports are the same list."""
    assert sorted(poskernel_core._HOMES) == sorted(poskernel_core.__all__)
    assert not hasattr(poskernel_core, "no_such_name")
    named = {
        alias.name
        for node in ast.walk(ast.parse((CORE / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and within(node.module, "poskernel_core")
        for alias in node.names
    }
    assert set(poskernel_core.__all__) == named


def test_error_tree():
    """Every error is public, a PosKernelError, and found again by its name."""
    from poskernel_core import errors

    for name in set(errors.__all__) - {"by_name"}:
        assert issubclass(getattr(errors, name), errors.PosKernelError)
        assert getattr(errors, name) is errors.by_name(name)
        assert name in errors.__doc__
    assert errors.ComputeFailed is errors.by_name("KeyError") is errors.by_name("by_name")
