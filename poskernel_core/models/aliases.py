"""The short model names of transformer_lens, such as ``gpt2-small`` and ``pythia-70m``."""

import json
from functools import cache

from poskernel_core.common.modules import installed_file

TABLE = "tools/model_registry/data/model_aliases.json"
"""The file with the names, in the transformer_lens package; read without importing it."""


def official_name(name: str) -> str:
    """Return the hub name for a short name (case-insensitive); return other names unchanged."""
    return _aliases().get(name.lower(), name)


@cache
def _aliases() -> dict[str, str]:
    file = installed_file("transformer_lens", TABLE)
    table = json.loads(file.read_text(encoding="utf-8"))["aliases"] if file else {}
    return {alias.lower(): name for name, aliases in table.items() for alias in aliases}
