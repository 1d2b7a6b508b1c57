"""What the trials of strangers share: a command that must be refused at once, and well."""

import os

import pytest

from poskernel_core.cli import main as cli
from poskernel_core.engine import engine

QUICK = 10.0
"""Seconds of a processor: many times what a refusal takes."""


def spent():
    """Seconds of a processor that this process and those that it waited for have had."""
    return sum(os.times()[:4])


@pytest.fixture
def refused(capsys, monkeypatch, tmp_path):
    """Run a command that must end with code 2, one sentence, and no worker."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))

    def no_worker(*_):
        raise AssertionError("a worker was started for what can be refused at once")

    monkeypatch.setattr(engine, "Child", no_worker)

    def one(*arguments):
        began = spent()
        code = cli.main([str(each) for each in arguments])
        out, err = capsys.readouterr()
        assert (2, "") == (code, out)
        assert 1 == err.count("\n")
        assert len(err) <= 1000
        assert "Traceback" not in err
        assert err.rstrip("\n").isprintable()
        assert spent() - began < QUICK
        return err

    return one
