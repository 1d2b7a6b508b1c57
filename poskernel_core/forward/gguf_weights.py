"""The weights of a GGUF file as safetensors: once for each file, then read as any model's.

llama.cpp stores some of them otherwise than transformers: what it does to them is undone here, one
tensor at a time.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock
from torch import nn

import poskernel_core
from poskernel_core.common.errors import NoSpace
from poskernel_core.common.files import read_object
from poskernel_core.forward.attn_only import mismatch
from poskernel_core.forward.memory import gigabytes
from poskernel_core.models.catalog import Located
from poskernel_core.models.gguf import (
    BLOCKS,
    Header,
    Stored,
    check_same,
    keep,
    keeping,
    read_header,
)

__all__ = ["convert", "is_converted"]

LAYOUT = 1
"""Counts up when a file is converted otherwise than before."""

WEIGHTS = "model.safetensors"
ABOUT = "gguf.json"
UNFINISHED = ".weights.partial"
"""The one file that is written under the lock: what a killed process left there is dropped."""

INPUT_FIRST = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")


def is_converted(located: Located) -> bool:
    """Tell whether a GGUF file lies there as a model directory, whole and as it is made now."""
    directory = Path(str(located.directory))
    try:
        told = read_object(directory / ABOUT)
        size = (directory / WEIGHTS).stat().st_size
    except (OSError, ValueError):
        return False
    return _about(located, size).items() <= told.items()


def convert(located: Located, make_skeleton: Callable[[Path], nn.Module]) -> None:
    """Write a GGUF file as a model directory in float32, unless another has meanwhile.

    Args:
        located: the file.
        make_skeleton: makes the model of a directory's ``config.json``, without memory.

    Raises:
        NoSpace, StoreFailed: it cannot be written.
        UnsupportedModel: a file that has changed since it was found.
        ValueError: tensors that are missing, of another shape, or beyond the model.
    """
    name, file, directory = located.spec.name, located.gguf, located.directory
    if file is None or directory is None:
        raise ValueError("it is no GGUF file")
    header = read_header(name, file)
    keep(name, directory / "config.json", json.dumps(located.config, indent=1))
    with keeping(name), FileLock(directory / "convert.lock"):
        if is_converted(located):
            return
        unfinished = directory / UNFINISHED
        unfinished.unlink(missing_ok=True)
        _check_disk(name, directory, 4 * header.numbers)
        parameters = make_skeleton(directory).named_parameters()
        shapes = {key: tuple(each.shape) for key, each in parameters}
        paired = _paired(header, located.config, shapes)
        try:
            with unfinished.open("xb") as stream:
                write_weights(stream, shapes, _read(file, paired, located.config))
            check_same(name, file, located.spec.fingerprint)
            os.replace(unfinished, directory / WEIGHTS)
        finally:
            unfinished.unlink(missing_ok=True)
        about = _about(located, (directory / WEIGHTS).stat().st_size)
        about |= {"file": file.name, "versions": _versions()}
        keep(name, directory / ABOUT, json.dumps(about, indent=1))


def _about(located: Located, size: int) -> dict[str, Any]:
    return {
        "layout": LAYOUT,
        "sha256": located.spec.fingerprint,
        "quantisation": located.quantisation,
        "config": located.config,
        "bytes": size,
    }


def _versions() -> dict[str, str]:
    known = {each: importlib.metadata.version(each) for each in ("gguf", "numpy")}
    return {"poskernel": poskernel_core.__version__, **known}


def _check_disk(name: str, directory: Path, size: int) -> None:
    free = shutil.disk_usage(directory).free
    if size > free:
        raise NoSpace(
            f"{name!r} takes {gigabytes(size)} of disk as it is read, {gigabytes(free)} are free: "
            "whoever runs this server can make room, or set POSKERNEL_CACHE to another directory."
        )


def _paired(
    header: Header, config: dict[str, Any], shapes: dict[str, tuple[int, ...]]
) -> dict[str, Stored]:
    """Return the stored tensor of every parameter, as llama.cpp's own converter names them."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    architecture = header.values["general.architecture"]
    number = next(key for key, each in MODEL_ARCH_NAMES.items() if each == architecture)
    layers = config.get("num_hidden_layers") or config["n_layer"]
    names = get_tensor_name_map(number, layers)
    left = {each.name: each for each in header.tensors}
    found = {}
    for parameter in shapes:
        stored = left.pop(str(names.get_name(parameter, (".weight", ".bias"))), None)
        if stored is None:
            raise ValueError(f"the tensor of {parameter} is missing")
        found[parameter] = stored
    if left:
        raise ValueError(f"{len(left)} tensors are beyond the model, first {min(left)!r}")
    return found


def _read(
    file: Path, paired: dict[str, Stored], config: dict[str, Any]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each parameter's numbers, in transformers' layout."""
    from gguf import GGMLQuantizationType, dequantize

    for parameter, stored in paired.items():
        data = np.fromfile(file, np.uint8, stored.size, offset=stored.start)
        _, block, width = BLOCKS[stored.kind]
        rows = data.reshape(*stored.shape[:-1], stored.shape[-1] // block * width)
        numbers = dequantize(rows, GGMLQuantizationType(stored.kind)).reshape(stored.shape)
        yield parameter, np.ascontiguousarray(_undone(stored.name, numbers, config), np.float32)


def _undone(name: str, numbers: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Return a tensor as it was before llama.cpp stored it.

    Llama's queries and keys are turned in neighbouring pairs there, in halves here; Gemma's norms
    hold their gain, here what it is beyond one; GPT-2's matrices have their inputs last.
    """
    kind = config["model_type"]
    if kind == "llama" and (".attn_q." in name or ".attn_k." in name):
        field = "num_attention_heads" if ".attn_q." in name else "num_key_value_heads"
        pairs = numbers.reshape(config[field], -1, 2, *numbers.shape[1:])
        return pairs.swapaxes(1, 2).reshape(numbers.shape)
    if kind.startswith("gemma") and name.endswith("norm.weight"):
        return numbers - np.float32(1)
    if kind == "gpt2" and name.endswith(INPUT_FIRST):
        return numbers.T
    return numbers


def write_weights(
    stream: BinaryIO,
    shapes: dict[str, tuple[int, ...]],
    tensors: Iterator[tuple[str, np.ndarray]],
) -> None:
    """Write tensors as safetensors, without holding more than one."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little") + text)
    for name, numbers in tensors:
        if numbers.shape != shapes[name]:
            raise ValueError(mismatch(name, numbers.shape, shapes[name]))
        stream.write(numbers.astype("<f4", copy=False).data)
    stream.flush()
    os.fsync(stream.fileno())
