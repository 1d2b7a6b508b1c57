"""The documentation's site: built without a dead link, from its own files alone."""

import re
import shutil
import subprocess
import sys

import pytest

from poskernel_core.ledger.published import figures_of, read_figures
from tests.support import ROOT
from tools import screenshots

pytest.importorskip("zensical")
site = pytest.importorskip("tools.site")


@pytest.fixture
def checkout(tmp_path):
    """What the site is made of, in a folder of its own."""
    for name in ("tools", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for file in [*ROOT.glob("*.md"), ROOT / "llms.txt", ROOT / "zensical.toml"]:
        shutil.copy(file, tmp_path)
    for name in ("poskernel_core", "pages", "serving"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_the_site_is_built(checkout):
    """Every page of the documentation is there, can be found, and holds no formula undrawn."""
    page = checkout / "docs" / "tutorial.md"
    page.write_text(page.read_text("utf-8") + "\nThe area $x^2 < y$ as a formula.\n", "utf-8")
    script = [sys.executable, checkout / "tools" / "site.py", "--no-pictures"]
    done = subprocess.run(script, capture_output=True, text=True)

    assert (0, "") == (done.returncode, done.stderr)
    made = checkout / "build" / "site"
    for file in (checkout / "docs").rglob("*.md"):
        place = file.relative_to(checkout / "docs").with_suffix(".html")
        assert (made / str(place).replace("README", "index")).is_file(), place
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in (made / "tutorial.html").read_text("utf-8")
    for each in made.rglob("*.html"):
        assert not re.search(r'class="arithmatex"', each.read_text("utf-8"))
        assert "<!-- ledger:" not in each.read_text("utf-8")
    assert "positional kernel" in (made / "search.json").read_text("utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)", (made / "llms.txt").read_text("utf-8")):
        assert (made / link).is_file(), link
    agreed = (made / "posts" / "positional-kernels.html").read_text("utf-8")
    assert 3 == agreed.count("<td>agrees</td>")
    assert 2 == agreed.count("<td>[local, local, local]</td>")


@pytest.fixture
def build(checkout, monkeypatch):
    """Build that site here."""
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    for name, place in (
        ("ROOT", "."), ("SOURCE", "build/site-source"), ("SITE", "build/site"),
        ("CONFIG", "build/zensical.toml"), ("PICTURES", "build/screenshots"),
    ):  # fmt: skip
        monkeypatch.setattr(site, name, checkout / place)
    monkeypatch.setattr(screenshots, "take_all", lambda *_: False)
    return site.main


PICTURES = re.compile(r'<a href="(http://localhost:8501/[^"]*)"><img [^>]*src="([^"]*)"')


@pytest.mark.parametrize("browser", [True, False])
def test_pictures(checkout, build, monkeypatch, browser, capsys):
    """They are taken anew; without a browser their words are the links, and the site says so."""
    made, stale = checkout / "build" / "site", site.PICTURES / "map-of-sinks.png"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of an earlier version")

    def take_all(shots, folder):
        folder.mkdir()
        for each in shots if browser else ():
            shutil.copy(ROOT / "docs" / "screenshots" / "etc-heatmap.png",
                        folder / f"{each.name}.png")  # fmt: skip
        return browser

    monkeypatch.setattr(screenshots, "take_all", take_all)
    build()
    pages = {each: each.read_text("utf-8") for each in made.rglob("*.html")}
    shown = [(each, *pair) for each, text in pages.items() for pair in PICTURES.findall(text)]
    assert all((each.parent / source).is_file() for each, _, source in shown)
    assert (len(screenshots.shots(readme=False)) <= len(shown) - 3) == browser
    assert browser == (made / "screenshots" / stale.name).is_file()
    assert browser != ("built without a browser" in pages[made / "index.html"])
    assert browser != ("without pictures: these need a browser" in capsys.readouterr().out)
    words = "The effective token count of every head of SmolLM2-135M-Instruct</a>"
    assert browser != (words in pages[made / "concepts" / "heads-of-smollm2-135m.html"])


def test_what_is_wrong_with_links_is_said(checkout, build):
    page = checkout / "docs" / "tutorial.md"
    wrong = ("how-to/nowhere.md", "how-to/models.md#no-such-place")
    links = "".join(f"\n[there]({link})\n" for link in wrong)
    page.write_text(page.read_text("utf-8") + links, "utf-8")

    with pytest.raises(SystemExit, match=r"(?s)nowhere\.md.*no-such-place|no-such-place.*nowhere"):
        build()


def test_a_page_in_no_list_is_named(checkout, build):
    (checkout / "docs" / "how-to" / "alone.md").write_text("# Alone\n", "utf-8")

    with pytest.raises(SystemExit, match=r"^docs/index\.md does not name: how-to/alone\.md$"):
        build()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (r'<span class="arithmatex">\(\nosuch{x}\)</span>', r"\nosuch"),
        ('<img alt="it" src="https://lab.org/it.png">', "https://lab.org/it.png"),
    ],
)
def test_what_is_wrong_with_a_page_is_said(tmp_path, wrong, named):
    (tmp_path / "a.html").write_text(f"<p>{wrong}</p>")
    with pytest.raises(SystemExit, match=re.escape(named)):
        site.finished(tmp_path / "a.html")


