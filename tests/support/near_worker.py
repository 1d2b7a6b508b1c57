"""The engine's real worker in a thread: for tests of what it answers, not of how it lives.

A process of its own imports torch anew, which takes longer than most of what is asked of it here.
How it starts, is killed and is resumed: test_engine.py.
"""

import io
import os
import subprocess
import threading
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jaxtyping
import pytest

from poskernel_core.engine import process
from poskernel_core.engine.worker import Worker
from poskernel_core.storage.store import Store


class NearWorker(subprocess.Popen):
    """What the engine takes for its worker's process; no process is started."""

    def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
        (ears, stdin), (stdout, mouth) = os.pipe(), os.pipe()
        self.stdin = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = os.fdopen(stdout, encoding="utf-8")
        self._ears = os.fdopen(ears, encoding="utf-8")
        self._mouth = os.fdopen(mouth, "w", encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            self._worker = Worker(Store(Path(command[-1])), self._mouth)
        self._thread = threading.Thread(target=self._worker.serve, args=(self._ears,), daemon=True)
        self._thread.start()
        self.pid = os.getpid()

    @classmethod
    def module(cls) -> SimpleNamespace:
        """What the engine takes for the module `subprocess`."""
        return SimpleNamespace(Popen=cls, PIPE=subprocess.PIPE)

    def poll(self) -> int | None:
        return None if self._thread.is_alive() else 0

    def terminate(self) -> None:
        """Let it hear and say nothing more; tasks end at their next report."""
        self.stdin.close()
        self._thread.join()
        for task in list(self._worker._tasks.values()):  # noqa: SLF001
            task.cancelled.set()
        self._ears.close()
        self._mouth.close()

    def wait(self) -> int:
        return 0


def command_line_here(cache: Path, *arguments: str) -> str:
    """Run the command line in this process, its worker as well, and return what it prints."""
    from poskernel_core.cli.main import main

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setenv("POSKERNEL_CACHE", str(cache))
        patch.setattr(process, "subprocess", NearWorker.module())
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as in use
        assert 0 == main([*arguments])
    return printed.getvalue()
