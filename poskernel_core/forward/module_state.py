"""What the modules of a model keep between calls, restored before every forward pass.

Some modules of transformers change when they run: a rotary module keeps the angles of the longest
text so far. Without the restoring, a result would depend on what ran before.
"""

from typing import Any

from torch import Tensor, nn


class ModuleState:
    """The attributes and buffers of all modules, as they are when this is made.

    Weights and hooks are not part of it. Buffers of numbers are restored even if they were
    overwritten; others (masks, which can be large) only if they were replaced.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parts = {part: _Part(part) for part in module.modules()}

    def restore(self, part: nn.Module | None = None) -> None:
        """Restore one module, or all of them."""
        for each in self._parts if part is None else (part,):
            self._parts[each].restore(each)


class _Part:
    def __init__(self, part: nn.Module) -> None:
        self._attributes: dict[str, Any] = dict(vars(part))
        self._buffers: dict[str, Tensor | None] = dict(vars(part)["_buffers"])
        self._numbers = [
            (buffer, buffer.clone())
            for buffer in part.buffers(recurse=False)
            if buffer.is_floating_point() or buffer.is_complex()
        ]

    def restore(self, part: nn.Module) -> None:
        own = vars(part)
        for name in own.keys() - self._attributes.keys():
            del own[name]
        own.update(self._attributes)
        own["_buffers"].clear()
        own["_buffers"].update(self._buffers)
        for buffer, value in self._numbers:
            buffer.copy_(value)
