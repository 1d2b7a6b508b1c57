"""The page about one head in a browser: words, measures, links; nothing is run before a press."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.pages.test_downloads import download
from tests.support.near_worker import command_line_here
from tests.support.server import serve
from tests.support.visit import (
    csv_rows,
    head_shown,
    move,
    no_trouble,
    parameter,
    settle,
    side_cell,
    values,
    visit,
)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of its own: what other tests have had computed would not wait for a press here."""
    root = tmp_path_factory.mktemp("head")
    command_line_here(root / "cache", "precompute", "demo-gpt2", "--windows", "50")
    with serve(root / "cache", root / "server.log") as started:
        yield started


LOCAL = re.compile(
    r"Local: by position (0\.9\d|1\.00) of its attention falls on the last 10 tokens; looks one "
    r"token back by negative self-attention \(P\(1\) 0\.(3\d|40)\)"
)


def test_everything_that_is_there(page, server):
    visit(page, server.link("/head", head="L2H6", seed=7))
    expect(page.get_by_text(LOCAL)).to_be_visible()
    expect(page.get_by_text("Measures not computed yet:")).to_contain_text("Induction heads")
    for figure in ("kernel", "profile"):
        expect(page.locator(f".st-key-own-{figure} .line.kernel")).to_be_visible()
    expect(page.locator(".st-key-figure-sinks .main-svg").first).to_be_visible()
    expect(page.get_by_role("button", name="Compute it").first).to_be_visible()
    expect(page.get_by_test_id("stProgress")).to_have_count(0)

    card = page.locator(".st-key-card-measures")
    row = card.get_by_role("row").filter(has_text="attention to the previous token")
    expect(row).to_contain_text(re.compile(r"0\.3\d+ ± [\d.]+"))
    expect(row).to_contain_text("1\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}32")
    expect(card.get_by_role("columnheader", name="Bias")).to_be_visible()
    expect(card.get_by_text(re.compile(r"^Errors count .+ 95 % interval"))).to_be_visible()
    rows = csv_rows(download(page, "measures", "CSV"))
    assert len(card.get_by_role("row").all()) - 1 == len({each["measure"] for each in rows})
    measure = "distance to observed attention"
    card.get_by_role("link", name=measure, exact=True).click()
    expect(page.get_by_role("combobox", name="Colour heads by")).to_have_value(measure)
    settle(page)
    names_lead_here_and_headings_on(page)
    no_trouble(page)


def names_lead_here_and_headings_on(page):
    """From the landing page in one click, with the same head and position; and onwards."""
    side_cell(page, "L1H3").click()
    move(page, "ArrowLeft")
    chosen = values(page)
    page.get_by_test_id("stMain").get_by_role("link", name="Everything about L1H3").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    settle(page)
    assert "L1H3" == chosen["Head"]
    assert chosen == values(page)
    expect(head_shown(page)).to_have_text(f"L1H3 at n = {chosen['query']}")
    expect(page.get_by_role("link", name="Everything about L1H3")).to_have_count(0)
    page.get_by_role("link", name="Diagonals").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Previous token")
    expect(page.get_by_role("heading", name=re.compile("^L1H3: "))).to_be_visible()
    assert "L1H3" == parameter(page, "head")


def test_experiments_wait_for_a_press(page, server):
    link = server.link("/head", model="demo-attn-2l", context=64, head="L1H0")
    visit(page, link)
    expect(page.get_by_text("Uniform: by position")).not_to_contain_text("induction")
    offers = page.get_by_role("button", name="Compute it")
    before = offers.count()
    page.locator(".st-key-compute-induction").get_by_role("button").click()
    expect(page.locator(".st-key-figure-induction .main-svg").first).to_be_visible()
    settle(page)
    expect(page.get_by_text("Uniform: by position")).to_contain_text("an induction head (0.")
    expect(offers).to_have_count(before - 1)
    page.get_by_role("button", name="Compute the remaining measures").click()
    expect(page.get_by_text("Measures not computed yet")).to_have_count(0)
    expect(page.get_by_text("decides its scores")).to_be_visible()
    expect(page.locator(".st-key-figure-shares .main-svg").first).to_be_visible()
    settle(page)
    where_it_attends_most_sharply(page)
    what_makes_the_sink(page)
    a_note_is_kept(page)
    no_trouble(page)


def a_note_is_kept(page):
    box = page.locator(".st-key-note-box")
    box.get_by_text("Note", exact=True).click()
    box.get_by_role("textbox").fill("spreads <b>evenly</b>\nsecond line")
    box.get_by_role("textbox").press("Control+Enter")
    settle(page)
    box.get_by_role("button", name="Keep the note").click()
    expect(box.get_by_text("Note: spreads <b>evenly</b>")).to_be_visible()
    with page.expect_download() as downloaded:
        box.get_by_role("button", name="All notes").click()
    told = json.loads(downloaded.value.path().read_text("utf-8"))
    assert [(each["model"], each["head"]) for each in told] == [("demo-attn-2l", "L1H0")]

    side_cell(page, "L0H6").click()
    expect(page.locator(".st-key-note-box").get_by_text("Note", exact=True)).to_be_visible()
    settle(page)
    visit(page, page.url.replace("L0H6", "L1H0"))
    expect(page.get_by_text("Note: spreads <b>evenly</b>")).to_be_visible()


def where_it_attends_most_sharply(page):
    page.locator(".st-key-compute-examples").get_by_role("button").click()
    card = page.locator(".st-key-card-examples")
    expect(card.get_by_text(re.compile(r"\d tokens? back\)"))).to_have_count(5)
    settle(page)
    told = re.findall(r"([\d.]+) of .*?\((\d+) tokens? back\)", card.inner_text(), re.DOTALL)
    assert "*" not in card.inner_text()
    shares = [float(share) for share, _ in told]
    assert len(shares) == 5
    assert shares == sorted(shares, reverse=True)
    assert all(int(back) < 64 for _, back in told)
    assert len(csv_rows(download(page, "examples", "CSV"))) > 4


def what_makes_the_sink(page):
    """One press for all heads: effects and arrangements, or why a head has none."""
    button = page.locator(".st-key-compute-anatomy").get_by_role("button")
    if button.count():  # else it was among the remaining measures
        button.click()
    card = page.locator(".st-key-card-anatomy")
    expect(card.get_by_text(re.compile(r"The sink of L1H0 follows position 0"))).to_be_visible()
    expect(page.locator(".st-key-figure-anatomy .main-svg").first).to_be_visible()
    rows = card.get_by_role("row")
    expect(rows).to_have_count(9)
    expect(rows.nth(1)).to_contain_text("start token (id 0), filler (id 1)")
    settle(page)
    expect(page.get_by_text("its sink follows position 0 (0.")).to_be_visible()
    side_cell(page, "L0H0").click()
    expect(page.get_by_text("L0H0 has no sink: the first key gets less than 0.3")).to_be_visible()
    side_cell(page, "L1H0").click()
    settle(page)
