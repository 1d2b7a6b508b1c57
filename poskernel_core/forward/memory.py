"""Estimate the memory of a model before loading it; run a 16-bit model in float32 part by part.

In a container, the machine's free memory alone is misleading: a process that exceeds the limit of
its control group is killed.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from poskernel_core.common.errors import ComputeFailed
from poskernel_core.common.settings import settings

BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2}
HALVED = (torch.bfloat16, torch.float16)
WIDENED = "poskernel_widened"
"""The attribute of a module that runs in float32 already."""

REST = 1.1
"""Memory while loading, as a multiple of the size of the weights."""

VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
VERSION_2 = ("memory.max", "memory.current", "")
"""Per cgroup version: the files with limit and usage, and the prefix of the counters' names."""


def needed(numbers: int, dtype: str) -> float:
    """Return the bytes needed to load a model with this many numbers."""
    return REST * BYTES[dtype] * numbers


def room(device: torch.device) -> dict[int | str, float]:
    """Return the bytes available for weights on each usable device, fastest first.

    GPUs are keyed by number: ``cuda`` means all GPUs, ``cuda:1`` only that one.
    ``POSKERNEL_MEMORY_GB`` limits each device.
    """
    numbers: list[int] = []
    if device.type == "cuda":
        numbers = [*range(torch.cuda.device_count())] if device.index is None else [device.index]
    free: dict[int | str, float] = {at: torch.cuda.mem_get_info(at)[0] for at in numbers}
    free["cpu"] = free_memory()
    return {at: min(size, 1e9 * settings().memory_gb) for at, size in free.items()}


def check_room(name: str, numbers: int, dtype: str, free: float) -> None:
    """Refuse a model that cannot fit into memory, before anything is loaded."""
    need, half = needed(numbers, dtype), needed(numbers, "bfloat16")
    if need <= free:
        return
    way = ""
    if dtype != "bfloat16" and half <= free:
        way = f"bfloat16 as precision ({gigabytes(half)}), "
    raise ComputeFailed(
        f"{name!r} needs {gigabytes(need)} of memory in {dtype}, {gigabytes(free)} are free: "
        f"choose {way}a smaller model, or another machine; or let weights stay on the disk, which "
        "is many times slower (POSKERNEL_WEIGHTS_ON_DISK=1)."
    )


def gigabytes(count: float) -> str:
    """Format a number of bytes in GB."""
    return f"{count / 1e9:.2g} GB" if count < 1e10 else f"{count / 1e9:,.0f} GB"


def put(part: nn.Module, name: str, data: torch.Tensor) -> None:
    """Set the data of a module's parameter; modules that share the parameter see the change.

    If the old or the new data are on the meta device (weights on disk), the parameter is replaced.
    """
    parameter = part.get_parameter(name)
    if parameter.is_meta or data.is_meta:
        setattr(part, name, nn.Parameter(data, requires_grad=False))
    else:
        parameter.data = data


@contextmanager
def in_float32(module: nn.Module) -> Iterator[None]:
    """Run a 16-bit module in float32 inside the block, converting weights one part at a time.

    At any time, only one part has both 16-bit and float32 weights in memory. Weights that stay on
    the disk are loaded as float32.
    """
    with ExitStack() as stack:
        parts = [] if WIDENED in vars(module) else [*module.modules()]
        vars(module)[WIDENED] = True
        stack.callback(vars(module).pop, WIDENED, None) if parts else None
        for part in parts:
            own = part.named_parameters(recurse=False)
            names = [name for name, parameter in own if parameter.dtype in HALVED]
            if names:
                kept: dict[str, torch.Tensor] = {}
                stack.callback(_restore, kept, part)
                stack.enter_context(part.register_forward_pre_hook(partial(_widen, kept, names)))
                stack.enter_context(part.register_forward_hook(partial(_restore, kept)))
        yield


def _widen(kept: dict[str, torch.Tensor], names: list[str], part: nn.Module, _args: Any) -> None:
    _restore(kept, part)
    for name in names:
        kept[name] = part.get_parameter(name).data
        put(part, name, kept[name].float())


def _restore(kept: dict[str, torch.Tensor], part: nn.Module, *_: Any) -> None:
    for name, data in kept.items():
        put(part, name, data)
    kept.clear()


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process can still allocate; ``root`` has ``proc`` and ``sys``."""
    return max(0, min([psutil.virtual_memory().available, *_allowed(root)]))


def _allowed(root: Path) -> Iterator[int]:
    """Yield the bytes left in each control group of this process and in its parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        group = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        files = VERSION_1 if controllers else VERSION_2
        # In a container, the path may be the host's, while the container's group is at the root.
        for part in ["", *path.strip("/").split("/")]:
            group /= part
            try:
                yield _left(group, *files)
            except (OSError, ValueError):  # no such group here, or no limit: "max"
                continue


def _left(group: Path, bound: str, taken: str, prefix: str) -> int:
    """Return a group's limit minus its usage; the reclaimable file cache counts as free."""
    left, stat = int((group / bound).read_text()), group / "memory.stat"
    for line in stat.read_text().splitlines() if stat.is_file() else ():
        name, count = line.split()
        if name in (f"{prefix}active_file", f"{prefix}inactive_file"):
            left += int(count)
    return left - int((group / taken).read_text())
