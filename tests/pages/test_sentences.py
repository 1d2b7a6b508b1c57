"""What a page may show: sentences that speak of no command-line option."""

import ast
import re
from pathlib import Path

from tests.support import ROOT

COMMAND_LINE = ROOT / "poskernel_core" / "cli"
FILES = sorted(
    file
    for folder in ("poskernel_core", "pages")
    for file in (ROOT / folder).rglob("*.py")
    if COMMAND_LINE not in file.parents
)
OPTION = re.compile(
    r"(?<![\w-])--(?!server\.|no-deps )[a-z]"
)  # but Streamlit's server's, and pip's


def sentences(file: Path) -> list[str]:
    """Every text of a file that is no docstring."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documents = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents
    ]


def test_no_sentence_names_an_option():
    """Options belong to the command line; errors reach pages as they are."""
    assert [] == [text for file in FILES for text in sentences(file) if OPTION.search(text)]
