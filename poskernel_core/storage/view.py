"""A file of results that is made to be shown: small, without the sums that they stand on.

Numbers are rounded where that cannot be seen. A value, its bias and the ends of its range: to a
power of two of at most half its error, so that it moves by a quarter of it at most. An error: by an
eighth of itself at most, which is less than ten groups of texts know it by. What has no error: to 8
bits. Nothing on a curve is finer than 1/8192 of its largest value.
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from poskernel_core.common.atomic_write import atomic_write, check_target
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import SCHEMA, model_prefix
from poskernel_core.models.catalog import Located
from poskernel_core.models.stored import MANIFEST, Shown
from poskernel_core.storage.encoding import Entry, encode
from poskernel_core.storage.shipped import SMALL, pack, rounded
from poskernel_core.storage.store import Store

OF_ERROR, OF_ITSELF = 2, 4
"""Into how many steps the error of a number is divided, for the number and for the error itself."""

EXACT = 8
"""Bits of the mantissa of numbers without an error."""

CURVES, UNSEEN = ("key", "offset"), 2.0**-13
"""Axes of curves, and what of a curve's largest value is too little to be seen in it."""

THOROUGH = 200_000
"""Bytes of an entry from which the slower compression is worth its time."""

LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The date of every entry, so that equal entries make equal files."""


def export_view(store: Store, located: Located, target: Path) -> int:
    """Write all results of a model, and nothing that they stand on; return how many there are.

    The file appears whole or not at all.

    Raises:
        BadRequest: there are none, or the file cannot be written.
    """
    check_target(target)
    prefix = model_prefix(located.spec.fingerprint)
    every = store.headers()
    headers = {key: each for key, each in every if key.startswith(prefix) and "analysis" in each}
    if not headers:
        raise BadRequest(
            f"No results of {located.spec.name!r} are stored yet: run 'precompute "
            f"{located.spec.name}' first."
        )
    written = []

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            told = about(located, _shown_by(headers.values()))
            add(archive, MANIFEST, json.dumps(told).encode())
            for key in sorted(headers):
                entry = store.get(key)
                if entry is not None:  # it may have been evicted meanwhile
                    add(archive, key, encode(key, *pack(for_display(entry), {})))
                    written.append(key)

    atomic_write(target, write)
    return len(written)


def about(located: Located, shown: Shown) -> dict[str, Any]:
    """Return what a file says of its model, and of the run that is shown."""
    return {
        "schema": SCHEMA,
        "model": located.spec.model_dump(mode="json"),
        "config": located.config,
        "quantisation": located.quantisation,
        "shown": shown.model_dump(mode="json"),
    }


def _shown_by(headers: Iterable[dict[str, Any]]) -> Shown:
    """Return the run that most results are of, and where its kernels are there."""
    every = list(headers)
    runs = Counter(json.dumps(run) for run in map(_run_of, every))
    run = json.loads(runs.most_common(1)[0][0])
    kernels = [
        each["params"] for each in every if each["analysis"] == "kernel" and _run_of(each) == run
    ]
    places = {name: sorted({each[of] for each in kernels}) for name, of in PLACES.items()}
    return Shown.model_validate(run | places)


PLACES = {"queries": "query", "skips": "skip"}
OF_CORPUS = ("item", "revision", "fingerprint")


def _run_of(header: dict[str, Any]) -> dict[str, Any]:
    made = header["provenance"]
    return {
        "context": made["context"],
        "windows": made["windows_asked"],
        "corpus": {"name": made["corpus"]} | {of: made[f"corpus_{of}"] for of in OF_CORPUS},
        "start_token": made["start_token"],
        "dtype": made["dtype"],
    }


def for_display(entry: Entry, finer: int = 1) -> Entry:
    """Return a result whose numbers have no more digits than can be seen.

    ``finer``, a power of two, divides all steps.
    """
    header, arrays = entry
    return header, dict(_lighter(header.get("axes", {}), arrays, finer))


def _lighter(
    axes: dict[str, list[str]], arrays: dict[str, np.ndarray], finer: int
) -> Iterator[tuple[str, np.ndarray]]:
    for path, array in arrays.items():
        part, _, name = path.partition("/")
        if array.dtype.kind != "f" or array.size < SMALL or part == "coordinates":
            yield path, array
        elif part == "errors":
            yield path, _in_steps(array, array / OF_ITSELF / finer, name, axes, finer)
        else:
            base = name if f"errors/{name}" in arrays else name.rpartition("_")[0]
            error = arrays.get(f"errors/{base}")
            step = np.zeros_like(array) if error is None else error / OF_ERROR / finer
            yield path, _in_steps(array, step, name, axes, finer)


def _in_steps(
    array: np.ndarray, step: np.ndarray, name: str, axes: dict[str, list[str]], finer: int
) -> np.ndarray:
    """Return numbers rounded to powers of two that are no larger than their steps."""
    plain = rounded(array.astype(np.float32), EXACT + finer.bit_length() - 1)
    if axes.get(name, [""])[-1] in CURVES:
        highest = np.nanmax(np.abs(array), axis=-1, keepdims=True, initial=0)
        step = np.fmax(step, highest * UNSEEN / finer)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.exp2(np.floor(np.log2(step)))
        stepped = np.rint(array / power) * power
    return np.where(np.isfinite(stepped) & (power > 0), stepped, plain).astype(np.float32)


def add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add one entry, compressed, the same way on every machine."""
    info = zipfile.ZipInfo(name, LONG_AGO)
    how = zipfile.ZIP_LZMA if len(data) > THOROUGH else zipfile.ZIP_DEFLATED
    info.compress_type, info.external_attr = how, 0o644 << 16
    archive.writestr(info, data, compresslevel=9)
