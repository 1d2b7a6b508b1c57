"""The page on the heads of SmolLM2-135M: written from what ships, true of it, and not stale."""

import re

import numpy as np
import pytest

from tools.heads_page import TARGET, Numbers, page


@pytest.fixture(scope="module")
def written():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSKERNEL_SHIPPED", "1")
        return page()


def test_it_is_the_page_that_the_results_make(written):
    """`python tools/heads_page.py` writes it again."""
    assert TARGET.read_text("utf-8") == written


def test_every_number_has_its_error_and_its_link(written):
    rows = re.findall(r"^\| \[(L\d+H\d+)\]\((\S+)\) \|(.*)\|$", written, re.M)
    assert len(rows) > 20
    for head, link, numbers in rows:
        assert link.endswith(f"&head={head}")
        assert all("±" in each or each.strip() == "1.000" for each in numbers.split("|")[:1])


def test_a_head_does_something_where_its_whole_interval_does():
    """Its lower end decides."""
    numbers = Numbers(*(np.array([[each]]) for each in (0.4, 0.04, 0.32)))
    assert numbers.above(0.31)
    assert not numbers.above(0.33)
