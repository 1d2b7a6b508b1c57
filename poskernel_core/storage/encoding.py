"""Stored values as bytes: a checksum, then safetensors with a JSON header; never a pickle."""

import hashlib
import json
import lzma
from collections.abc import Callable
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

DIGEST = hashlib.sha256().digest_size
MAX_HEADER = 4 * 2**20
"""Largest header, in bytes, that is read alone; longer ones belong to texts, not to results."""

OF_NUMBERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME, "lc": 1, "lp": 2, "pb": 2}
]
"""Bytes are predicted from their place in a number of four bytes, as most numbers have."""

Entry = tuple[dict[str, Any], dict[str, np.ndarray]]


def encode(key: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Return SHA-256 followed by the safetensors blob of arrays, header and the entry's key."""
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    blob = save_tensors(plain, metadata={"header": json.dumps(header), "key": key})
    return hashlib.sha256(blob).digest() + blob


def decode(data: bytes, key: str) -> Entry | None:
    """Return header and arrays of an entry.

    Return None if the bytes are damaged, cannot be parsed, or belong to another key.
    """
    blob = data[DIGEST:]
    if hashlib.sha256(blob).digest() != data[:DIGEST]:
        return None
    try:
        length = int.from_bytes(blob[:8], "little")
        about = json.loads(blob[8 : 8 + length])["__metadata__"]
        header, arrays = json.loads(about["header"]), load_tensors(blob)
    except (ValueError, KeyError, TypeError, RecursionError, SafetensorError):
        return None
    return (header, arrays) if about.get("key") == key and isinstance(header, dict) else None


def read_header(read: Callable[[int], bytes]) -> dict[str, Any] | None:
    """Return the header of encoded bytes without verifying the checksum; None if there is none.

    ``read`` returns the next bytes of a file, as many as requested. The arrays are not read; use
    :func:`decode` for them.
    """
    start = read(DIGEST + 8)
    length = int.from_bytes(start[DIGEST:], "little")
    if len(start) < DIGEST + 8 or length > MAX_HEADER:
        return None
    try:
        header = json.loads(json.loads(read(length))["__metadata__"]["header"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return header if isinstance(header, dict) else None


def compressed(data: bytes) -> bytes:
    """Return encoded bytes in the form in which results are shipped and exported to be shown."""
    return lzma.compress(data, filters=OF_NUMBERS)
