"""Compare the headers of safetensors files with a configuration. Torch is not imported.

A header is a few kilobytes in front of the weights. From the headers, we check that the files have
as many numbers as the model of the configuration needs, before anything is allocated.
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from poskernel_core.common.errors import ComputeFailed, UnsupportedModel
from poskernel_core.common.files import may_not_read

MAX_HEADER_BYTES = 32 * 2**20
BLOCK_BYTES = 2**20
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
UNUSED = re.compile(
    r"((attn|attention)\.(masked_)?bias|rotary_emb\.inv_freq|position_ids)$"
    r"|(^|\.)(mtp|visual|(vision|audio)_\w+|multi_modal_projector)\."
)
"""Names of tensors that do not affect the logits of a text: masks, frequencies and positions that
older versions of transformers stored; multi-token prediction; parts for images and sound."""


def check_weights(name: str, files: Sequence[Path], needed: int) -> None:
    """Check that weight files are undamaged and hold as many numbers as a model needs."""
    check_enough(name, count_numbers(name, files), needed)
    odd = next((odd for file in files if (odd := _read_header(name, file)[2])), None)
    if odd:
        raise UnsupportedModel(
            f"Expected weights in floating point, {name!r} has {odd}: it may be quantized; save it "
            "in float32, float16 or bfloat16."
        )


def no_memory(name: str) -> ComputeFailed:
    """Return the error for a model that does not fit into memory."""
    return ComputeFailed(
        f"{name!r} does not fit into memory: choose a smaller model, or another machine."
    )


def check_enough(name: str, count: int, needed: int) -> None:
    """Check that ``count`` numbers are enough for the model of a configuration."""
    if count < needed:
        raise UnsupportedModel(
            f"The weights of {name!r} do not fit its config.json: they hold {count:,} numbers, its "
            f"parts need {needed:,}."
        )


def _read_header(name: str, file: Path) -> tuple[int, frozenset[str], str]:
    try:
        state = file.stat()
        return _described(str(file), state.st_size, state.st_mtime_ns)
    except PermissionError as error:
        raise may_not_read(file, error) from error
    except MemoryError as error:  # the whole file is mapped into the address space
        raise no_memory(name) from error
    except (SafetensorError, OSError, ValueError) as error:
        raise UnsupportedModel(
            f"The safetensors file {file.name!r} of {name!r} is damaged "
            f"({str(error).splitlines()[0][:200]}): fetch it again."
        ) from error


def stored_in(name: str, files: Sequence[Path]) -> set[str]:
    """Return the precisions of weight files, as safetensors names them."""
    return set().union(*(_read_header(name, file)[1] for file in files))


def count_numbers(name: str, files: Sequence[Path]) -> int:
    """Return the total count of numbers in weight files."""
    return sum(_read_header(name, file)[0] for file in files)


@lru_cache(maxsize=256)
def _described(path: str, size: int, _time: int) -> tuple[int, frozenset[str], str]:
    """Return a file's count of numbers, its dtypes, and its first non-floating-point weight.

    Cached by path, size and mtime.
    """
    with open(path, "rb") as stream:
        header = int.from_bytes(stream.read(8), "little")
    if not 2 <= header <= min(MAX_HEADER_BYTES, size - 8):
        raise ValueError("its header is longer than the file, or than any header")
    with safe_open(path, framework="numpy") as tensors:
        parts = {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118
        numbers = sum(math.prod(part.get_shape()) for part in parts.values())
        kinds = {key: part.get_dtype() for key, part in parts.items()}
    wrong = (
        f"{key!r} in {kind}"
        for key, kind in kinds.items()
        if kind not in FLOATS and not UNUSED.search(key)
    )
    return numbers, frozenset(kinds.values()), next(wrong, "")


def weights_digest(files: Sequence[Path]) -> str:
    """Return the SHA-256 of the tensors in safetensors files: names, types, shapes and bytes.

    Unlike the hash of the files, this digest does not depend on header metadata, or on how the
    tensors are split into files.
    """
    states = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    tensors = [tensor for state in states for tensor in _tensor_digests(*state)]
    return hashlib.sha256(json.dumps(sorted(tensors)).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _tensor_digests(path: str, _size: int, _time: int) -> tuple[tuple[str, str, str, str], ...]:
    """Return name, type, shape and SHA-256 of each tensor of a file (checked before)."""
    digests = []
    with open(path, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header: dict[str, Any] = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        for name, about in header.items():
            begin, end = about["data_offsets"]
            stream.seek(8 + length + begin)
            total = hashlib.sha256()
            while begin < end:
                block = stream.read(min(BLOCK_BYTES, end - begin))
                if not block:
                    break
                total.update(block)
                begin += len(block)
            digests.append((name, about["dtype"], str(about["shape"]), total.hexdigest()))
    return tuple(digests)
