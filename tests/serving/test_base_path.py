"""Below a base path behind a real Caddy, which passes the path on or removes it: all is there."""

import json
import os
import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.testclient import TestClient

from serving.address import below as below_base
from serving.page import page_routes
from tests.pages.test_downloads import fetch
from tests.pages.test_embed_alone import Frame
from tests.support.proxies import caddy, needs_caddy
from tests.support.server import ROOT, answer, serve
from tests.support.visit import cell, go, head_shown, no_trouble, settle, to_end, tool, visit

REMOVES = """
{$POSKERNEL_SITE} {
    handle_path /lab/heads/* {
        reverse_proxy {$UPSTREAM}
    }
}
"""


@pytest.fixture(params=["passed on", "removed"])
def root(request, tmp_path):
    """The address of the base path."""
    passed = request.param == "passed on"
    settings = {"POSKERNEL_READ_ONLY": "1"}
    if passed:
        settings["STREAMLIT_SERVER_BASE_URL_PATH"] = "lab/heads"
    (tmp_path / "Caddyfile").write_text(REMOVES)
    ours = os.path.relpath(tmp_path / "Caddyfile", ROOT / "deploy")
    with serve(tmp_path / "cache", tmp_path / "log", shipped=True, settings=settings) as server:
        at = server.url.rpartition("/")[2]
        told = {"POSKERNEL_UPSTREAMS": f"to {at}", "UPSTREAM": at}
        with caddy(tmp_path, "Caddyfile" if passed else ours, **told) as address:
            yield f"{address}/lab/heads"


@needs_caddy
@pytest.mark.browser
@pytest.mark.slow
def test_a_visit(root, new_context):
    page, asked = new_context().new_page(), []
    page.on("response", lambda got: asked.append((got.status, got.url)))
    page.on("websocket", lambda opened: asked.append((101, opened.url.replace("ws:", "http:"))))

    visit(page, f"{root}/etc_heatmap/?model=demo-gpt2&head=L1H2")
    assert f"{root}/?model=demo-gpt2&head=L1H2" == page.url
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(cell(page, "L2H6")).to_have_class(re.compile("curved"))  # a block of numbers came
    cell(page, "L2H6").click()
    expect(head_shown(page)).to_contain_text("L2H6")

    go(page, "Kernel")
    assert page.url.startswith(f"{root}/positional_kernels?")
    to_end(page)
    page.locator(".st-key-figure-layer").scroll_into_view_if_needed()
    expect(page.locator(".st-key-figure-layer .main-svg").first).to_be_visible()
    assert "L2H6" in fetch(page, "kernel", "JSON").suggested_filename
    with tool(page, "kernel", "Link") as body:
        link, code = body.locator("code").all_inner_texts()
    page.keyboard.press("/")
    page.keyboard.type("map")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Kernel")
    settle(page)
    assert page.url.startswith(f"{root}/?")
    page.reload()
    settle(page)
    no_trouble(page)

    frame = Frame()
    frame.feed(code)
    for copied in (link, frame.found["src"]):
        assert copied.startswith(f"{root}/positional_kernels?")
        page.goto(copied)
        settle(page)
        expect(page.locator(".st-key-card-kernel .curve .name")).to_contain_text("L2H6")

    asked = [each for each in asked if not each[1].startswith("blob:")]
    assert [] == [each for each in asked if each[0] >= 400 or not each[1].startswith(f"{root}/")]
    kinds = ("numbers", "static", "_stcore", "plotly.js", "media", "parts")
    assert {*kinds} <= {urlsplit(url).path.split("/")[3] for _, url in asked}
    assert "ok" == json.loads(answer(f"{root}/health")[2])["status"]


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("/lab/heads", "/lab/heads/"),
        ("/lab/heads?a=1&b=2", "/lab/heads/?a=1&b=2"),
        ("/lab/heads/etc_heatmap?a=1", "/lab/heads/?a=1"),
        ("/lab/heads/etc_heatmap/", "/lab/heads/"),
        ("/lab/heads/helix/?a=%26", "/lab/heads/helix?a=%26"),
        ("/etc_heatmap?a=1", "/?a=1"),
        ("/helix/?a=1", "/helix?a=1"),
        ("/lab/headsman", None),
        ("/lab", "/lab"),
    ],
)
def test_where_an_address_leads(asked, answered):
    app = below_base(Starlette(routes=page_routes()), "/lab/heads")
    found = TestClient(app, "http://a.org").get(asked)
    if answered is None:
        assert 404 == found.status_code
    else:
        assert (200, f"http://a.org{answered}") == (found.status_code, str(found.url))
