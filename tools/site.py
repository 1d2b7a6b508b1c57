"""Build the documentation's site in `build/site`: the pages of `docs/`, and what the code declares.

    python tools/site.py [--no-pictures]

Takes the pictures of the documentation (`tools/screenshots.py`), so that they show the pages of
today; without a browser the site has links in their place, and says so. Copies `docs/` and the
texts about the project to `build/site-source`, with the tables of the reproduction ledger filled in
and the reference that the declarations give (`tools/reference.py`), and has zensical build them.
Our numbers in the ledger come from the results that ship with a part of GPT-2: no model runs. The
navigation is the list of `docs/index.md`, in its order, and the reference. It ends with an error if
a link is dead, if a page is in no list, or if a page would load anything from elsewhere. Formulas
become MathML, which browsers draw themselves. For programs there are `llms.txt`, and each page as
Markdown beside it.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import latex2mathml.converter
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from poskernel_core.common.result import Result
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import Engine
from poskernel_core.ledger.compare import Checked, brief, tolerance_text
from poskernel_core.ledger.published import PublishedFigure, figures_of, read_figures
from poskernel_core.ledger.reproduce import compare, published_name
from poskernel_core.storage.store import Store
from tools import reference

SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"
PICTURES = ROOT / "build" / "screenshots"
CONFIG = ROOT / "build" / "zensical.toml"
NO_PICTURES = (
    "*This site was built without a browser: in place of most pictures there are links to the "
    "dashboard.*"
)
PROJECT = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Files of the checkout's root that are pages of the site."""

Nav = dict[str, list[str]]

LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.DOTALL)
LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="((?:https?:)?//[^"]+)"')
COLOUR = re.compile(r"\x1b\[[\d;]*m")
CANONICAL = re.compile(r'<link rel="(?:canonical|edit)"[^>]*>')
PART = "gpt2-small-layer0"
MARKER = re.compile(r"^<!-- ledger: (.+) -->$", re.MULTILINE)
HEAD = "| figure | published | ours | tolerance | verdict |\n|---|---|---|---|---|"


def main(*, pictures: bool = True) -> None:
    for folder in (SOURCE, SITE, PICTURES):
        shutil.rmtree(folder, ignore_errors=True)
    taken = pictures and take_pictures()
    known = {each.resolve(): place(each) for each in sources()}
    for picture in PICTURES.glob("*.png"):
        known[ROOT / "docs" / "screenshots" / picture.name] = Path("screenshots", picture.name)
    for file, path in known.items():
        target = SOURCE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            target.write_text(moved(filled(file.read_text("utf-8")), file, known), "utf-8")
        else:
            taken_now = PICTURES / file.name
            shutil.copyfile(taken_now if taken_now.exists() else file, target)
    if not taken:
        index = SOURCE / "index.md"
        index.write_text(index.read_text("utf-8").replace("\n## ", f"\n{NO_PICTURES}\n\n## ", 1))
    reference.main(SOURCE / "reference")
    listed = navigation()
    unnamed = sorted(
        {str(each.relative_to(SOURCE)) for each in SOURCE.rglob("*.md")}
        - {page for pages in listed.values() for page in pages}
    )
    listed["Reference"] += [each for each in unnamed if re.match(r"reference/\w+\.md", each)]
    listed["Questions"] = [each for each in unnamed if each.startswith("reference/questions/")]
    if lost := [each for each in unnamed if not each.startswith("reference/")]:
        sys.exit(f"docs/index.md does not name: {', '.join(lost)}")
    config = (ROOT / "zensical.toml").read_text("utf-8")
    nav = ", ".join(f"{{ {json.dumps(name)} = {pages} }}" for name, pages in listed.items())
    config = config.replace("[project]\n", f"[project]\nnav = [{nav}]\n", 1)
    CONFIG.write_text(config, "utf-8")
    told = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", CONFIG],
        capture_output=True,
        text=True,
    )
    if told.returncode:
        sys.exit(COLOUR.sub("", told.stdout + told.stderr).partition("Traceback")[0])
    for page in SITE.rglob("*.html"):
        page.write_text(finished(page), "utf-8")
    for_programs()
    without = "" if taken else ", without pictures: these need a browser (Chromium or Chrome)"
    print(f"{sum(1 for _ in SITE.rglob('*.html'))} pages in {SITE}{without}")


def take_pictures() -> bool:
    """Take the pictures that are on the site alone; return False if there is no browser."""
    from tools import screenshots

    return screenshots.take_all(screenshots.shots(readme=False), PICTURES)


def finished(page: Path) -> str:
    """Return a page with its formulas drawn, or end with what it would load from elsewhere."""
    text = FORMULA.sub(drawn, page.read_text("utf-8"))
    if outside := LOADED.findall(CANONICAL.sub("", text)):
        sys.exit(f"{page} loads from elsewhere: {', '.join(outside)}")
    return text


