"""The generated reference: whole, with links that lead somewhere, well-formed for a site."""

import re
import shutil

import pytest

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.cli.main import PROGRAM
from poskernel_core.common import errors
from poskernel_core.common.errors import BadRequest, PosKernelError
from poskernel_core.common.settings import Settings, variable
from tests.support.server import ROOT
from tests.test_docs import BLOCK, lost_links
from tools import reference

BAR = re.compile(r"(?<!\\)\|")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The reference among the documentation, as on a site."""
    docs = tmp_path_factory.mktemp("site") / "docs"
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("*.png", "*.ipynb"))
    before = {*docs.rglob("*.md")}
    reference.main(docs / "reference")
    return docs / "reference", {*docs.rglob("*.md")} - before


@pytest.fixture(scope="module")
def written(folder):
    root, files = folder
    return {str(file.relative_to(root)): file.read_text("utf-8") for file in files}


def test_links_lead_somewhere(folder):
    for file in folder[1]:
        assert [] == lost_links(file), file.name


def test_formulas_and_tables_are_well_formed(written):
    """Dollars come in pairs without blanks within, and every row has as many cells as its table."""
    for name, text in written.items():
        plain = re.sub(r"`[^`]*`", "", BLOCK.sub("", text))
        for paragraph in plain.split("\n\n"):
            assert 0 == paragraph.count("$") % 2, (name, paragraph)
            for formula in re.findall(r"\$([^$]*)\$", paragraph):
                assert formula == formula.strip() != "", (name, formula)
                assert formula.count("{") == formula.count("}"), (name, formula)
        for table in re.findall(r"(?:^\|.*\n)+", BLOCK.sub("", text), re.MULTILINE):
            head, rule, *rows = table.splitlines()
            assert rows, (name, head)
            assert {len(BAR.findall(head))} == {len(BAR.findall(row)) for row in (rule, *rows)}
        assert re.search(r"\A<!--.*-->\n\n# \w", text), name
        assert "None |" not in text.replace("`None` |", ""), name


def test_a_bar_does_not_end_a_cell():
    assert r"a \| b, $\vert u\vert $" == reference.cell("a | b,\n$|u|$")


@pytest.mark.parametrize("question", ANALYSES.values(), ids=lambda question: question.name)
def test_every_question(written, question):
    page = written[f"questions/{question.name}.md"]

    for part in ("Formula", "Choices", "Limits", "Source"):
        assert f"**{part}.** " in page
    for each in (*question.values, *question.texts):
        (row,) = re.findall(
            rf"^\|(?=[^|]*`{each.name}`)(.*)\|$", page.partition("## Param")[0], re.M
        )
        _, axes, unit, error, _ = (cell.strip() for cell in BAR.split(row))
        assert (", ".join(each.axes), "yes" if each.has_error else "") == (axes, error)
        assert each.unit == unit.replace(r"\vert ", "|")
    for name in question.params.model_fields:
        assert f"\n| `{name}` | " in page.partition("## Parameters")[2]
    for each in question.measures:
        assert f"\n| {each.title} | `{each.value}` | " in page.partition("## Measures")[2]


def test_by_hand(written):
    etc = written["questions/etc.md"]
    assert "| `skip` | `4` | 0 to 32 | first key positions left out |" in etc
    assert "| `kind` | layer, head, query | kind |  | local, slow decay or uniform (local, " in etc
    assert "[Map](../../concepts/pages.md#map)" in etc
    assert "| `scale` | `'token'` | token, " in written["questions/neuron.md"]
    assert r"$\vert u\vert ^2$" in written["questions/tangent.md"]
    settings = written["settings.md"]
    assert (
        "| `POSKERNEL_MAX_JOBS` | computations of one client that wait or run | `96` | " in settings
    )
    assert "above 0 | 32 |" in settings
    assert "| `prompts` | Stream measured on |" in written["addresses.md"]
    assert "| `kinds` | Show kinds |" in written["addresses.md"]
    assert "| `stage` | Changed |" in written["addresses.md"]
    assert "No analysis …: expected one of … names, such as …." in written["errors.md"]


def test_every_field_that_a_page_names_is_in_the_addresses(written):
    for file in (ROOT / "pages").rglob("*.py"):
        for key in re.findall(r'\bfitted\w*\(\s*"(\w+)"', file.read_text("utf-8")):
            assert f"\n| `{key}` | " in written["addresses.md"], (file, key)


def test_whole(written):
    """Every command, public name, setting and error is there."""
    for name in PROGRAM.commands:
        assert f"## {name}\n\n```text\nUsage: poskernel {name} " in written["commands.md"]
    for name in pk.__all__:
        stub = r"```python\n(@dataclass.*\n)?(class|def) "
        assert re.search(rf"{stub}{name}\b", written["interface.md"]), name
    for name in Settings.model_fields:
        assert f"| `{variable(name)}` | " in written["settings.md"]
    raised = [each for each in vars(errors).values() if isinstance(each, type)]
    for each in raised:
        code = f"Exit code {2 if issubclass(each, BadRequest) else 1}"
        section = written["errors.md"].partition(f"## {each.__name__}\n")[2].partition("\n## ")[0]
        assert code in section
        assert each is PosKernelError or each.__mro__[1].__name__ in section
    assert all(f"](questions/{name}.md)" in written["interface.md"] for name in ANALYSES)
