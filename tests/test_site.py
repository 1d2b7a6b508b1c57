"""The documentation's site: built without a dead link, from its own files alone."""

import re
import shutil
import subprocess
import sys

import pytest

from poskernel_core.ledger.published import figures_of, read_figures
from tests.support import ROOT
from tools import posts

pytest.importorskip("zensical")


@pytest.fixture
def checkout(tmp_path):
    """What the site is made of, in a folder of its own."""
    for name in ("tools", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for file in [*ROOT.glob("*.md"), ROOT / "llms.txt", ROOT / "zensical.toml"]:
        shutil.copy(file, tmp_path)
    for name in ("poskernel_core", "pages"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def built(folder):
    """Build the site; return the exit status and what was said."""
    done = subprocess.run(
        [sys.executable, folder / "tools" / "site.py"], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_the_site_is_built(checkout):
    """Every page of the documentation is there, can be found, and holds no formula undrawn."""
    page = checkout / "docs" / "tutorial.md"
    page.write_text(page.read_text("utf-8") + "\nThe area $x^2 < y$ as a formula.\n", "utf-8")
    status, said = built(checkout)

    assert (0, "") == (status, "" if "pages in" in said else said)
    site = checkout / "build" / "site"
    for file in (checkout / "docs").rglob("*.md"):
        place = file.relative_to(checkout / "docs").with_suffix(".html")
        assert (site / str(place).replace("README", "index")).is_file(), place
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in (site / "tutorial.html").read_text("utf-8")
    for each in site.rglob("*.html"):
        assert not re.search(r'class="arithmatex"', each.read_text("utf-8"))
        assert "<!-- ledger:" not in each.read_text("utf-8")
    assert "positional kernel" in (site / "search.json").read_text("utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)", (site / "llms.txt").read_text("utf-8")):
        assert (site / link).is_file(), link
    agreed = (site / "posts" / "positional-kernels.html").read_text("utf-8")
    assert 3 == agreed.count("<td>agrees</td>")
    assert 2 == agreed.count("<td>[local, local, local]</td>")


WRONG = {
    "a dead link": ("[there](how-to/nowhere.md)", "nowhere.md"),
    "a dead anchor": ("[there](how-to/models.md#nowhere)", "nowhere"),
    "a formula that cannot be drawn": (r"The $\nosuch{x}$ of it.", r"\nosuch"),
    "a picture from elsewhere": ("![it](https://lab.org/it.png)", "https://lab.org/it.png"),
    "a table of no source": ("<!-- ledger: Nobody's post -->", "Nobody's post"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_page_is_said(checkout, case):
    text, named = WRONG[case]
    page = checkout / "docs" / "tutorial.md"
    page.write_text(f"{page.read_text('utf-8')}\n{text}\n", "utf-8")
    status, said = built(checkout)

    assert 1 == status
    assert named in said


def test_a_page_in_no_list_is_named(checkout):
    (checkout / "docs" / "how-to" / "alone.md").write_text("# Alone\n", "utf-8")

    assert (1, "docs/index.md does not name: how-to/alone.md\n") == built(checkout)


def test_every_row_of_the_ledger_is_on_one_page():
    """A post's rows are on its page under its title, the others on the page about the ledger."""
    texts = {file: file.read_text("utf-8") for file in (ROOT / "docs").rglob("*.md")}
    marked = [(file, start) for file in texts for start in posts.MARKER.findall(texts[file])]
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
    posts.computed.cache_clear()
    yield lambda on: monkeypatch.setenv("POSKERNEL_SHIPPED", str(int(on)))
    posts.computed.cache_clear()


def test_a_part_of_gpt2_answers_all_rows_that_it_can(shipped):
    shipped(True)
    asked = [each.id for each in figures_of("gpt2") if not each.needs]

    assert asked == [*posts.computed()]
    assert {"agrees"} == {each.verdict for each in posts.computed().values()}
    for figure in read_figures():
        rows = posts.table(figure.source).splitlines()
        cells = next(row for row in rows if row.startswith(f"| {figure.figure} |")).split(" | ")
        assert (figure.id in asked) == (cells[-1] == "agrees |")
        assert (figure.id in asked) != cells[-1].startswith("needs `"), figure.id


def test_nothing_is_computed_for_the_site(shipped):
    shipped(False)

    with pytest.raises(SystemExit, match="gpt2-small-layer0 lack etc"):
        posts.table("Positional kernels")


def test_a_table_says_what_was_published_and_what_is_missing(shipped):
    """Written out by hand from the file of figures."""
    shipped(True)
    lines = posts.table("Contextual attention heads").splitlines()

    assert "| Layer 0's head 11: miscellaneous | [other] |  | exact | needs `gpt2` |" == lines[5]
    assert (
        "Ours come from the shipped results of `gpt2-small-layer0`. Rows without ours: "
        "`poskernel reproduce gpt2`." == lines[-1]
    )
    assert "| 12 × 12 numbers |  | 0.03 + 15 % |" in posts.table("TransformerLens")
