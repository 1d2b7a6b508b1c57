"""What is said and drawn of what heads write, and the parts of the page that show it."""

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.jobs import results
from poskernel_core.analyses.reading import read
from poskernel_core.analyses.views import figure_of, finding_of
from poskernel_core.analyses.writing.spec import HeadWrites, LogitContributions
from tests.support.made_findings import check, found, made

NAN = np.nan
WORDS = ["one", " two", "\ufffd", "\ufffd"]
NAMES = ["one", "␣two", "\ufffd (5)", "\ufffd (7)"]
"""Two tokens that are parts of a character look the same."""
BY_KEY = np.array([[0.2, 1.1, 0.7], [0.1, 0.3, 0.5], [0.0, -0.1, 0.0], [-1.0, -2.0, 0.5]])


def writes():
    params = HeadWrites.params(head="L1H2", text="x").model_dump()
    values = {"contribution": BY_KEY.sum(axis=1), "by_key": BY_KEY, "chosen_query": np.array(2.0)}
    texts, ids = {"words": WORDS}, {"word": np.array([2, 3, 5, 7])}
    return HeadWrites.result(HeadWrites.params(**params), values, texts=texts, coordinates=ids)


def logit():
    values = {
        "head_contribution": np.array([[0.5, -0.25, NAN], [2.0, 0.75, 0.0]]),
        "mlp_contribution": np.array([1.5, NAN]),
        "rest_contribution": np.array([0.5, -1.0]),
        "logit": np.array(4.0),
        "chosen_query": np.array(2.0),
        "chosen_token": np.array(7.0),
    }
    texts = {"rest": ["embedding", "mean over the vocabulary"], "token": " two"}
    return LogitContributions.result(LogitContributions.params(text="x"), values, texts=texts)


def test_findings_of_one_text():
    check(
        finding_of(writes()), 'At token 2, L1H2 raises "one" most (+2.00 logits; key 1 alone +1.10)'
    )
    check(finding_of(writes()), 'lowers "\ufffd" most (\u22122.50).')
    check(finding_of(logit()), 'all heads add +3.00 to the logit of "␣two", and all MLPs +1.50')
    check(finding_of(logit()), "of the heads, L1H0 adds most (+2.00).")


def test_heads_that_copy():
    """In layer 0 by the embedding; of what lies below the limit nothing is told."""
    numbers = {
        "copying_share_first_layer": [[NAN, NAN], [0.9, 0.1]],
        "copying_share": [[0.7, 0.2], [0.1, 0.9]],
    }
    table = {"copying": made("copying", numbers, {})}
    verdicts = [read(table, *cell).verdict("it") for cell in ((0, 0), (1, 0))]
    check(verdicts[0], "raises 0.70 of frequent tokens, as the embedding leaves them (copies)")
    check(verdicts[1], "raises 0.90 of frequent tokens, as the first layer leaves them (copies)")
    assert [] == read(table, 1, 1).rest()
    check(found("copying", numbers, {}), "In 1 of 2 heads", "it is largest in L1H0 (0.90)")


def test_figures_draw_the_numbers():
    bars = figure_of(writes()).data[0]
    assert [2.0, 0.9, -0.1, -2.5] == pytest.approx([*bars.x])
    assert NAMES == [name[1:-1] for name in bars.y]
    assert [-1.0, -2.0, 0.5] == [*figure_of(writes().only("by_key"), place=3).data[0].x]
    heads = figure_of(logit()).data[0]
    assert 2.0 == heads.z[1][0] == heads.zmax == -heads.zmin


SHOWN = """
from types import SimpleNamespace
from pages.own_text import page

page.draw_heads = lambda *_: None
page.draw_writes(SimpleNamespace(cell="L1H2", run=None, located=SimpleNamespace(away="")), "x", 2)
"""


def test_the_page_asks_when_the_switch_is_on(monkeypatch):
    """For the selected head and query; then for the token that the reader names."""
    seen = []

    def fetch(question, _run, params):
        seen.append(params)
        return writes() if question is HeadWrites else logit()

    monkeypatch.setattr(results, "fetch", fetch)
    app = AppTest.from_string(SHOWN).run()
    assert not app.exception
    assert not seen
    app.toggle[0].set_value(True).run()
    assert not app.exception
    assert ("L1H2", 2) == (seen[0].head, seen[0].query)
    assert (None, 2) == (seen[1].token, seen[1].query)
    assert [*app.selectbox[0].options] == NAMES
    told = "The logit, 4.00, is +3.00 all heads, +1.50 all MLPs, +0.50 embedding"
    assert any(told in each.value for each in app.caption)
    app.text_input[0].set_value(" two").run()
    assert " two" == seen[-1].token
