"""How the layers of a model use positions: as seen in the running model, kept for the pages.

When a model is loaded, its attention modules are probed
(:mod:`poskernel_core.forward.loading`). The outcome is kept under the model's fingerprint.
Until then, what the configuration lets expect is used.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from poskernel_core.common.atomic_write import write_file
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import parse_json
from poskernel_core.common.folders import default_directory
from poskernel_core.common.specs import digest
from poskernel_core.models.geometry import Geometry

ROTARY, ALIBI, LEARNED, NONE = "rotary", "ALiBi", "learned", "no"
BY_LENGTH = ("longrope", "su")
"""Scalings, next to those with "dynamic" in their names, whose angles depend on a text's length."""


class PositionUse(BaseModel):
    """How a running model uses positions.

    Attributes:
        embedded: whether the stream before the first layer depends on position.
        layers: what each layer's own attention adds: ``rotary``, ``ALiBi`` or ``no`` positions.
    """

    model_config = ConfigDict(frozen=True)

    embedded: bool
    layers: tuple[str, ...]

    def corrected(self, geometry: Geometry) -> Geometry:
        """Return the geometry with these positions."""
        if len(self.layers) != len(geometry.layers):
            return geometry
        kinds = (LEARNED if self.embedded else NONE, *self.layers)
        return replace(
            geometry,
            scheme=next((kind for kind in (LEARNED, ROTARY, ALIBI) if kind in kinds), NONE),
            layers=tuple(
                replace(
                    layer,
                    positions=layer.reason is None and (self.embedded or kind != NONE),
                    base=layer.base if kind == ROTARY else None,
                )
                for layer, kind in zip(geometry.layers, self.layers, strict=True)
            ),
        )

    def as_manifest(self) -> dict[str, Any]:
        """Return what the manifest of an exported file says of it."""
        return {"positions": self.model_dump(mode="json")}


def _file(fingerprint: str) -> Path:
    return default_directory() / "positions" / f"{digest(fingerprint)}.json"


def position_use(fingerprint: str) -> PositionUse | None:
    """Return what was seen when a model was loaded; None if it was not, or is not known."""
    with suppress(OSError, ValueError):
        return read_use(parse_json(_file(fingerprint).read_bytes()))
    return None


def read_use(stored: Any) -> PositionUse | None:
    """Read what was stored; None if it is invalid."""
    try:
        return PositionUse.model_validate(stored)
    except ValidationError:
        return None


def keep_use(fingerprint: str, use: PositionUse) -> None:
    """Keep what was seen, if the default directory can be written."""
    if use == position_use(fingerprint):
        return
    with suppress(OSError, BadRequest):
        write_file(_file(fingerprint), use.model_dump_json())


def angles_by_length(config: dict[str, Any]) -> bool:
    """Return whether a configuration scales the rotary angles by the length of a text."""
    inner = [value for value in config.values() if isinstance(value, dict)]
    kind = str(config.get("rope_type", config.get("type")))
    return "dynamic" in kind or kind in BY_LENGTH or any(map(angles_by_length, inner))
