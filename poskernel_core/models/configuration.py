"""Read a ``config.json`` through transformers' own classes, once, and keep what it says.

Configurations leave out what equals a class's default, name fields in their own ways, and describe
several parts; only transformers knows what they mean. So its classes read them, and the model that
they build, on a device without memory, shows its attention
(:mod:`poskernel_core.forward.configuration`). A process without torch starts one for this, and
keeps the outcome under the hash of the configuration. The outcomes of the bundled models come with
the project, those of results without weights stand in their files.
"""

import hashlib
import json
import math
import re
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from poskernel_core.common.atomic_write import write_file
from poskernel_core.common.errors import BadRequest, ComputeFailed, UnsupportedModel
from poskernel_core.common.files import read_json
from poskernel_core.common.folders import default_directory
from poskernel_core.common.modules import command, environment
from poskernel_core.models.curated import DEMO
from poskernel_core.models.geometry import FULL, MAX_LAYERS, Geometry, Layer

READER = 1
"""Version of what is read; raising it has every configuration read again."""

READING = "poskernel_core.forward.configuration"
SHIPPED = DEMO / "configurations.json"
"""The geometries of the bundled models, by the hash of the configuration."""

SECONDS = 300.0
"""Longest time to read a configuration; it takes a few seconds, nearly all to import torch."""

LARGEST = 10**9
COUNTS = re.compile(r"layers?$|depth$|blocks$|attention_types$")
HEADS = re.compile(r"^(n_heads?|num_heads|num_attention_heads|num_key_value_heads)$")
EXPERTS, MAX_EXPERTS = re.compile(r"experts$"), 4096
NO_SIZE = re.compile(r"theta|base|freq|seed|flos|tokens_seen|_ids?$")
"""Fields that nothing is built or counted by."""

readers: list[Callable[[str, dict[str, Any]], Geometry]] = []
"""The reader in this process, in one that has imported it."""
_READING = threading.Lock()


def model_type(config: dict[str, Any]) -> str:
    """Return the architecture's name; ``attn_only: true`` marks attention-only toy models."""
    if config.get("attn_only") is True:
        return "attn-only"
    return str(config.get("model_type", "unknown"))


def read_geometry(name: str, config: dict[str, Any]) -> Geometry:
    """Return the attention geometry of a hub-format or TransformerLens configuration."""
    _check(name, config)
    if model_type(config) == "attn-only":
        return _attention_only(name, config)
    geometry = read_once(name, json.dumps(config, sort_keys=True))
    if isinstance(geometry, str):
        raise UnsupportedModel(geometry)
    return geometry.checked(name)


def digest(text: str) -> str:
    """Return the hash of a configuration's JSON text."""
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=256)
def read_once(name: str, text: str) -> Geometry | str:
    """Return the geometry of a configuration, or the sentence that refuses it."""
    known = _shipped().get(digest(text))
    if known is not None:
        return Geometry.read(known)
    if find_spec("transformers") is None:
        return (
            f"To read the configuration of {name!r}, transformers is needed, which is not "
            "installed here: install PosKernel with what computes, or show stored results."
        )
    used = f"{READER} {version('transformers')} {text}"
    file = default_directory() / "configurations" / f"{digest(used)}.json"
    with suppress(OSError, ValueError, BadRequest):
        return Geometry.read(read_json(file))
    try:
        if readers:
            geometry = readers[0](name, json.loads(text))
        else:
            with _READING:
                geometry = _read_elsewhere(name, text)
    except UnsupportedModel as error:
        return str(error)
    with suppress(OSError, BadRequest):  # it is read again next time
        write_file(file, json.dumps(geometry.as_json()))
    return geometry


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Any]:
    geometries: dict[str, Any] = json.loads(SHIPPED.read_text("utf-8")) if SHIPPED.is_file() else {}
    return geometries


def _read_elsewhere(name: str, text: str) -> Geometry:
    """Read a configuration in a process of its own, which imports torch."""
    request = json.dumps({"name": name, "config": json.loads(text)})
    try:
        done = subprocess.run(
            command(READING), input=request, capture_output=True, encoding="utf-8",
            timeout=SECONDS, env=environment(), check=True,
        )  # fmt: skip
        answer = json.loads(done.stdout.splitlines()[-1])
        if "refused" not in answer:
            return Geometry.read(answer["geometry"])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, KeyError) as error:
        end = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise ComputeFailed(
            f"The config.json of {name!r} could not be read by transformers "
            f"({end[-1][:200] if end else type(error).__name__}): check the file, or ask again."
        ) from error
    raise UnsupportedModel(answer["refused"])


def _check(name: str, config: dict[str, Any]) -> None:
    """Check all numbers, nested too: none is NaN, none makes transformers build without end."""
    left: list[tuple[str, Any]] = list(config.items())
    while left:
        field, value = left.pop()
        if isinstance(value, dict):
            left += [(str(key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [(field, inner) for inner in value]
        elif isinstance(value, float) and math.isnan(value):
            raise UnsupportedModel(
                f"Expected a number as {field!r} in the config.json of {name!r}, got NaN."
            )
        elif type(value) is int and value > (most := _most(field)):
            raise UnsupportedModel(
                f"Expected {field!r} in the config.json of {name!r} to be at most {most:,}, got "
                f"{str(value)[:40]!r}."
            )
        elif type(value) is int and value < 1 and HEADS.search(field):
            raise UnsupportedModel(
                f"Expected {field!r} in the config.json of {name!r} to be 1 or more, got {value}."
            )
        if field == "quantization_config" and value is not None:
            raise UnsupportedModel(
                f"{name!r} has quantized weights, which are not read: give the model it was made "
                "from."
            )


def _most(field: str) -> int:
    if COUNTS.search(field):
        return MAX_LAYERS
    if EXPERTS.search(field):
        return MAX_EXPERTS
    return 10**30 if NO_SIZE.search(field) else LARGEST


def _attention_only(name: str, config: dict[str, Any]) -> Geometry:
    if config.get("shortformer_pos"):
        raise UnsupportedModel(f"{name!r} has shortformer positions, which are not read.")
    fields = ("n_layers", "n_heads", "d_model", "n_ctx", "d_vocab")
    layers, heads, width, context, vocabulary = (config.get(field) for field in fields)
    own = config.get("d_head")
    if own is None and type(width) is int and type(heads) is int and heads:
        own = width // heads
    sizes = (layers, heads, heads, width, own, context, vocabulary)
    geometry = Geometry(*sizes, "attn-only", "learned").checked(name)  # type: ignore[arg-type]
    if geometry.n_heads * geometry.d_head != geometry.d_model:
        raise UnsupportedModel(
            f"The config.json of {name!r} names {heads} heads of width {own} in a stream of width "
            f"{width}: the heads' widths must add up to the stream's."
        )
    numbers = geometry.d_model * (
        geometry.n_vocab
        + geometry.n_ctx
        + 4 * geometry.n_layers * geometry.n_heads * geometry.d_head
    )
    alike = (Layer(FULL, geometry.d_head, geometry.n_heads),) * geometry.n_layers
    return replace(geometry, layers=alike, numbers=numbers)
