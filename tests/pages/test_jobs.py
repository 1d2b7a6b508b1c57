"""A computation under way, in a browser: shared progress, cancel, ask again."""

import re
import time
from textwrap import indent

import pytest
from playwright.sync_api import expect

from tests.support.far_worker import AT_REPORTS
from tests.support.server import PATIENCE, serve
from tests.support.visit import (
    cell,
    cells,
    no_trouble,
    parameter,
    settle,
    side_cell,
    title_of,
    tool,
    values,
    visit,
)

pytestmark = pytest.mark.browser

WAITS = f"""
import pathlib, sys

if "poskernel_core.engine.worker" in sys.orig_argv:
    first, second = map(pathlib.Path(__file__).with_name, ("closed-first", "closed"))

    def holds(done, total):
        return total > 100 and (first.exists() or (done > 8 and second.exists()))
{indent(AT_REPORTS, "    ")}
elif "serve.py" in sys.orig_argv:
    import time
    from streamlit.runtime.app_session import AppSession
    from streamlit.runtime.scriptrunner import ScriptRunner

    busy, late = map(pathlib.Path(__file__).with_name, ("busy", "late"))
    ticks, usual = dict(), AppSession._handle_rerun_script_request
    run = ScriptRunner._run_script

    def begin(runner, told):
        time.sleep(late.exists())
        run(runner, told)

    def hear(session, state):
        usual(session, state)
        if state and state.fragment_id:
            ticks[session] = state
        elif session in ticks and busy.exists():
            time.sleep(1)
            usual(session, ticks[session])

    AppSession._handle_rerun_script_request, ScriptRunner._run_script = hear, begin
"""
"""What takes long is under way for as long as a gate is closed: before anything is shown of it, or
when windows 4 and 8 are. A busy server hears of the next tick of a clock once a run is over; on a
late one, runs begin a second late.
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A server with nothing in its cache; each test asks for what no other does."""
    root = tmp_path_factory.mktemp("jobs")
    (root / "sitecustomize.py").write_text(WAITS, "utf-8")
    settings = {"PYTHONPATH": str(root)}
    with serve(root / "cache", root / "server.log", settings=settings) as started:
        yield started


@pytest.fixture
def gate(fresh):
    """Closed: what computes waits until the test opens it."""
    closed = fresh.cache.with_name("closed")
    closed.touch()
    yield closed
    closed.unlink(missing_ok=True)


@pytest.fixture
def first_gate(fresh):
    """Closed: nothing is shown yet of what computes, until the test opens it."""
    closed = fresh.cache.with_name("closed-first")
    closed.touch()
    yield closed
    closed.unlink(missing_ok=True)


@pytest.fixture
def two(new_context):
    return [new_context().new_page() for _ in range(2)]


def ask(page, server, texts=200, context=256):
    """Ask for a run that nobody has computed, and do not wait for it."""
    page.set_default_timeout(60_000)
    page.goto(server.link(windows=texts, context=context))


def date(page):
    """The moment at which the pass behind the heat map was done."""
    with tool(page, "etc", "Provenance") as body:
        text = body.get_by_text("Corpus sample").inner_text()
    return re.search(r"\d{4}-\d\d-\d\dT[\d:]+\+00:00", text)[0]


def test_shared_progress_and_cancel_by_one_then_by_both(fresh, two, first_gate):
    """The work goes on for the other reader; when both have cancelled, either can ask again."""
    for page in two:
        ask(page, fresh)
    for page in two:
        expect(page.get_by_text("for demo-gpt2")).to_be_visible()
        expect(page.get_by_role("progressbar", name="progress")).to_be_visible()
    two[0].get_by_role("button", name="Cancel").click()
    expect(two[0].get_by_text("goes on for other readers")).to_be_visible()
    expect(two[1].get_by_role("button", name="Cancel")).to_be_visible()
    two[0].get_by_role("button", name="Wait for it again").click()
    expect(two[0].get_by_role("progressbar", name="progress")).to_be_visible()
    two[0].get_by_role("button", name="Cancel").click()
    expect(two[0].get_by_text("goes on for other readers")).to_be_visible()
    two[1].get_by_role("button", name="Cancel").click()
    for page in two:  # the first one, who had left, sees that it goes on no longer
        expect(page.get_by_text("was cancelled").first).to_be_visible()
        expect(page.get_by_text("goes on for other readers")).to_have_count(0)
    first_gate.unlink()
    two[0].get_by_role("button", name="Go on").first.click()
    again = two[1].get_by_role("button", name="Go on")  # unless it has seen that it goes on
    again.evaluate_all("found => found[0]?.click()")
    for page in two:
        expect(cells(page)).to_have_count(32)
        settle(page)
        no_trouble(page)
    assert date(two[0]) == date(two[1])


def test_cancelled_before_anything_is_shown(fresh, two, first_gate, gate):
    """What the page would have shown next is cancelled too; what forms for others is seen."""
    for page in two:
        ask(page, fresh, texts=199)
        expect(page.get_by_role("progressbar", name="progress")).to_be_visible()
    two[0].get_by_role("button", name="Cancel").click()
    expect(two[0].get_by_text("goes on for other readers")).to_be_visible()
    first_gate.unlink()
    for page in two:
        expect(bar(page)).to_contain_text("8 windows shown")
        expect(page.locator(".curve .point.kernel").first).to_be_visible()
    expect(bar(two[0])).to_contain_text("It goes on for other readers")
    expect(two[0].get_by_role("button", name="Cancel")).to_have_count(0)
    two[1].get_by_role("button", name="Cancel").click()
    for page in two:
        expect(bar(page)).to_contain_text("was cancelled")
        expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
        no_trouble(page)


