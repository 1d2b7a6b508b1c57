"""What every test has: run-time checks of all shapes, no network, the tiny models, the browser."""

import os

# Before anything imports huggingface_hub, which reads these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Results that come with the project would hide what is computed; tests of them switch them on.
os.environ["POSKERNEL_SHIPPED"] = "0"

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

from tests.browser import find_browser
from tests.server import Server, command_line, serve

# Before anything imports poskernel_core: each array argument and result is checked from here on.
install_import_hook("poskernel_core", "beartype.beartype")

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)

SHARED = Path(__file__).resolve().parents[2] / "shared"
BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def model_dirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory in hub format for each tiny random model of `tests.builders`, built once."""
    from tests.builders import ARCHITECTURES

    root = tmp_path_factory.mktemp("models")
    return {name: build(root / name) for name, build in ARCHITECTURES.items()}


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder `shared` beside the checkout: real weights and texts that are not in the tree."""
    if not SHARED.is_dir():
        pytest.skip("the folder `shared` with real weights is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, object]) -> dict[str, object]:
    """Start the system's own Chromium or Chrome; without one, such tests are skipped."""
    executable = find_browser()
    if executable is None:
        pytest.skip("neither Chromium nor Google Chrome is installed")
    args = [*BROWSER_FLAGS]
    return {**browser_type_launch_args, "executable_path": executable, "args": args}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, object]) -> dict[str, object]:
    """Let the tests wait for functions of theirs, which the pages' policy would not evaluate."""
    return {**browser_context_args, "bypass_csp": True}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The app in a process of its own; the standard results of 50 windows are in its cache."""
    root = tmp_path_factory.mktemp("server")
    command_line(root / "cache", "precompute", "demo-gpt2", "--texts", "50")
    with serve(root / "cache", root / "server.log") as started:
        yield started
