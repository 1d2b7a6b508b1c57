"""References in docstrings lead somewhere."""

import ast
import re
from importlib import import_module
from pkgutil import resolve_name

from tests.support import ROOT

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):`~?([^`]*)`")
PARTS = ("poskernel_core", "pages", "serving", "bench", "tools")


def leads(name: str, *scopes: str) -> bool:
    """Whether a name is one of a module or class, or of a package above it."""
    for scope in scopes:
        try:
            resolve_name(f"{scope}.{name}".lstrip("."))
        except (ImportError, AttributeError, ValueError):
            continue
        return True
    return False


def documented(node: ast.AST, scope: str):
    """Yield every docstring below a node, with the class or module that it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            yield str(child.value.value), scope
        inner = f"{scope}.{child.name}" if isinstance(child, ast.ClassDef) else scope
        yield from documented(child, inner)


def test_every_reference_leads_somewhere():
    """From the class, the module, or a package above; from the root by its whole name."""
    dead, found = [], 0
    for file in sorted(file for part in PARTS for file in (ROOT / part).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if not ROLE.search(text):
            continue
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        import_module(module)
        for docstring, scope in documented(ast.parse(text), module):
            above = [scope.rsplit(".", up)[0] for up in range(scope.count(".") + 1)]
            for name in ROLE.findall(docstring):
                found += 1
                if not leads(name, "", *above):
                    dead.append((module, name))
    assert [] == dead
    assert found
