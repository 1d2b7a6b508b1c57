"""The documentation's site: built without a dead link, from its own files alone."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.support import ROOT

pytest.importorskip("zensical")


@pytest.fixture
def checkout(tmp_path):
    """What the site is made of, in a folder of its own."""
    for name in ("tools", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for file in [*ROOT.glob("*.md"), ROOT / "zensical.toml"]:
        shutil.copy(file, tmp_path)
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
    assert "positional kernel" in (site / "search.json").read_text("utf-8")


WRONG = {
    "a dead link": ("[there](how-to/nowhere.md)", "nowhere.md"),
    "a dead anchor": ("[there](how-to/models.md#nowhere)", "nowhere"),
    "a picture from elsewhere": ("![it](https://lab.org/it.png)", "https://lab.org/it.png"),
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
