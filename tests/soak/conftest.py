"""The environment of long trials and of all that they start: one thread, nothing precomputed."""

import pytest

from tests.support.server import environment


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    for name, value in environment(tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("POSKERNEL_DEVICE", "cpu")
