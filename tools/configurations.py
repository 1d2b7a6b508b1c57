"""Read the configurations of the bundled models, for machines without transformers.

`python tools/configurations.py` writes `poskernel_core/demo/configurations.json`.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from poskernel_core.common.errors import BadArchive
from poskernel_core.models.configuration import SHIPPED, digest, model_type
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.models.stored import RESULTS
from poskernel_core.models.stored import read as read_results


def bundled() -> dict[str, Any]:
    """Return the geometry of every bundled model's configuration, by its hash."""
    from poskernel_core.forward.configuration import read as read_geometry

    files = [file for folder in BUNDLED_MODELS.values() for file in folder.rglob("config.json")]
    configs = [json.loads(file.read_text("utf-8")) for file in files]
    for file in RESULTS.iterdir():
        with suppress(BadArchive):  # without a model of their own
            configs.append(dict(read_results(file).config))
    texts = {json.dumps(each, sort_keys=True): each for each in configs}
    return {
        digest(text): read_geometry("a bundled model", config).as_json()
        for text, config in sorted(texts.items())
        if model_type(config) != "attn-only"
    }


if __name__ == "__main__":
    SHIPPED.write_text(json.dumps(bundled()) + "\n", encoding="utf-8")
