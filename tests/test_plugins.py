"""Questions and pages of other packages: found, kept apart, named where they cannot be used."""

import subprocess
import sys

import importlib_metadata  # noqa: F401  from here on it answers for all packages, as where dask is used
import numpy as np
import pytest
from playwright.sync_api import expect

import pages
import poskernel_core as pk
from poskernel_core import analyses
from poskernel_core.common import plugins
from poskernel_core.common.plugins import PAGES, QUESTIONS, load, package_of
from poskernel_core.common.specs import CorpusSpec, ModelSpec, Request, RunSpec
from tests.support import ROOT
from tests.support.server import environment, serve
from tests.support.visit import go, visit

EXAMPLE = ROOT / "docs" / "examples" / "poskernel-reach"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


QUESTION = """
from poskernel_core.analyses.base import Analysis, Params
from poskernel_core.common.result import outputs


class {0}(Analysis):
    name, params, values = "{0}", Params, outputs("x [layer]", "tokens", "a number")

    def compute(self, statistics, params, progress):
        return self.result(params, {{}})
"""
PAGE = "PLACE = 1\ndef page(selection): ..."


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Install a package whose entry point has a name and leads to a module of this text."""

    def installed(group, name, text, package="others", version="1.2"):
        site = tmp_path / f"{package}-{version}"
        about = site / f"{package}-{version}.dist-info"
        about.mkdir(parents=True)
        module = f"{package}_{name}"
        (site / f"{module}.py").write_text(text)
        (about / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
        (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return installed


@pytest.fixture
def found(monkeypatch):
    """Load what is installed as at the start; all that is found, while ours stay as they are."""
    ours = dict(analyses.ANALYSES)

    def loaded(group):
        monkeypatch.setattr(plugins, "PLUGINS", [])
        monkeypatch.setattr(analyses, "ANALYSES", dict(ours))
        monkeypatch.setattr(pages, "_ADDED", {})
        load(group, analyses.add_questions if group == QUESTIONS else pages.add_page)
        assert ours == {name: analyses.ANALYSES[name] for name in ours}
        return plugins.PLUGINS

    return loaded


def test_questions_are_added(offer, found):
    offer(QUESTIONS, "two", QUESTION.format("reach") + QUESTION.format("extent"))

    (plugin,) = found(QUESTIONS)

    assert ("others 1.2", ("reach", "extent"), "") == (plugin.package, plugin.gives, plugin.problem)
    assert ["others 1.2", ""] == [package_of("extent"), package_of("etc")]
    assert "reach" == analyses.find("reach").name


@pytest.mark.parametrize(
    ("group", "text", "problem"),
    [
        (QUESTIONS, "import no_such_module", "ModuleNotFoundError: No module named 'no_such_mod"),
        (QUESTIONS, "raise SystemExit(3)", "SystemExit: 3"),
        (QUESTIONS, "x = 1 +", "SyntaxError: invalid syntax"),
        (QUESTIONS, "", "ValueError: others_bad defines no question"),
        (QUESTIONS, QUESTION.format("mine") + QUESTION.format("Etc").replace('"Etc"', '"etc"'),
         "ValueError: the name etc is taken: choose another"),
        (PAGES, "", "ValueError: others_bad has no PLACE, or no function page(selection)"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_and_left_out(offer, found, group, text, problem):
    """The others are there; nothing of a package whose name is taken is."""
    offer(group, "bad", text)
    offer(group, "good", QUESTION.format("good") if group == QUESTIONS else PAGE, "sane")

    bad, well = found(group)

    assert bad.problem.startswith(problem)
    assert () == bad.gives
    assert ("", ("good",)) == (well.problem, well.gives)
    assert "mine" not in analyses.ANALYSES


def test_two_packages_with_one_name(offer, found):
    for package in ("second", "first"):
        offer(QUESTIONS, "a", QUESTION.format("reach"), package)

    first, second = found(QUESTIONS)

    assert ("first 1.2", "second 1.2") == (first.package, second.package)
    assert ["", True] == [first.problem, "is taken" in second.problem]


@pytest.mark.parametrize("name", ["etc_heatmap", "methods"])
def test_a_page_cannot_take_the_place_of_another(offer, found, name):
    offer(PAGES, name, PAGE)

    (plugin,) = found(PAGES)

    assert "is taken" in plugin.problem
    assert f"pages.{name}.page" == pages.module_of(name).__name__


def test_each_version_has_its_own_keys(offer, found):
    """Results of a plugin are never those of another version; the keys of ours stay."""
    run = RunSpec(model=ModelSpec(name="m"), corpus=CorpusSpec(), context=8, positions=(3,))

    def keys(version):
        offer(QUESTIONS, "a", QUESTION.format("reach"), version=version)
        found(QUESTIONS)
        return [Request(analysis=name, run=run).key for name in ("reach", "etc")]

    (old, etc), (new, again) = keys("1.0"), keys("1.1")

    assert old != new
    assert etc == again


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example, built and installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("plugin")
    build = ("wheel", "--no-deps", "--no-index", "--no-build-isolation", "-q", "-w", folder)
    subprocess.run([*PIP, *build, EXAMPLE], check=True)
    install = ("install", "--no-deps", "--no-index", "-q", "--target", folder / "site")
    subprocess.run([*PIP, *install, *folder.glob("*.whl")], check=True)
    return folder / "site"


@pytest.fixture
def run(installed, tmp_path):
    """Run a command with the example installed."""

    def done(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "poskernel_core", *arguments],
            cwd=ROOT, env=environment(tmp_path) | {"PYTHONPATH": str(installed)},
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    return done


@pytest.mark.slow
def test_the_example_answers(run, installed, found, monkeypatch, near_workers, engine):
    """Its numbers are the mean offsets of the kernels that we show, with errors."""
    assert "poskernel-reach 0.1.0" in run("plugins")
    monkeypatch.syspath_prepend(str(installed))
    found(QUESTIONS)
    asked = {"model": "demo-attn-2l", "context": 41, "windows": 20, "query": 37, "engine": engine}
    reach, kernel = (pk.show(name, **asked) for name in ("reach", "kernel"))

    value, error = reach.values["reach"], reach.errors["reach"]
    rows = np.nan_to_num(kernel.values["kernel"])[..., :38]
    assert np.allclose(rows @ np.arange(37, -1, -1), value, rtol=1e-5)
    assert np.all(error > 0)


@pytest.mark.slow
@pytest.mark.browser
def test_the_example_has_a_page(installed, tmp_path, page):
    """In the navigation, drawn like our own; its measure colours the grid."""
    settings = {"PYTHONPATH": str(installed)}
    with serve(tmp_path / "cache", tmp_path / "log", shipped=True, settings=settings) as server:
        visit(page, server.link("/", model="demo-attn-2l", context=64, head="L1H0"))
        go(page, "Reach")
        expect(page.get_by_role("heading", name="Reach of L1H0")).to_be_visible()
        expect(page.locator(".st-key-figure-reach .main-svg").first).to_be_visible()
        visit(page, server.link("/methods"))
        for kind in ("question", "page"):
            told = page.get_by_text(f"poskernel-reach 0.1.0 adds the {kind} reach.")
            expect(told).to_be_visible()
