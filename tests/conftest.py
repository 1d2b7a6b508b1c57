"""What every test has: run-time checks of all shapes, no network, the tiny models, the browser."""

import contextlib
import functools
import os
import shutil

# Before anything imports huggingface_hub, which reads these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Results that come with the project would hide what is computed; tests of them switch them on.
os.environ["POSKERNEL_SHIPPED"] = "0"

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
import transformers.modeling_utils
import transformers.models.auto.modeling_auto  # noqa: F401  (see below: before the hook)
from hypothesis import settings
from jaxtyping import install_import_hook
from playwright.sync_api import Browser, BrowserContext
from streamlit.components.v2 import manifest_scanner

import tests.support.typecheck  # noqa: F401  (the hook below looks it up by name)
from tests.support import ROOT, Made
from tests.support.browser import find_browser
from tests.support.server import Server, serve

# Before anything imports poskernel_core: each array argument and result is checked from here on.
# What is first imported by a module under the hook is compiled anew, and be it a large package:
# these were imported above.
install_import_hook("poskernel_core", "tests.support.typecheck.checked")

# A page that is run as a script looks through all installed packages for parts of pages: half a
# second each time, and always the same.
manifest_scanner.scan_component_manifests = functools.cache(
    manifest_scanner.scan_component_manifests
)

EXAMPLES = 100 if os.environ.get("POSKERNEL_EVERY_FAMILY") else 40
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.load_profile("steady")

torch.set_num_threads(1)  # the models are tiny: a second thread costs more than it helps

SHARED = ROOT.parent / "shared"
WATCH = ROOT / "tests/support/watch.js"
SITE = "http://127.0.0.1"  # of every server of the tests, whatever its port
BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--process-per-site",
)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in use, where shapes are not checked by their annotations but by our own sentences."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def near_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's worker is a thread of this process, which has torch already."""
    from poskernel_core.engine import process
    from tests.support.near_worker import NearWorker

    monkeypatch.setattr(process, "subprocess", NearWorker.module())


@pytest.fixture(scope="module")
def near_workers() -> Iterator[None]:
    """The same for all tests of a file, and for the results that they share."""
    from poskernel_core.engine import process
    from tests.support.near_worker import NearWorker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "subprocess", NearWorker.module())
        yield


@pytest.fixture(scope="session")
def model_dirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory for each tiny model: of all architectures, and of families that are asked for."""
    from tests.support.builders.families import ARCHITECTURES, EVERY_MODEL

    root = tmp_path_factory.mktemp("models")
    made = Made(lambda name: EVERY_MODEL[name].build(root / name))
    made.update({name: made[name] for name in ARCHITECTURES})
    return made


@pytest.fixture(scope="session")
def loaded(model_dirs: dict[str, Path]) -> dict[str, Any]:
    """Each of these models, loaded when it is first asked for."""
    from poskernel_core.forward import loading
    from poskernel_core.models import catalog

    return Made(lambda name: loading.load(catalog.locate(str(model_dirs[name])), "cpu"))


@pytest.fixture(scope="session")
def request_of(model_dirs: dict[str, Path]) -> Callable[..., Any]:
    """A request for the heat map with some skip."""
    from poskernel_core.common.specs import CorpusSpec, Request
    from poskernel_core.engine.engine import describe_run
    from poskernel_core.engine.plan import make_plan

    run = describe_run(
        str(model_dirs["gpt2"]), corpus=CorpusSpec(name="text", text="She sells."), windows=7
    )
    return lambda skip=4: make_plan(Request(analysis="etc", run=run, params={"skip": skip}))


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The workers that engines start: stand-ins, which say what the test tells them to say."""
    from poskernel_core.engine import process
    from tests.support.fake_worker import FakeWorker

    made: list[FakeWorker] = []
    monkeypatch.setattr(process.subprocess, "Popen", lambda *_, **__: FakeWorker(made))
    yield made
    for worker in made:
        for pipe in (worker.told, worker.mouth, worker.stdin):
            with contextlib.suppress(OSError):
                pipe.close()


@pytest.fixture
def desk(fresh_engine: Any, workers: list[Any], request_of: Callable[..., Any]) -> Any:
    """An engine on an empty store, with workers that are stand-ins."""
    from tests.support.fake_worker import Desk

    return Desk(fresh_engine, workers, request_of)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An engine on a store of its own, for all tests of a file."""
    yield from opened_engine(tmp_path_factory.mktemp("store"))


@pytest.fixture
def fresh_engine(tmp_path: Path) -> Iterator[Any]:
    """An engine on an empty store."""
    yield from opened_engine(tmp_path)


def opened_engine(folder: Path) -> Iterator[Any]:
    """An engine on the store in a folder, closed in the end."""
    from poskernel_core.engine.engine import Engine
    from poskernel_core.storage.store import Store

    made = Engine(Store(folder))
    yield made
    made.close()
    made.store.close()


@pytest.fixture
def shipped_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An engine on an empty store, with what comes with the project beneath it."""
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    yield from opened_engine(tmp_path)


