"""The heap of the process: what the C library holds back of it.

Tensors that come and go leave holes between others that stay. glibc keeps such holes for itself,
and what a process holds grows with every kind of work that it meets, though no object is left.
"""

from __future__ import annotations

import ctypes

__all__ = ["give_back"]


def give_back() -> bool:
    """Return free memory to the system; tell whether there was any, or anybody to ask (glibc).

    It takes some milliseconds, and locks the heap meanwhile.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    return bool(trim(0))