def for_programs() -> None:
    """Write `llms.txt`, and the text of every page to where it links."""
    shutil.copytree(
        SOURCE,
        SITE,
        ignore=lambda _, names: {each for each in names if Path(each).suffix not in ("", ".md")},
        dirs_exist_ok=True,
    )
    about = (ROOT / "llms.txt").read_text("utf-8").partition("\n## ")[0]
    pages = (SOURCE / "index.md").read_text("utf-8").partition("\n## ")[2]
    whole = "[The whole interface on one page](reference/interface.md): Python, commands, questions"
    (SITE / "llms.txt").write_text(f"{about}\n* {whole}\n\n## {pages}", "utf-8")


def sources() -> list[Path]:
    """Return the files that the site is made of: pages, the pictures in them, examples to save."""
    docs = ROOT / "docs"
    pages = [*docs.rglob("*.md"), *(ROOT / name for name in PROJECT)]
    texts = "".join(each.read_text("utf-8") for each in pages)
    pictures = [each for each in docs.rglob("*.png") if each.name in texts]
    examples = [each for suffix in ("py", "toml") for each in docs.glob(f"examples/**/*.{suffix}")]
    return [*pages, *pictures, *examples, docs / "site.css"]


def place(file: Path) -> Path:
    if file.parent == ROOT:
        return Path("project", file.stem.lower() + ".md")
    return file.relative_to(ROOT / "docs")


def moved(text: str, file: Path, known: dict[Path, Path]) -> str:
    """Return a page with links to where its neighbours are on the site.

    A link to a file of the checkout that is not on the site becomes its name, and a picture that
    was not taken its words.
    """

    def link(found: re.Match[str]) -> str:
        words, (path, hash_, anchor) = found[1], found[2].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        asked = (file.parent / path).resolve()
        if asked in known:
            path = os.path.relpath(known[asked], place(file).parent)
        elif asked.exists():
            return words.strip("![]")
        elif asked.parent == ROOT / "docs" / "screenshots":
            return words.removesuffix("]").replace("![", "", 1)
        return f"{words}({path}{hash_}{anchor})"

    parts = re.split(r"(^```.*?^```$|`[^`\n]*`)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if n % 2 else LINK.sub(link, part) for n, part in enumerate(parts))


def navigation() -> Nav:
    """Return the pages by section, as `index.md` lists them; after a README, those beside it."""
    found: Nav = {"PosKernel": ["index.md"]}
    for section in (SOURCE / "index.md").read_text("utf-8").split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        pages = list[str]()
        for _, path in LINK.findall(text):
            pages.append(page := path.partition("#")[0])
            if page.endswith("README.md"):
                beside = sorted((SOURCE / page).parent.glob("*.md"))
                pages += [str(each.relative_to(SOURCE)) for each in beside]
        found[heading] = [*dict.fromkeys(page for page in pages if page.endswith(".md"))]
    return found


def drawn(found: re.Match[str]) -> str:
    """Return a formula as MathML, or end with the command that is not known."""
    display = "block" if found[2] == "[" else "inline"
    formula = html.unescape(found[3].strip()).replace(r"\arg", r"\operatorname{arg}")
    made: str = latex2mathml.converter.convert(formula, display=display)
    if unknown := re.search(r"\\\w+", made):
        sys.exit(f"A formula has {unknown[0]}, which latex2mathml does not know: {formula}")
    return made


def filled(text: str) -> str:
    """Return a page with a table in place of each `<!-- ledger: SOURCE -->`."""
    return MARKER.sub(lambda found: table(found[1]), text)


def table(source: str) -> str:
    """Return all rows of the ledger whose source begins so, and how to compute what is missing."""
    figures = [each for each in read_figures() if each.source.startswith(source)]
    if not figures:
        sys.exit(f"No source in the ledger begins with {source!r}.")
    ours = {each.id: computed().get(each.id) for each in figures}
    lacking = dict.fromkeys(
        f"`poskernel reproduce {e.models[0]}`" for e in figures if not ours[e.id]
    )
    told = [f"Ours come from the shipped results of `{PART}`."] if any(ours.values()) else []
    told += [f"Rows without ours: {', '.join(lacking)}."] if lacking else []
    return "\n".join([HEAD, *(row(each, ours[each.id]) for each in figures), "", " ".join(told)])


def row(figure: PublishedFigure, found: Checked | None) -> str:
    ours = brief(found.ours, found.errors) if found else ""
    verdict = found.verdict if found else f"needs `{min(figure.models, key=len)}`"
    sizes = np.shape(figure.published)
    published = f"{sizes[0]} × {sizes[1]} numbers" if sizes[1:] else brief(figure.published)
    cells = (figure.figure, published, ours, tolerance_text(figure), verdict)
    return f"| {' | '.join(cells)} |"


@cache
def computed() -> dict[str, Checked]:
    """Return the rows that the shipped results answer, by id: all that the part of GPT-2 has."""
    with tempfile.TemporaryDirectory() as folder, closing(Engine(Store(Path(folder)))) as engine:

        def answer(asked: Request) -> Result:
            found = engine.cached(asked)
            return found or sys.exit(f"The shipped results of {PART} lack {asked.analysis}.")

        found = compare(PART, figures_of(published_name(PART)), answer)
        return {each.figure.id: each for each in found if not each.why}


if __name__ == "__main__":
    os.environ["POSKERNEL_SHIPPED"] = "1"
    main(pictures="--no-pictures" not in sys.argv)
