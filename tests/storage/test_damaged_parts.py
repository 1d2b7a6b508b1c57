"""Results that are made of others, where one of those cannot be read or kept: all is mended."""

import numpy as np
import pytest

from poskernel_core.api import build_request
from poskernel_core.common.errors import ComputeFailed
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import to_entry
from poskernel_core.models.stored import ENTRY
from poskernel_core.storage import store as store_module
from poskernel_core.storage.encoding import compressed, encode
from poskernel_core.storage.shipped import Shipped
from poskernel_core.storage.store import Store
from tests.support.disks import file_of

pytestmark = pytest.mark.usefixtures("near_workers")

PART = "etc"


@pytest.fixture(scope="module")
def request_():
    given = {"context": 48, "windows": 5, "params": {"query": 47}}
    return build_request("head-measures", "demo-attn-2l", **given)[0]


@pytest.fixture
def part(request_):
    return make_plan(request_).parts[PART].key


@pytest.fixture(scope="module")
def expected(request_, tmp_path_factory, near_workers):
    engine = Engine(Store(tmp_path_factory.mktemp("whole")))
    found = engine.result(request_)
    engine.close()
    return found, engine.store


@pytest.fixture
def engine(expected, fresh_engine):
    for key in expected[1].keys():  # noqa: SIM118 - a store is no mapping
        fresh_engine.store.put_bytes(key, expected[1].get_bytes(key))
    return fresh_engine


def test_a_part_that_cannot_be_read(engine, request_, part, expected):
    """A byte is another, or the layout is."""
    file = file_of(engine.store.directory, part)
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    assert engine.cached(request_) is None
    assert [PART] == engine.missing(request_)
    found = engine.result(request_)
    np.testing.assert_array_equal(expected[0].values["value"], found.values["value"])
    assert [] == engine.missing(request_)

    engine.store.put(part, {"number": 7}, {})
    other = Engine(engine.store)
    found = other.result(request_)
    np.testing.assert_array_equal(expected[0].values["value"], found.values["value"])
    other.close()


def test_a_part_that_comes_damaged_with_the_project(
    engine, request_, part, expected, tmp_path, monkeypatch
):
    """The worker reads what it would pass over, and so finds what the asker found."""
    data = bytearray(encode(part, *to_entry(expected[0])))
    data[-1] ^= 1
    (tmp_path / f"{part}{ENTRY}").write_bytes(compressed(bytes(data)))
    monkeypatch.setattr(store_module, "shipped", lambda: Shipped([tmp_path]))
    engine.store.drop(part)
    made = Engine(Store(engine.store.directory))

    found = made.result(request_)
    np.testing.assert_array_equal(expected[0].values["value"], found.values["value"])
    made.close()
    made.store.close()


@pytest.mark.parametrize("dropped", ["a result", "a part"])
def test_a_store_that_is_too_small(engine, request_, part, monkeypatch, dropped):
    """The computation ends with a sentence, so that nobody asks for it again and again."""
    asked = make_plan(request_)
    asked = asked.parts[PART] if dropped == "a result" else asked
    engine.store.drop(part)
    put = Store.put

    def drop_at_once(store, key, *entry):
        put(store, key, *entry)
        if key == part:
            store.drop(key)

    monkeypatch.setattr(Store, "put", drop_at_once)

    job = engine.submit(asked)

    assert job.wait(60)
    assert ComputeFailed is type(job.error)
    assert "the store is too small" in str(job.error)
