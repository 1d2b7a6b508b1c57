"""Export the results of a model for display only: small, and without the underlying statistics.

Numbers are rounded where the difference is invisible. Values, biases and ends of ranges are rounded
to multiples of a power of two that is at most half the error, so they change by at most a quarter
of the error. Errors change by at most an eighth of themselves, which is less than their uncertainty
with ten groups of texts. Numbers without an error keep 8 bits. No curve is stored more finely than
1/8192 of its largest value.
"""

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from poskernel_core.common.atomic_write import atomic_write, check_target
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import SCHEMA, model_prefix
from poskernel_core.models.catalog import Located
from poskernel_core.models.stored import ENTRY, MANIFEST, Shown
from poskernel_core.storage.encoding import Entry, compressed, encode
from poskernel_core.storage.store import Store

OF_ERROR, OF_ITSELF = 2, 4
"""The error divided by these is the rounding step of a number, and of the error itself."""

EXACT = 8
"""Bits of the mantissa of numbers without an error."""

CURVES, UNSEEN = ("key", "offset"), 2.0**-13
"""Axes of curves, and the fraction of a curve's largest value that is too small to be visible."""

SMALL = 1024
"""Arrays with fewer numbers are stored unchanged."""

SINGLE = 23
"""Bits of the mantissa in single precision."""

LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The date of every entry, so that equal entries give equal files."""


def export_view(store: Store, located: Located, target: Path) -> int:
    """Write all results of a model, without the underlying statistics; return their number.

    The file is written atomically.
    """
    check_target(target)
    prefix = model_prefix(located.spec.fingerprint)
    every = store.headers()
    headers = {
        key: header for key, header in every if key.startswith(prefix) and "analysis" in header
    }
    if not headers:
        raise BadRequest(
            f"No results of {located.spec.name!r} are stored yet: run 'precompute "
            f"{located.spec.name}' first."
        )
    # the most frequent run of the results, with the positions and skips of its kernels
    runs = [(_run_of(header), header) for header in headers.values()]
    first = json.loads(Counter(json.dumps(run) for run, _ in runs).most_common(1)[0][0])
    kernels = [
        header["params"] for run, header in runs if header["analysis"] == "kernel" and run == first
    ]
    places = {name: sorted({params[of] for params in kernels}) for name, of in PLACES.items()}
    step = located.usual_step(first["context"])
    default_run, written = Shown.model_validate(first | places | {"step": step}), []

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            manifest = about(located, default_run)
            _add(archive, MANIFEST, json.dumps(manifest).encode())
            for key in sorted(headers):
                entry = store.get(key)
                if entry is not None:  # it may have been evicted since
                    _add(archive, f"{key}{ENTRY}", compressed(encode(key, *for_display(entry))))
                    written.append(key)

    atomic_write(target, write)
    return len(written)


def about(located: Located, default_run: Shown) -> dict[str, Any]:
    """Return the file's manifest: the model, and the run that is shown first."""
    return {
        "schema": SCHEMA,
        "model": located.spec.model_dump(mode="json"),
        "config": located.config,
        "geometry": located.geometry.as_json(),
        "quantisation": located.quantisation,
        "shown": default_run.model_dump(mode="json"),
    } | (located.positions.as_manifest() if located.positions else {})


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
    """Return a result with its numbers rounded to visible precision.

    ``finer``, a power of two, divides all steps.
    """
    (header, arrays), lighter = entry, {}
    axes = header.get("axes", {})
    for path, array in arrays.items():
        part, _, name = path.partition("/")
        if array.dtype.kind != "f" or array.size < SMALL or part == "coordinates":
            lighter[path] = array
            continue
        if part == "errors":
            step = array / OF_ITSELF / finer
        else:
            base = name if f"errors/{name}" in arrays else name.rpartition("_")[0]
            error = arrays.get(f"errors/{base}")
            step = np.zeros_like(array) if error is None else error / OF_ERROR / finer
        lighter[path] = _in_steps(array, step, axes.get(name, [""])[-1] in CURVES, finer)
    return header, lighter


def _in_steps(array: np.ndarray, step: np.ndarray, curve: bool, finer: int) -> np.ndarray:
    """Round numbers to multiples of a power of two that is no larger than their step."""
    plain = rounded(array.astype(np.float32), EXACT + finer.bit_length() - 1)
    if curve:
        highest = np.nanmax(np.abs(array), axis=-1, keepdims=True, initial=0)
        step = np.fmax(step, highest * UNSEEN / finer)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.exp2(np.floor(np.log2(step)))
        stepped = np.rint(array / power) * power
    return np.where(np.isfinite(stepped) & (power > 0), stepped, plain).astype(np.float32)


def rounded(array: np.ndarray, bits: int) -> np.ndarray:
    """Round the mantissa of single-precision floats to ``bits`` bits; NaN and infinity are kept."""
    dropped = SINGLE - bits
    if not dropped:
        return array
    words = np.array(array, order="C").view(np.uint32)
    words += np.uint32(1 << (dropped - 1))
    words &= np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)
    return words.view(np.float32)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, LONG_AGO)
    info.external_attr = 0o644 << 16
    archive.writestr(info, data)
