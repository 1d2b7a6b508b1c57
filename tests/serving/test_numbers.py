"""Numbers of all heads at an address of their own."""

import gzip

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from poskernel_core.analyses import find
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import plan_of
from poskernel_core.export.block import packed
from serving.kept import numbers_route

MODEL = "demo-attn-2l"


@pytest.fixture
def client(shipped):
    return TestClient(Starlette(routes=[numbers_route(lambda: shipped)])), shipped


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
    for key in ("nothing", "0123456789abcdef-00", request_of("sinks").key):
        answer = web.get(f"/numbers/{key}")
        assert 404 == answer.status_code
    assert "Expected kernels" in answer.text  # what is not drawn by offset
