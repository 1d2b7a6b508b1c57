"""What a page sends to the browser."""

import pytest

from tests.support.visit import go, visit

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("title", ["Kernel", "Previous token", "Context"])
def test_a_page_that_is_visited_again_is_sent_in_short(page, still, title):
    """Figures and tables that the browser has seen on one of the last pages are not sent again."""
    sent = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda each: sent.append(each)))
    visit(page, f"{still.url}/?model=smollm2-135m-instruct-q4")
    sizes = []
    for _ in range(2):
        sent.clear()
        go(page, title)
        sizes.append(sum(map(len, sent)))
        for other in ("Map", "Helix", "Text"):
            go(page, other)
    assert 2 * sizes[1] < sizes[0]
    assert sizes[1] < 80_000


@pytest.mark.parametrize(
    ("name", "most", "size"),
    [("", 79, 170), ("positional_kernels", 129, 1_000), ("methods", 50, 290)],
)
def test_a_visit_takes_few_messages(page, still, name, most, size):
    """And kilobytes: elements name their scripts, and do not bring them."""
    sent = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda each: sent.append(each)))
    visit(page, f"{still.url}/{name}?model=smollm2-135m-instruct-q4")
    assert len(sent) <= most
    assert sum(map(len, sent)) < 1_000 * size
