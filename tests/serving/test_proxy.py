"""The proxy of `compose.yaml` before two replicas on one store: a real Caddy, servers, browser."""

import json
import os
import signal

import pytest
from playwright.sync_api import expect

from tests.pages.test_downloads import fetch
from tests.support.near_worker import command_line_here
from tests.support.proxies import caddy, needs_caddy
from tests.support.server import answer, serve
from tests.support.visit import cell, complains, go, head_shown, no_trouble, settle, visit

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_caddy]

RUN = "windows=50&context=64"


@pytest.fixture
def replicas(tmp_path):
    cache = tmp_path / "cache"
    command_line_here(cache, "precompute", "demo-attn-2l", "--windows", "50", "--context", "64")
    with (
        serve(cache, tmp_path / "one.log") as one,
        serve(cache, tmp_path / "two.log") as two,
        caddy(
            tmp_path, "Caddyfile",
            POSKERNEL_UPSTREAMS=" ".join(["to", *(each.url.split("/")[-1] for each in (one, two))]),
        ) as address,
    ):  # fmt: skip
        yield [one, two], address


def sessions(server):
    return json.loads(answer(f"{server.url}/health")[2])["sessions"]


def cookie(page):
    """What leads a visitor back."""
    return [each["value"] for each in page.context.cookies() if "replica" in each["name"]]


def test_a_visit(replicas, new_context):
    """All comes from the replica of the first page; once it has failed, the other goes on."""
    servers, address = replicas
    page, packed = new_context().new_page(), []
    page.on("response", lambda got: packed.append(got.headers.get("content-encoding")))
    visit(page, f"{address}/?model=demo-attn-2l&{RUN}&head=L0H1")
    (mine,) = (each for each in servers if sessions(each))
    (other,) = (each for each in servers if each is not mine)
    led = cookie(page)
    assert 1 == len(led)
    assert {"zstd", "gzip"} & {*packed}

    cell(page, "L1H2").click()
    expect(head_shown(page)).to_contain_text("L1H2")
    settle(page)
    assert "L1H2" in fetch(page, "kernel", "JSON").suggested_filename
    page.reload()
    settle(page)
    go(page, "Overview")
    no_trouble(page)
    assert (1, 0) == (sessions(mine), sessions(other))
    text = "a%20sea%20" * 800
    visit(page, f"{address}/own_text?model=demo-attn-2l&{RUN}&text={text}")
    complains(page, "The text has 2,402 tokens with the start token")
    go(page, "Overview")

    os.kill(mine.pid, signal.SIGKILL)
    visit(page, page.url)
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    no_trouble(page)
    assert 1 == sessions(other)
    assert [] != cookie(page) != led