@pytest.fixture(scope="session")
def reading_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all tests that only read what comes with the project: it is put together once."""
    opened = opened_engine(tmp_path_factory.mktemp("read"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSKERNEL_SHIPPED", "1")
        engine = next(opened)
    yield engine
    assert [] == [*opened]


@pytest.fixture
def shipped(reading_engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Pages run as scripts have what comes with the project, and ask for nothing else."""
    from pages.shared.jobs import results

    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    monkeypatch.setattr(results, "engine", lambda: reading_engine)
    yield reading_engine
    assert reading_engine.worker_pid is None


@pytest.fixture
def shipped_only(shipped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And they compute nothing."""
    monkeypatch.setenv("POSKERNEL_READ_ONLY", "1")


@pytest.fixture
def computed(engine: Any, near_workers: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pages run as scripts have what they ask for computed before they go on."""
    from pages.shared.jobs import results

    monkeypatch.setattr(results, "engine", lambda: engine)
    monkeypatch.setattr(results, "PATIENCE", 300.0)
    return engine


@pytest.fixture
def refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., str]:
    """Run a command that must end with code 2, one sentence, no worker, and within seconds."""
    from poskernel_core.cli import main as cli
    from poskernel_core.engine import engine

    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "Child", None)

    def one(*arguments: object) -> str:
        began = sum(os.times()[:4])  # of a processor, that of processes waited for included
        code = cli.main([str(each) for each in arguments])
        out, err = capsys.readouterr()
        assert (2, "", 1) == (code, out, err.count("\n"))
        assert len(err) <= 1000
        assert "Traceback" not in err
        assert err.rstrip("\n").isprintable()
        assert sum(os.times()[:4]) - began < 10
        return err

    return one


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
def visitor(browser: Browser, browser_context_args: dict[str, Any]) -> Iterator[BrowserContext]:
    """Somebody whose browser has read the app's own scripts before: pages open at once.

    An empty page of the site stays open: the process that draws the site, with the scripts that it
    has compiled, lives as long as any of the site's pages.
    """
    context = browser.new_context(**browser_context_args)
    context.add_init_script(path=WATCH)
    first = context.new_page()
    first.route("**", lambda route: route.fulfill(body=""))
    first.goto(SITE)
    yield context
    context.close()


@pytest.fixture
def context(visitor: BrowserContext) -> Iterator[BrowserContext]:
    """A visitor; what a test opens is closed after it."""
    before = visitor.pages
    yield visitor
    for page in visitor.pages:
        if page not in before:
            page.close()


@pytest.fixture
def new_context(new_context: Callable[..., BrowserContext]) -> Callable[..., BrowserContext]:
    """Further visitors, who know nothing of each other."""

    def watched(**options: Any) -> BrowserContext:
        context = new_context(**options)
        context.add_init_script(path=WATCH)
        return context

    return watched


@pytest.fixture(scope="session")
def rotary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a tiny model with rotary positions, which the server offers too."""
    from tests.support.builders import llama

    return str(llama(tmp_path_factory.mktemp("rotary") / "llama"))


@pytest.fixture(scope="session")
def talking(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a demo model with a chat template."""
    from poskernel_core.models.curated import BUNDLED_MODELS
    from tests.support.builders.chat import with_template

    folder = tmp_path_factory.mktemp("talking") / "talking"
    shutil.copytree(BUNDLED_MODELS["demo-attn-2l"], folder)
    return with_template(folder)


@pytest.fixture(scope="session")
def training_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two checkpoints; in the second a head looks back."""
    from tests.analyses.training.test_over_training import checkpoint

    root = tmp_path_factory.mktemp("training")
    for step, gain in ((0, 0.0), (8, 1.0)):
        checkpoint(root, step, previous=gain)
    return root


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, rotary: str) -> Iterator[Server]:
    """The app in a process of its own; the standard results of 50 windows are in its cache."""
    from tests.support.near_worker import command_line_here

    root = tmp_path_factory.mktemp("server")
    command_line_here(root / "cache", "precompute", "demo-gpt2", "--windows", "50")
    with serve(root / "cache", root / "server.log", models=f"demo-gpt2,{rotary}") as started:
        yield started


@pytest.fixture(scope="session")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with what comes with the project, which computes nothing; this machine may frame."""
    root = tmp_path_factory.mktemp("still")
    settings = {
        "POSKERNEL_READ_ONLY": "1",
        "POSKERNEL_FRAME_ANCESTORS": "'self' http://localhost:*",
    }
    with serve(root / "cache", root / "server.log", shipped=True, settings=settings) as started:
        yield started
