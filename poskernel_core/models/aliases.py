"""The short model names of transformer_lens, such as ``gpt2-small`` and ``pythia-70m``."""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

TABLE = Path("tools", "model_registry", "data", "model_aliases.json")
"""The file with the names, relative to the transformer_lens package; read without importing it."""


def official_name(name: str) -> str:
    """Return the hub name for a short name (case-insensitive); return other names unchanged."""
    return _aliases().get(name.lower(), name)


@cache
def _aliases() -> dict[str, str]:
    found = find_spec("transformer_lens")
    folders = [] if found is None else found.submodule_search_locations or []
    for file in (Path(folder) / TABLE for folder in folders):
        if file.is_file():
            table = json.loads(file.read_text(encoding="utf-8"))["aliases"]
            return {alias.lower(): name for name, aliases in table.items() for alias in aliases}
    return {}