def test_what_a_run_says_last_is_seen(fresh, two, gate):
    """Also if its thread is over when a busy server is asked for a part of the page."""
    page = two[0]
    ask(page, fresh, context=64)
    expect(cells(page)).to_have_count(32)
    busy = fresh.cache.with_name("busy")
    busy.touch()
    try:
        for name in ("L1H2", "L0H3"):
            cell(page, name).click()
            expect(page).to_have_title(re.compile(f"· {name} of"))
            expect(page.locator("html[data-behind]")).to_have_count(0)
    finally:
        busy.unlink()
    no_trouble(page)


def test_what_is_pressed_just_before_a_choice_is_done(fresh, page):
    """The run that a press asks for gives way to that of the choice before it has begun."""
    visit(page, fresh.link("/methods", head="L0H1"))
    late = fresh.cache.with_name("late")
    late.touch()
    button = page.get_by_role("button", name="Pin L0H1")
    button.and_(page.locator(".st-key-pin-head *")).dispatch_event("click")
    side_cell(page, "L1H2").dispatch_event("click")
    expect(page).to_have_title(re.compile("L1H2"))
    late.unlink()
    assert "L0H1" in parameter(page, "pins")
    no_trouble(page)


class SlowLine:
    """What a page and its server tell each other, held back where a test wants it.

    While it is slow, the page's words are lost, but for one click and the last that `may_pass`,
    which end it; those of the server wait.
    """

    def __init__(self, page):
        self.slow, self.held, self.may_pass, self.click = False, [], 0, b""
        page.route_web_socket(re.compile("/_stcore/stream"), self._carry)

    def _carry(self, line):
        self.line, server = line, line.connect_to_server()
        line.on_message(lambda what: self._up(server, what))
        server.on_message(self._down)

    def _up(self, server, what):
        if self.slow and self.click and self.click in what:
            self.click = b""
        elif self.slow and self.may_pass:
            self.may_pass -= 1
            if not self.may_pass:
                self.quicken()
        elif self.slow:
            return
        server.send(what)

    def _down(self, what):
        if self.slow:
            self.held.append(what)
        else:
            self.line.send(what)

    def quicken(self):
        """Bring what was held back, in its order, and all that follows."""
        while self.held:
            self.line.send(self.held.pop(0))
        self.slow = False


def test_a_click_while_a_computation_ends(fresh, two, gate):
    """Until its answer comes on a slow line, what the page asks by the clock names the old head."""
    line = SlowLine(two[0])
    for page in two:
        page.set_default_timeout(60_000)
        page.goto(fresh.link("/induction_recency", model="demo-attn-2l", samples=100))
        expect(cells(page)).to_have_count(16)
    page, other = two
    expect(page.get_by_role("progressbar", name="progress").first).to_be_visible()
    line.click, line.slow = b"L1H2", True
    cell(page, "L1H2").click()
    gate.unlink()
    settle(other)
    expect(other.locator(".st-key-figure-norms .main-svg").first).to_be_visible()
    line.may_pass = 2
    end = time.monotonic() + PATIENCE
    while line.slow:  # until what the page asks by the clock has come
        assert time.monotonic() < end, "waited in vain"
        page.evaluate("() => new Promise(requestAnimationFrame)")
    settle(page)
    expect(title_of(page, "candidates")).to_contain_text("L1H2")
    assert "L1H2" == parameter(page, "head") == values(page)["Head"]
    no_trouble(page)


def bar(page):
    """The bar of the results that form."""
    return page.locator(".st-key-forming")


def stage(page):
    """Of how many windows the page shows results."""
    found = re.search(r"([\d,]+)( of 2,000)? windows", bar(page).inner_text())
    return int(found[1].replace(",", ""))


def test_results_form_and_stop_and_go_on(fresh, two, gate):
    """Pictures of the first windows for everybody; stop keeps them as a run, and it goes on."""
    page, other = two
    for each in two:
        ask(each, fresh, texts=2000, context=128)
    expect(cells(page)).to_have_count(32)
    expect(bar(page)).to_contain_text(" windows shown. Reading windows of text: ")
    assert 4 <= stage(page) < 2000
    expect(page.locator(".curve .point.kernel").first).to_be_visible()
    expect(bar(other)).to_contain_text(" windows shown. Reading windows of text: ")
    other.get_by_role("button", name="Cancel").click()
    expect(bar(other)).to_contain_text("goes on for other readers")
    expect(cells(other)).to_have_count(32)

    bar(page).get_by_role("button", name="Stop here").click()
    gate.unlink()
    expect(bar(page)).to_contain_text("Stopped after")
    windows = int(parameter(page, "windows"))
    assert windows == stage(page)
    settle(page)
    with tool(page, "etc", "Provenance") as body:
        expect(body.get_by_text(f"{windows:,} windows of 128 tokens")).to_be_visible()
    no_trouble(page)

    bar(page).get_by_role("button", name="Go on").click()
    expect(bar(page).get_by_role("button")).to_have_count(0)
    settle(page)
    assert parameter(page, "windows") == "2000"
    with tool(page, "etc", "Provenance") as body:
        text = body.get_by_text("windows of 128 tokens").inner_text()
    assert windows < int(re.search(r"([\d,]+) windows", text)[1].replace(",", "")) <= 2000
    no_trouble(page)
