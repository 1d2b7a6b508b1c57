"""Read the header of a GGUF file: the model's metadata, and the position and type of its tensors.

The file is untrusted: nothing is read or allocated beyond its size. Neither torch nor transformers
is imported, and the vocabulary is skipped, which takes the package ``gguf`` many seconds.
"""

import hashlib
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from poskernel_core.common.errors import StoreFailed, UnknownModel, UnsupportedModel
from poskernel_core.common.files import may_not_read

MAGIC = b"GGUF"
MAX_HEADER_BYTES = 256 * 2**20
LONG = 256
"""Longer lists are vocabularies, which are skipped."""

NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
TEXT, LIST = 8, 9


@dataclass(frozen=True)
class Stored:
    """A tensor's place and type in a file; ``shape`` begins with the slowest axis, as in torch."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


@dataclass(frozen=True)
class Header:
    """The header of a file: metadata by key (vocabularies are empty), and the tensors' places."""

    values: dict[str, Any]
    tensors: tuple[Stored, ...]

    @property
    def numbers(self) -> int:
        """Total number of weights."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors)

    @property
    def quantisation(self) -> str:
        """Common name of the weight format: ``Q4_K_M``, ``Q8_0``, ``F16``."""
        from gguf import GGMLQuantizationType, LlamaFileType

        names = {
            int(file_type): file_type.name
            for file_type in LlamaFileType
            if file_type.name != "GUESSED"
        }
        declared = self.values.get("general.file_type")
        if type(declared) is int and declared in names:
            return re.sub("^(ALL|MOSTLY)_|_MOE$", "", names[declared])
        sizes: Counter[int] = Counter()
        for tensor in self.tensors:
            sizes[tensor.kind] += math.prod(tensor.shape)
        return GGMLQuantizationType(sizes.most_common(1)[0][0]).name if sizes else ""


def is_gguf(name: str) -> bool:
    """Tell whether a path is that of a GGUF file: by its suffix, or by how the file begins."""
    path = os.path.expanduser(name)
    if name.lower().endswith(".gguf"):
        return not os.path.isdir(path)
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


@contextmanager
def writing(name: str, lock: Path) -> Iterator[None]:
    """Hold the lock of what is made of a GGUF file; create its folder."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock):
            yield
    except OSError as error:
        raise StoreFailed(
            f"What is made of the GGUF file {name!r} cannot be kept ({error.strerror}): whoever "
            "runs this server can make room, or set POSKERNEL_CACHE to another directory."
        ) from error


def quantisation_note(quantisation: str) -> str:
    """Return the caveat about numbers from quantized weights; empty for unquantized ones.

    The formats of several models are separated by commas, as in ``Q4_1, Q8_0``.
    """
    matches = [(name, re.search(r"(?:Q|FP)(\d)", name)) for name in quantisation.split(", ")]
    formats = ", ".join(f"{bits[1]}-bit weights ({name})" for name, bits in matches if bits)
    return f"{formats}: numbers differ from the full-precision model's" if formats else ""


def fingerprint(file: Path) -> str:
    """Return the SHA-256 of a file; cached by path, size and mtime."""
    state = file.stat()
    return _hashed(str(file), state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1024)
def _hashed(path: str, _size: int, _time: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_same(name: str, file: Path, print_: str | None) -> None:
    """Check that a file still has its fingerprint."""
    if fingerprint(file) != print_:
        raise UnsupportedModel(f"{name!r} has changed since it was found: ask again.")


def read_header(name: str, file: Path) -> Header:
    """Return the header of a GGUF file; cached by path, size and mtime."""
    if not os.path.isfile(file):
        raise UnknownModel(f"Expected a GGUF file, found none at {name!r}: check the path.")
    try:
        state = file.stat()
        return _read(str(file), state.st_size, state.st_mtime_ns)
    except PermissionError as error:
        raise may_not_read(file, error) from error
    except (OSError, ValueError, struct.error) as error:
        raise UnsupportedModel(
            f"The GGUF file {name!r} is damaged, or something else ({error}): fetch it again."
        ) from error


@lru_cache(maxsize=64)
def _read(path: str, size: int, _time: int) -> Header:
    with open(path, "rb", buffering=2**18) as stream:
        return _Reader(stream, size).header()


class _Reader:
    """Parse a header sequentially; raise ValueError for anything invalid."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self.stream = stream
        self.size = size
        self.place = 0

    def header(self) -> Header:
        from gguf import GGML_QUANT_SIZES

        if self.take(4) != MAGIC:
            raise ValueError("it does not begin with 'GGUF'")
        version, tensors, values = self.unpack("IQQ")
        if version not in (2, 3):
            raise ValueError(f"expected version 2 or 3, little-endian, got {version}")
        metadata = {self.raw().decode(): self.value(*self.unpack("I")) for _ in range(values)}
        listed = [self.described() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"it aligns tensors to {str(alignment)[:40]}")
        begin, stored = -(-self.place // alignment) * alignment, {}
        sizes = {int(quant_type): size for quant_type, size in GGML_QUANT_SIZES.items()}
        for name, shape, kind, offset in listed:
            block, width = sizes.get(kind, (0, 0))
            if not block or not shape or 0 in shape or shape[-1] % block:
                raise ValueError(
                    f"tensor {name[:60]!r} is of kind {kind}, which is not read, or cannot have "
                    f"the shape {shape}"
                )
            size = math.prod(shape) // block * width
            stored[name] = Stored(name, shape, kind, begin + offset, size)
            if begin + offset + size > self.size:
                raise ValueError(f"tensor {name[:60]!r} does not lie in it")
        if len(stored) < tensors or sum(tensor.size for tensor in stored.values()) > self.size:
            raise ValueError("two tensors have one name or place")
        return Header(metadata, tuple(stored.values()))

    def take(self, count: int) -> bytes:
        self.place += count
        if self.place > min(self.size, MAX_HEADER_BYTES):
            raise ValueError("its header ends too early, or is longer than any header")
        return self.stream.read(count)

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def raw(self) -> bytes:
        return self.take(*self.unpack("Q"))

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.raw().decode()
        if kind in NUMBERS:
            return self.unpack(NUMBERS[kind])[0]
        kind, count = self.unpack("IQ") if kind == LIST else (kind, 0)
        if kind == TEXT:
            texts = (self.raw() for _ in range(count))
            return tuple(text.decode() for text in texts if count <= LONG)
        if kind not in NUMBERS:
            raise ValueError(f"it holds a value or list of kind {kind}")
        data = self.take(count * struct.calcsize(NUMBERS[kind]))
        return struct.unpack(f"<{count}{NUMBERS[kind]}", data) if count <= LONG else ()

    def described(self) -> tuple[str, tuple[int, ...], int, int]:
        name, (count,) = self.raw().decode(), self.unpack("I")
        if count > 4:
            raise ValueError(f"tensor {name[:60]!r} has {count} dimensions")
        *shape, kind, offset = self.unpack(f"{count}QIQ")
        return name, tuple(reversed(shape)), kind, offset
