"""How long work reports its progress, and how it learns that it was cancelled."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Report"]

Report = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, what is going on); raises Cancelled when cancelled."""
