"""One card in a frame of a page of another origin: alone, with its identity, and at work."""

import re
import threading
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from poskernel_core import __version__
from tests.support.visit import IS_DARK, settle, tool, until, visit

pytestmark = pytest.mark.browser

ASKED = {"model": "demo-gpt2", "head": "L1H3", "query": "400", "skip": "4"}


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and tells nobody."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def blog(tmp_path_factory):
    """A folder of HTML pages, and the origin that serves it."""
    folder = tmp_path_factory.mktemp("blog")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.fixture
def post(page, blog, still):
    """Opens a page of the other origin that holds some HTML; returns the frame in it."""
    folder, origin = blog

    def opened(code, width=1000):
        (folder / "post.html").write_text(f"<!doctype html><h1>A post</h1>{code}", "utf-8")
        page.set_viewport_size({"width": width, "height": 900})
        answer = page.goto(f"{origin}/post.html")
        assert answer.status == 200
        frame = page.query_selector("iframe").content_frame()
        expect(frame.locator(".st-key-alone")).to_be_visible()
        settle(frame)
        return frame

    return opened


def code(still, path, **asked):
    query = "&amp;".join(f"{key}={escape(value)}" for key, value in asked.items())
    return f'<iframe src="{still.url}{path}?{query}" width="100%" height="650"></iframe>'


def has_only(frame, *cards):
    """Of the page, nothing but these cards is seen."""
    seen = frame.locator("[class*=st-key-card-]").filter(visible=True)
    expect(seen).to_have_count(len(cards))
    for card in cards:
        expect(frame.locator(f".st-key-card-{card}")).to_be_visible()
    for other in ("stSidebar", "stHeader", "stTopNavSection", "stToolbar"):
        expect(frame.get_by_test_id(other).filter(visible=True)).to_have_count(0)
    expect(frame.get_by_role("heading", level=1)).to_have_count(0)
    wide = frame.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


def test_the_code_of_the_menu_shows_the_card_alone(page, still, post):
    """What the menu offers to copy works elsewhere, and leads back to the same selection."""
    query = "&".join(f"{key}={value}" for key, value in ASKED.items())
    visit(page, f"{still.url}/positional_kernels?{query}")
    with tool(page, "kernel", "Link") as body:
        copied = body.locator("code").last.inner_text()
    assert "embed=card:kernel" in copied

    frame = post(copied)
    has_only(frame, "kernel")
    card = frame.locator(".st-key-card-kernel")
    for said in (
        "demo-gpt2, L1H3, n = 400,",
        "windows of 512 tokens, run ",
        f"PosKernel {__version__}",
    ):
        expect(card).to_contain_text(said)
    main = frame.get_by_test_id("stMain")
    high, room = main.evaluate("node => [node.scrollHeight, node.clientHeight]")
    assert high <= room  # no bar to scroll

    link = frame.get_by_role("link", name="Open the whole page")
    assert "attention" not in link.get_attribute("href")
    frame.locator(".curve").get_by_label("log attention").check()
    expect(link).to_have_attribute("href", re.compile("log=.*attention"))
    with page.context.expect_page() as opening:
        card.get_by_role("link", name="Open the whole page").click()
    whole = opening.value
    settle(whole)
    expect(whole.get_by_role("heading", level=1)).to_have_text("Kernel")
    expect(whole.get_by_test_id("stSidebar")).to_be_visible()
    link = urlsplit(whole.url)
    assert ("/positional_kernels", "kernel") == (link.path, link.fragment)
    expect(whole.locator(".curve .name").first).to_have_text("L1H3 at n = 400")
    frame_at, whole_at = (parse_qs(urlsplit(each).query) for each in (frame.url, whole.url))
    assert {"embed": ["card:kernel"], **whole_at} == frame_at | {"log": whole_at["log"]}
    assert "L1H3" == whole_at["head"][0]


def test_a_grid_works_in_its_frame(page, still, post):
    """A click on a head selects it; a light theme may be set for a dark machine."""
    page.emulate_media(color_scheme="dark")
    options = {"embed": "card:etc", "embed_options": "light_theme"}
    frame = post(code(still, "/", **options, **ASKED))
    has_only(frame, "etc")
    until(frame, f"!({IS_DARK})")
    frame.locator("[role=gridcell][data-name=L2H5]").filter(visible=True).first.click()
    link = frame.get_by_role("link", name="Open the whole page")
    expect(link).to_have_attribute("href", re.compile("head=L2H5"))


def test_the_theme_may_be_set(page, still, post):
    """The host of the post sets the theme, whatever the reader's machine has."""
    page.emulate_media(color_scheme="light")
    options = {"embed": "card:variance", "embed_options": "dark_theme"}
    frame = post(code(still, "/helix", model="demo-gpt2", **options), width=390)
    until(frame, IS_DARK)
    has_only(frame, "variance")
    tick = frame.locator(".st-key-figure-variance .xtick text").first
    expect(tick).to_have_css("fill", "rgb(201, 211, 218)")
