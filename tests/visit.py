"""What a visitor does on a page, for the tests in a browser."""

from contextlib import suppress

from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as TooSlow

PATIENCE = 60_000  # milliseconds; the machine may be busy with other work
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]"
QUERY, SKIP = "Query position n (tokens)", "Skip first keys (tokens)"

expect.set_options(timeout=PATIENCE)


def visit(page: Page, address: str) -> None:
    """Open an address and wait until the page is drawn, without progress bars left."""
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    settle(page)


def settle(page: Page) -> None:
    """Wait until the script has run and nothing is being computed."""
    with suppress(TooSlow):  # a rerun that was asked for just now begins within that time
        page.wait_for_selector(f":not({SETTLED})[data-testid=stApp]", timeout=300)
    expect(page.get_by_role("progressbar", name="progress")).to_have_count(0)
    page.wait_for_selector(SETTLED)


def cell(page: Page, name: str) -> Locator:
    """One cell of the grid."""
    return page.locator(f"[role=gridcell][data-name={name}]")


def slider(page: Page, name: str) -> Locator:
    """The handle of a slider."""
    return page.get_by_role("slider", name=name)


def values(page: Page) -> dict[str, str | None]:
    """What the sidebar says: model, head, query position and skip."""
    shown = {
        name: page.get_by_role("combobox", name=name, exact=True).input_value()
        for name in ("Model", "Corpus", "Head")
    }
    return shown | {
        name: slider(page, long).get_attribute("aria-valuetext")
        for name, long in (("query", QUERY), ("skip", SKIP))
    }


def choose(page: Page, label: str, option: str) -> None:
    """Choose in a select box."""
    page.get_by_role("combobox", name=label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def title_of(page: Page, card: str) -> Locator:
    """The title of a figure's card."""
    return page.locator(f".st-key-card-{card} h3")


def no_trouble(page: Page) -> None:
    """Nothing on the page complains: no error box, no traceback."""
    expect(page.get_by_test_id("stException")).to_have_count(0)
    expect(page.get_by_test_id("stAlert").filter(has_text="error")).to_have_count(0)
    expect(page.get_by_text("Traceback")).to_have_count(0)
