"""What cannot be carried out is refused in one line that names what is wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from poskernel_core.common.errors import BadRequest, PosKernelError


@contextmanager
def refused(words: str, kind: type[PosKernelError] = BadRequest) -> Iterator[None]:
    """What is done within ends with an error of this kind; its one line holds the words."""
    with pytest.raises(kind, match=words) as caught:
        yield
    assert "\n" not in str(caught.value)