def test_a_table_of_no_source():
    with pytest.raises(SystemExit, match="Nobody's post"):
        site.filled("<!-- ledger: Nobody's post -->")


def test_every_row_of_the_ledger_is_on_one_page():
    """A post's rows are on its page under its title, the others on the page about the ledger."""
    texts = {file: file.read_text("utf-8") for file in (ROOT / "docs").rglob("*.md")}
    marked = [(file, start) for file in texts for start in site.MARKER.findall(texts[file])]
    for figure in read_figures():
        on = [file for file, start in marked if figure.source.startswith(start)]
        assert 1 == len(on), figure.id
        title = re.search(r"^# (.*)$", texts[on[0]], re.MULTILINE)[1]
        if on[0].parent.name == "posts":
            assert figure.source.startswith(title)
        else:
            assert "trust.md" == on[0].name


@pytest.fixture
def shipped(monkeypatch):
    """Turn the shipped results on or off; what was looked up is forgotten before and after."""
    site.computed.cache_clear()
    yield lambda on: monkeypatch.setenv("POSKERNEL_SHIPPED", str(int(on)))
    site.computed.cache_clear()


def test_a_part_of_gpt2_answers_all_rows_that_it_can(shipped):
    shipped(True)
    asked = [each.id for each in figures_of("gpt2") if not each.needs]

    assert asked == [*site.computed()]
    assert {"agrees"} == {each.verdict for each in site.computed().values()}
    for figure in read_figures():
        rows = site.table(figure.source).splitlines()
        cells = next(row for row in rows if row.startswith(f"| {figure.figure} |")).split(" | ")
        assert (figure.id in asked) == (cells[-1] == "agrees |")
        assert (figure.id in asked) != cells[-1].startswith("needs `"), figure.id


def test_nothing_is_computed_for_the_site(shipped):
    shipped(False)

    with pytest.raises(SystemExit, match="gpt2-small-layer0 lack etc"):
        site.table("Positional kernels")


def test_a_table_says_what_was_published_and_what_is_missing(shipped):
    """Written out by hand from the file of figures."""
    shipped(True)
    lines = site.table("Contextual attention heads").splitlines()

    assert "| Layer 0's head 11: miscellaneous | [other] |  | exact | needs `gpt2` |" == lines[5]
    assert (
        "Ours come from the shipped results of `gpt2-small-layer0`. Rows without ours: "
        "`poskernel reproduce gpt2`." == lines[-1]
    )
    assert "| 12 × 12 numbers |  | 0.03 + 15 % |" in site.table("TransformerLens")
