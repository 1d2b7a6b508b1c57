"""Provenance of results, and their conversion to and from store entries."""

import contextlib
import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import poskernel_core
from poskernel_core.analyses import ANALYSES
from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.groups import first_of_all
from poskernel_core.common.header import PassHeader, PlanHeader
from poskernel_core.common.result import NUMBERS, TOKENS, Result, texts_array
from poskernel_core.common.specs import SCHEMA, RunSpec
from poskernel_core.models.catalog import quantisation_of
from poskernel_core.models.stored import title_of
from poskernel_core.storage.encoding import Entry, decode, encode
from poskernel_core.storage.store import Store

NOT_KEPT = (
    "The result was dropped as soon as it was written: the store is too small (POSKERNEL_CACHE_GB)."
)

ARRAYS = ("values", "errors", "biases", "coordinates")
"""The parts of a result that an entry stores as arrays, named ``part/name``.

Values are stored as they come from all texts: what is shown follows from these.
"""

PACKAGES = (
    "torch", "transformers", "transformer_lens", "numpy", "scipy", "datasets",
)  # fmt: skip


def keep(
    store: Store,
    key: str,
    run: RunSpec,
    result: Result,
    header: PlanHeader,
    tokens: Sequence[str] | None,
    seconds: float,
) -> None:
    """Store a result with its provenance under a key.

    ``tokens`` are the tokens of the text if the result is about a single text.
    """
    if tokens is not None and TOKENS.name not in result.texts:
        result = result.with_text(TOKENS, list(tokens))
    result = result.without_heads(header.reasons)
    made = provenance(run, header, seconds) | result.provenance
    store.put(key, *to_entry(replace(result, provenance=made)))
    if not store.has(key):
        raise ComputeFailed(NOT_KEPT)


def stored(store: Store, key: str) -> Result | None:
    """Return the stored result of a key; None if it is missing or unreadable."""
    entry = store.get(key)
    return None if entry is None else from_entry(entry)


