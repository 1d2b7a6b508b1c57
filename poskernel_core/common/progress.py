"""The type of progress callbacks, which also cancel the work."""

from collections.abc import Callable

Report = Callable[[int, int, str], None]
"""Called with (steps done, total steps, note); raises Cancelled if the work was cancelled."""
