"""Return unused heap memory to the system.

Freed tensors leave holes between those still in use. glibc keeps these holes, so the memory of a
process grows with every new kind of work, although the objects are gone.
"""

import ctypes


def give_back() -> bool:
    """Return free memory to the system; return whether any was released (False without glibc).

    This locks the heap for some milliseconds.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    return bool(trim(0))
