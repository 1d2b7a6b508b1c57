"""Numbers of all heads at an address of their own."""

import gzip

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from poskernel_core.analyses import find
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import plan_of
from poskernel_core.export.block import packed
from poskernel_core.storage.store import Store
from serving.numbers import numbers_route

MODEL = "demo-attn-2l"


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    engine = Engine(Store(tmp_path))
    yield TestClient(Starlette(routes=[numbers_route(lambda: engine)])), engine
    engine.close()


def request_of(name, **params):
    question = find(name)
    run = describe_run(MODEL)
    return plan_of(question, run, question.params(**params))


def test_a_stored_result_is_kept_by_the_browser_for_good(client):
    web, engine = client
    asked = request_of("kernel", query=127)
    answer = web.get(f"/numbers/{asked.key}")
    assert 200 == answer.status_code
    assert "immutable" in answer.headers["cache-control"]
    assert packed(engine.cached(asked)) == answer.content
    assert len(gzip.compress(answer.content)) < len(answer.content)


@pytest.mark.parametrize("key", ["nothing", "0123456789abcdef-00"])
def test_nothing_is_stored_there(client, key):
    assert 404 == client[0].get(f"/numbers/{key}").status_code


def test_what_is_not_drawn_by_offset_is_refused(client):
    answer = client[0].get(f"/numbers/{request_of('sinks').key}")
    assert (404, True) == (answer.status_code, "Expected kernels" in answer.text)
