"""Convert the weights of a GGUF file to safetensors, once; they then load like any model's.

llama.cpp stores some tensors in another layout than transformers. The conversion undoes this, one
tensor at a time.
"""

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

from poskernel_core import __version__
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

LAYOUT = 1
"""Version of the conversion; increase it when the converted files change."""

WEIGHTS = "model.safetensors"
ABOUT = "gguf.json"
UNFINISHED = ".weights.partial"
"""The temporary file, written under the lock; a leftover of a killed process is deleted."""

INPUT_FIRST = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")


def is_converted(located: Located) -> bool:
    """Tell whether a GGUF file has a complete, up-to-date converted model directory."""
    directory = Path(str(located.directory))
    try:
        told = read_object(directory / ABOUT)
        size = (directory / WEIGHTS).stat().st_size
    except (OSError, ValueError):
        return False
    return _about(located, size).items() <= told.items()


def convert(located: Located, make_skeleton: Callable[[Path], nn.Module]) -> None:
    """Convert a GGUF file to a float32 model directory, unless another process has done it.

    Args:
        located: the GGUF model.
        make_skeleton: creates the model of a directory's ``config.json`` on the meta device.

    Raises:
        NoSpace, StoreFailed: the directory cannot be written.
        UnsupportedModel: the file has changed since it was located.
        ValueError: tensors are missing, unexpected, or have the wrong shape.
    """
    name, file, directory = located.spec.name, located.gguf, located.directory
    if file is None or directory is None:
        raise ValueError("it is not a GGUF file")
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
        versions = {each: importlib.metadata.version(each) for each in ("gguf", "numpy")}
        about |= {"file": file.name, "versions": {"poskernel": __version__} | versions}
        keep(name, directory / ABOUT, json.dumps(about, indent=1))


def _about(located: Located, size: int) -> dict[str, Any]:
    return {
        "layout": LAYOUT,
        "sha256": located.spec.fingerprint,
        "quantisation": located.quantisation,
        "config": located.config,
        "bytes": size,
    }


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
    """Map every parameter to its stored tensor, by the names of llama.cpp's converter."""
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
    """Yield each parameter's name and values, in transformers' layout."""
    from gguf import GGMLQuantizationType, dequantize

    for parameter, stored in paired.items():
        data = np.fromfile(file, np.uint8, stored.size, offset=stored.start)
        _, block, width = BLOCKS[stored.kind]
        rows = data.reshape(*stored.shape[:-1], stored.shape[-1] // block * width)
        numbers = dequantize(rows, GGMLQuantizationType(stored.kind)).reshape(stored.shape)
        yield parameter, np.ascontiguousarray(_undone(stored.name, numbers, config), np.float32)


def _undone(name: str, numbers: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Convert a tensor from llama.cpp's layout to transformers'.

    For Llama, llama.cpp rotates pairs of neighbouring dimensions of queries and keys; transformers
    rotates pairs with one dimension in each half. For Gemma, llama.cpp stores the gain of norms;
    transformers stores the gain minus one. For GPT-2, llama.cpp stores matrices transposed, with
    the input axis last.
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
    """Write tensors as safetensors, with one tensor in memory at a time."""
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