def provenance(run: RunSpec, header: PlanHeader, seconds: float) -> dict[str, Any]:
    """Return everything needed to reproduce a result."""
    done = header if isinstance(header, PassHeader) else None
    seen = first_of_all(run.pattern_windows or header.windows, header.windows)
    few = {
        "pattern_windows": seen if seen < header.windows else None,
        "shards": (done.shards or None) if done else None,
        "quantisation": quantisation_of(run.model.name) or None,
        "tokenizer": run.model.tokenizer,
    }
    return {
        "model": run.model.name,
        "revision": run.model.revision,
        "model_fingerprint": run.model.fingerprint,
        "architecture": header.architecture,
        "position_scheme": header.scheme,
        "corpus": run.corpus.name,
        "corpus_item": run.corpus.item,
        "corpus_revision": run.corpus.revision,
        "corpus_fingerprint": run.corpus.fingerprint,
        "context": header.context,
        "windows": header.windows,
        "windows_asked": run.windows,
        "queries_per_position": header.samples,
        "start_token": run.start_token,
        "seed": run.seed,
        "positions": list(header.positions),
        "sliding_windows": list(done.sliding_windows) if done else None,
        "score_scales": list(done.scales) if done else None,
        "dtype": run.dtype,
        "dtype_error": done.dtype_error if done else 0.0,
        "device": header.device,
        "pass_seconds": done.seconds if done else 0.0,
        "analysis_seconds": round(seconds, 3),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
    } | {name: value for name, value in few.items() if value is not None}


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that results depend on."""
    installed = {"schema": str(SCHEMA), "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    return installed


def software() -> dict[str, str]:
    """Return the versions that all parts of a run must share."""
    installed = {"poskernel": poskernel_core.__version__, **versions()}
    installed.pop("python")
    return installed


def to_entry(result: Result) -> Entry:
    """Convert a result to a store entry (header and arrays)."""
    raw = replace(
        result,
        values={**result.values, **result.plug_ins},
        errors=dict(result.errors),
        biases=dict(result.biases),
    )
    for name in raw.plug_ins.keys() - raw.errors.keys():  # a range
        low, high = result.lows[name], result.highs[name]
        raw.errors[name] = (high - low) / 2
        raw.biases[name] = raw.values[name] - (high + low) / 2
    header = {
        "analysis": result.analysis,
        "params": result.params,
        "axes": result.axes,
        "units": result.units,
        "labels": result.labels,
        "texts": {name: array.tolist() for name, array in result.texts.items()},
        "provenance": result.provenance,
    }
    arrays = {
        f"{part}/{name}": array for part in ARRAYS for name, array in getattr(raw, part).items()
    }
    return header, arrays


SHOWN = (*NUMBERS, "coordinates")
"""The arrays of a result as it is shown."""


def to_line(key: str, result: Result) -> bytes:
    """Return a result as it is shown, or a part of one, as bytes for another process.

    They have the form of an entry, with every array: a part of a result cannot be corrected anew.
    """
    parts = {part: getattr(result, part) for part in SHOWN}
    header = to_entry(result)[0] | {
        "chosen": result.chosen,
        "order": {part: [*arrays] for part, arrays in parts.items()},
    }
    arrays = {f"{part}/{name}": array for part in parts for name, array in parts[part].items()}
    return encode(key, header, arrays)


def from_line(key: str, data: bytes) -> Result:
    """Read what :func:`to_line` of another process returned.

    Raises:
        BadRequest: the bytes are damaged, or something else.
    """
    try:
        header, arrays = decode(data, key) or ({}, {})
        texts = {name: texts_array(text) for name, text in header["texts"].items()}
        if any(not isinstance(value, str) for array in texts.values() for value in array.flat):
            raise ValueError("something else than texts")
        return Result(
            analysis=str(header["analysis"]),
            params=dict(header["params"]),
            axes={name: tuple(map(str, axes)) for name, axes in header["axes"].items()},
            units={name: str(unit) for name, unit in header["units"].items()},
            labels={name: tuple(map(str, words)) for name, words in header["labels"].items()},
            texts=texts,
            provenance=dict(header["provenance"]),
            chosen={name: int(place) for name, place in header["chosen"].items()},
            **{
                part: {name: arrays[f"{part}/{name}"] for name in header["order"][part]}
                for part in SHOWN
            },
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadRequest(
            "Expected an answer of a PosKernel server, got something else or a damaged one: ask "
            "again, or check the address."
        ) from error


def _titled(run: dict[str, Any]) -> dict[str, Any]:
    """Return a provenance with the title of its model next to the name."""
    if "model" not in run:
        return run
    title = title_of(run["model"], run.get("model_fingerprint"))
    return {"model": run["model"], "model_title": title, **run}


def from_entry(entry: Entry) -> Result | None:
    """Convert a store entry to a result; None if it has another layout."""
    header, arrays = entry
    parts: dict[str, dict[str, Any]] = {part: {} for part in ARRAYS}
    try:
        question = ANALYSES.get(header["analysis"])
        kept = set(header["axes"])
        if question:  # an earlier version may have declared more
            kept &= {TOKENS.name, *(value.name for value in (*question.values, *question.texts))}
        for path, array in sorted(arrays.items()):  # safetensors has them in any order
            part, name = path.split("/", 1)
            if part == "coordinates" or name in kept:
                parts[part][name] = array
        axes = {name: tuple(axes) for name, axes in header["axes"].items() if name in kept}
        labels = {name: tuple(words) for name, words in header["labels"].items()}
        if question:  # its words of today; those that depend on parameters are as stored
            labels |= {v.name: v.labels for v in question.values if v.labels and v.name in labels}
        parts["values"] = {name: parts["values"][name] for name in axes if name in parts["values"]}
        result = Result(
            analysis=header["analysis"],
            params=header["params"],
            axes=axes,
            units={name: header["units"][name] for name in axes},
            labels=labels,
            texts={name: texts_array(text) for name, text in header["texts"].items()},
            provenance=_titled(header["provenance"]),
            **parts,
        )
        return question.shown(result) if question else result
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
