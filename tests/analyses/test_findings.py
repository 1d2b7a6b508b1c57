"""Findings: one sentence from tested rules, and none where a 95 % interval holds the limit."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.views import finding_of
from poskernel_core.common.result import NORMAL
from poskernel_core.engine.provenance import from_entry
from poskernel_core.models.stored import RESULTS
from poskernel_core.storage.shipped import Shipped
from tests.support.made_findings import check, made

L3H4 = {"layer": 3, "head": 4}
AT = {"query": 400, **L3H4}
OFFSETS = 13


def one_head(analysis, name, at=L3H4, **rest):
    """A maker of results in which one head has a number with an error, and exact others."""
    return lambda v, e: made(analysis, {name: v, **rest}, {name: e}, chosen=at)


def heads(analysis, name, **more):
    """A maker of results of 2 layers of 3 heads that all have the same number."""
    return lambda v, e: made(analysis, {name: np.full((2, 3), v)}, {name: e}, **more)


def one_of(analysis, name, others, **more):
    """A maker of results of all heads in which the number of L1H0 differs from the others'."""

    def make(v, e):
        every = np.full((2, 3), others)
        every[1, 0] = v
        return made(analysis, {name: every}, {name: e}, **more)

    return make


def profile(v, e):
    return made("profile", {"profile": [0.01, v, 0.02, *[0.0] * 8]}, {"profile": e}, chosen=L3H4)


def profiles(v, e):
    """The diagonals of all heads; only L1H2 may attend to the previous token."""
    every = np.full((2, 3, 7), 0.3)
    every[1, 2, 1] = v
    return made("profile", {"profile": every}, {"profile": e})


def learned_sink(v, e):
    """A head of which it is open whether it has a sink on the first key."""
    numbers, errors = {"sink": 0.29, "learned_sink": v}, {"sink": 0.05, "learned_sink": e}
    return made("sinks", numbers, errors, chosen=L3H4)


def distances(v, e):
    pairs = v * (1 - np.eye(3))
    return made("kernel-distances", {"distance": pairs}, {"distance": e}, chosen={"layer": 3})


def shares(v, e):
    shares = {"position_share": [0.2, v, v], "content_share": [0.1, 0.1, 0.1]}
    errors = {"position_share": e, "content_share": e}
    places = {"query": np.array([15, 31, 63])}
    return made("score-variance", shares, errors, chosen=L3H4, coordinates=places)


def places(v, e):
    """One head's shares at three query positions; the last counts."""
    shares = {"place_share": [0.9, 0.2, 0.1], "content_share": [0.0, 0.1, 0.1]}
    shares["both_share"] = [0.1, 0.7, v]
    at = {"query": np.array([15, 31, 63])}
    errors = dict.fromkeys(shares, e)
    return made("place-and-content", shares, errors, chosen=L3H4, coordinates=at)


def anatomy(v, e):
    """One head with a sink; it is open what it follows but for the number."""
    numbers = {"sink": 0.8, "standing_first": v, "position_zero": 0.02, "start_token": 0.0}
    numbers |= {"key_effect": 0.0, "query_effect": 0.0}
    return made("sink-anatomy", numbers, {"standing_first": e}, chosen=L3H4)


def anatomy_of_heads(v, e):
    """Two heads of six have a sink."""
    every = np.array([[v, np.nan, np.nan], [np.nan, v, np.nan]])
    numbers = {"standing_first": every, "position_zero": 0 * every, "start_token": 0 * every}
    numbers["sink"] = np.where(np.isnan(every), 0.1, 0.8)
    return made("sink-anatomy", numbers, {"standing_first": e})


def caches(v, e):
    """Two layers; in the first, both caches need 0.3."""
    numbers = {"cache_for_95": [0.3, v], "fixed_cache_for_95": [0.3, 0.3]}
    errors = {"cache_for_95": [0.0, e], "fixed_cache_for_95": [0.0, 0.0]}
    return made("foreseen-attention", numbers, errors)


def contextual(v, e):
    """One head of the contextual group; the number is its denominator's CV."""
    numbers = {"etc": 120.0, "near_duplicates": 0.0, "far_duplicates": 0.01, "group": 2}
    errors = {"denominator_cv": e, "near_duplicates": 0.01, "far_duplicates": 0.01}
    return made("contextual-heads", numbers | {"denominator_cv": v}, errors, chosen=L3H4)


def duplicates(v, e):
    numbers = {"duplicate_attention": [0.02, v + 0.1], "baseline": [0.02, 0.1]}
    errors = {"duplicate_attention": e, "baseline": 0.0}
    places = {"distance": np.array([4, 32])}
    return made("contextual-heads", numbers, errors, chosen=L3H4, coordinates=places)


L0H4 = {"params": {"head": "L0H4"}}


def denominators(v, e):
    numbers = {"denominator_cv": [0.5, v], "predicted_cv": [0.5, 0.3]}
    at = {"query": np.array([7, 400])}
    return made("denominators", numbers, {"denominator_cv": e}, coordinates=at, **L0H4)


def mean_denominator(v, e):
    at = {"query": np.array([7, 31, 400])}
    return made("denominators", {"mean": [1.5, 1.7, v]}, {"mean": e}, coordinates=at, **L0H4)


def token_weights(v, e):
    """The first word has the largest weight, and was seen too seldom to tell."""
    numbers = {"log_weight": [9.0, v, -2.0], "top_value": [9.0, v, -2.0]}
    texts = {"top_words": ["rare", " saith", "the"]}
    return made("token-weights", numbers, {"log_weight": [9.0, e, e]}, texts=texts, **L0H4)


def contrast(v, e):
    numbers = {"self_contrast": v, "previous_contrast": -0.9}
    return made("previous-token", numbers, dict.fromkeys(numbers, e), chosen=L3H4)


def two_pins(v, e):
    texts = {"heads": ["L3H4", "L0H1@demo-gpt2"]}
    return made("compare-kernels", {"distance": [[0, v], [v, 0]]}, {"distance": e}, texts=texts)


def pinned_kernels(v, e):
    kernels = np.zeros((2, OFFSETS))
    kernels[:, 3], kernels[:, 11] = v, 1 - v
    errors = np.zeros_like(kernels)
    errors[:, 3] = e
    texts = {"heads": ["L3H4", "L0H1"]}
    return made("compare-kernels", {"kernel": kernels}, {"kernel": errors}, texts=texts)


STEPS = {"coordinates": {"step": np.array([0, 512, 4096])}}
INDUCTION = {"measure": "induction score"}


def trained(v, e):
    numbers = {"measure": [0.0, 0.1, v], "change": v}
    return made("over-training", numbers, {"change": e}, chosen=L3H4, params=INDUCTION, **STEPS)


def trained_heads(v, e):
    changes = {"change": np.full((2, 3), v), "measure": np.ones((3, 2, 3))}
    return made("over-training", changes, {"change": e}, params=INDUCTION, **STEPS)


def trained_kernel(v, e):
    etc, params = {"etc": [40.0, 30.0, v]}, {"head": "L3H4"}
    return made("kernel-over-training", etc, {"etc": e}, params=params, **STEPS)


HELD = [
    (one_head("etc", "local_mass", AT, etc=3.2, visible_keys=398), 0.5, 0.97,
     "L3H4 gives 0.97 of its attention beyond the first 4 keys to the last 10 tokens at n = 400"),
    (one_head("etc", "etc", AT, local_mass=0.1, visible_keys=398), 199, 301,
     "301 of 398 tokens|a uniform kernel (limit 199 tokens)"),
    (one_head("etc", "etc", AT, local_mass=0.1, visible_keys=398), 199, 41,
     "41 of 398 tokens at n = 400: slow decay"),
    (one_head("etc", "attention_distance", AT), 0.5, 0.06,
     "is 0.06 (total|: near it (limit 0.5)"),
    (heads("etc", "attention_distance", chosen={"query": 400}), 0.5, 0.71,
     "At n = 400, in 6 of 6 heads|0.5 or more|L0H0 (0.71, not to be told from 5 others)"),
    (one_of("etc", "equivariance_error", 0.25, chosen={"query": 400}), 0.25, 0.75,
     "largest in L1H0 (0.75) and smallest in L0H0 (0.25, not to be told from 4 others)"),
    (one_head("kernel", "attention_distance"), 0.5, 0.71,
     "is 0.71 (total|: far from it (limit 0.5)"),
    (heads("kernel", "local_mass", params={"query": 400}), 0.5, 0.31,
     "in none of 6 heads|(0.31, not"),
    (distances, 0.5, 0.9, "3 of 3 pairs of heads of layer 3|those of 0 less than 0.1"),
    (profile, 0.3, 0.87, "L3H4 gives the previous token 0.87"),
    (profile, 0.3, 0.08,
     "L3H4 gives the previous token 0.08|: weakly a previous-token head (limit 0.3)"),
    (profiles, 0.3, 0.87, "In 1 of 6 heads|0.3 or more|L1H2 (0.87)"),
    (one_head("entropy", "entropy", AT), math.log(397), 3.5, "3.5 nats|33.1 of 397 tokens"),
    (one_of("entropy", "entropy", 1.5, chosen={"query": 400}), 1.5, 0.25,
     "At n = 400, the attention entropy is largest in L0H0 (1.5 nats, not|4 others) and "
     "smallest in L1H0 (0.25 nats)"),
    (lambda v, e: made("sinks", {"alpha": [v, 0.9]}, {"alpha": e}, chosen=L3H4), 0.3, 0.62,
     "L3H4 gives the first key 0.62|: a sink (limit 0.3)"),
    (lambda v, e: made("sinks", {"alpha": [v, 0.9]}, {"alpha": e}, chosen=L3H4), 0.3, 0.06,
     "the first key 0.06|: weakly a sink (limit 0.3)"),
    (lambda v, e: made("sinks", {"alpha": [v, 0.9]}, {"alpha": e}, chosen=L3H4), 0.3, 0.002,
     "the first key 0.00|: no sink (limit 0.03)"),
    (learned_sink, 0.3, 0.5, "L3H4 gives 0.50 of its attention to a learned sink"),
    (one_of("sinks", "sink", 0.3), 0.3, 0.62, "In 1 of 6 heads|L1H0 (0.62)"),
    (anatomy, 0.1, 0.61, "what stands first (+0.61), not position 0 (+0.02) nor the start token"),
    (anatomy_of_heads, 0.1, 0.61, "2 heads with a sink|stands first in 2, position 0 in none"),
    (one_head("foreseen-attention", "gain_32", share_32=0.68, visible_keys=401), 0, 0.12,
     "32 of 401 keys|0.68|more than the first 4 and the last 28 keys get (0.56)"),
    (one_head("foreseen-attention", "gain_32", share_32=0.68, visible_keys=401), 0, -0.12,
     "less than the first 4 and the last 28 keys get (0.80)"),
    (one_of("foreseen-attention", "gain_32", 0.0), 0, 0.12,
     "in 1 of 6 heads, and less in none."),
    (caches, 0.3, 0.82, "fewer keys than the first 4 and the last ones in none of 2 layers, and m"),
    (caches, 0.3, 0.12, "in 1 of 2 layers, and more in none"),
    (one_head("score-variance", "position_share", AT, content_share=0.1), 0.5, 0.82,
     "Position explains 0.82 of the variance of L3H4's scores over keys at n = 400"),
    (shares, 0.5, 0.82, "Position|at 2 of 3 query positions, most at n = 31 (0.82)"),
    (heads("score-variance", "content_share", chosen={"query": 400}), 0.5, 0.82,
     "in 6 of 6 heads|explained by content"),
    (one_head("place-and-content", "place_share", AT, content_share=0.1, both_share=0.1), 0.5, 0.82,
     "place would explain 0.82|at n = 400"),
    (places, 0.5, 0.82, "only place and content together would explain 0.82|at n = 63"),
    (one_of("place-and-content", "content_share", 0.5, chosen={"query": 400}), 0.5, 0.82,
     "in 1 of 6 heads|explained by content|L1H0 (0.82)"),
    (one_head("headvis", "prev_token_score"), 0.3, 0.82, "the previous token is 0.82 in L3H4"),
    (one_of("headvis", "qk_distance", 7.0), 7, 19.0,
     "largest in L1H0 (19 tokens) and smallest in L0H0 (7 tokens, not"),
    (one_head("head-examples", "mean_max_activation"), 0.3, 0.1, "0.10 in L3H4, below the limit"),
    (one_head("previous-token", "largest_mass", largest_offset=5), 0.3, 0.87, "5 back 0.87"),
    (contrast, 0, -1.5, "current token itself 1.5 nats below"),
    (one_of("previous-token", "ratio", 0.9), 0.9, 0.25, "below 0.9|L1H0 (0.25)"),
    (one_head("additivity", "interaction_share", position_share=0.1, content_share=0.2), 0.5, 0.7,
     "The interaction|0.70|L3H4, more than half"),
    (one_head("additivity", "content_similarity", {"shift": 7, **L3H4}), 0, 0.98,
     "Moved by 7 tokens|L3H4 has a cosine of 0.98"),
    (contextual, 0.25, 0.08,
     "L3H4's softmax denominator varies by 0.08 of its mean|: a contextual head (limit 0.25)"),
    (duplicates, 0.3, 0.7, "L3H4 gives far duplicates of the current token 0.70 more"),
    (one_of("contextual-heads", "far_duplicates", 0.3), 0.3, 0.7, "In 1 of 6 heads|L1H0 (0.70)"),
    (denominators, 0.3, 0.08, "At n = 400|L0H4 varies by 0.08|less than the 0.30 of independent"),
    (mean_denominator, 1.5, 3.5, "L0H4 rises from 1.5 at n = 7 to 3.5 at n = 400"),
    (token_weights, 0, 2.0, "L0H4 weights «␣saith» up|7.39 times|at least 7.25 times"),
    (two_pins, 0.5, 0.97, "L3H4 and L0H1 demo-gpt2 are 0.97 apart|more than 0.5"),
    (pinned_kernels, 0.5, 0.97, "2 of 2 kernels|L3H4 has most, 0.97"),
    (trained, 0, 0.85, "L3H4 rose from step 0 to step 4,096: from 0 to 0.85"),
    (trained_heads, 0, -0.25, "6 of 6 heads changed|L0H0 (by −0.25)"),
    (trained_kernel, 40, 3.5, "over 40 tokens at step 0, and over 3.5 tokens at step 4,096"),
]  # fmt: skip
"""A maker of a result from a number and its error, the limit, a number, and what it says of it."""

LIMITS = [row[:2] for row in HELD]


@pytest.mark.parametrize(("make", "limit", "value", "parts"), HELD)
def test_what_is_said(make, limit, value, parts):
    """And nothing without a known error."""
    check(finding_of(make(value, 0.01)), *parts.split("|"))
    assert "" == finding_of(make(value, math.nan))


@pytest.mark.parametrize(("make", "limit"), LIMITS)
@given(share=st.floats(-0.99, 0.99), error=st.floats(0.001, 0.2))
def test_nothing_is_said_where_the_interval_holds_the_limit(make, limit, share, error):
    assert "" == finding_of(make(limit + share * NORMAL * error, error))


def said_of(*args, **more):
    return finding_of(made(*args, **more))


def test_kinds_of_all_heads():
    """A head that may be local, or may not, counts among neither."""
    numbers = {
        "etc": [[3.0, 300.0, 40.0], [3.0, 300.0, 200.0]],
        "local_mass": [[0.9, 0.1, 0.1], [0.52, 0.48, 0.1]],
        "visible_keys": np.full((2, 3), 397.0),
    }
    asked = {"errors": {"etc": 5.0, "local_mass": 0.05}, "chosen": {"query": 400}}
    check(said_of("etc", numbers, **asked), "1 of 6 heads is local", "and 1 uniform")
    assert "" == said_of("etc", numbers | {"local_mass": np.full((2, 3), 0.5)}, **asked)


def test_contextual_heads():
    limit = {"denominator_cv": [[0.1, 0.25, 0.1], [0.1, 0.4, 0.1]]}
    numbers = {
        "etc": np.full((2, 3), 100.0),
        "near_duplicates": [[0.0, 0.0, 0.3], [0.0, 0.0, np.nan]],
        "far_duplicates": np.zeros((2, 3)),
        "group": [[2, 2, 2], [1, 3, 2]],
    }
    errors = dict.fromkeys(("denominator_cv", "near_duplicates", "far_duplicates"), 0.02)
    check(said_of("contextual-heads", numbers | limit, errors), "2 of 6 heads are cont")
    open_ = numbers | {"denominator_cv": np.full((2, 3), 0.25)}
    assert "" == said_of("contextual-heads", open_, errors)
    for few, word in ((0.002, ": not drawn to duplicates (limit 0.03)."), (0.02, "tokens there."),
                      (0.15, ": weakly a duplicate-token head (limit 0.3).")):  # fmt: skip
        check(finding_of(duplicates(few, 0.01)), "duplicates of the current token 0.", word)


def test_attention_on_one_text():
    pattern = np.zeros((7, 7))
    pattern[0, 0] = 1
    for back, share, place in ((0, 0.75, "current token"), (0, 0.25, "first key")):
        for query in range(1, 7):
            pattern[query] = 0
            pattern[query, 0] = 1 - share
            pattern[query, max(0, query - back)] += share
        said = said_of("stages", {"pattern": pattern}, params={"head": "L3H4"})
        check(said, f"L3H4 gives the {place} 0.75 of its attention")


def test_a_map_from_query_to_query():
    """The first row sees a single key, so that its two distributions must agree."""
    kernel = [[1.0, np.nan, np.nan], [0.5, 0.5, np.nan], [0.5, 0.25, 0.25]]
    observed = [[1.0, np.nan, np.nan], [0.75, 0.25, np.nan], [0.0, 0.5, 0.5]]
    asked = {"coordinates": {"query": np.array([0, 1, 2])}, "params": {"head": "L3H4"}}
    said = said_of("kernel-map", {"kernel": kernel, "observed": observed}, **asked)
    check(said, "From n = 1 to n = 2", "L3H4 are 0.25 to 0.50 apart")


@pytest.mark.parametrize(("error", "told"), [(0.01, True), (0.2, False)])
def test_a_kernel_and_an_attention_with_other_peaks(error, told):
    """Said only where each peak can be told from the rest of its curve."""
    numbers = {"kernel": [0.1, 0.2, 0.7], "observed": [0.1, 0.7, 0.2], "attention_distance": 0.25}
    errors = {"kernel": error, "observed": error, "attention_distance": 0.01}
    asked = {"chosen": {"layer": 2, "head": 6}, "params": {"query": 2}}
    said = said_of("kernel", numbers, errors, **asked)
    peaks = "; the kernel is largest at the current token, the observed attention 1 token back."
    assert told == said.endswith(peaks)
    check(said, "L2H6's mean attention", "near it (limit 0.5)")
    same = numbers | {"observed": numbers["kernel"]}
    assert said_of("kernel", same, errors, **asked).endswith("near it (limit 0.5).")


def test_pairs_of_kernels():
    """Pairs within a layer count, each once; two pins may be alike."""
    gaps = np.zeros((2, 3, 3))
    gaps[0, 0, 1] = gaps[0, 1, 0] = 0.9
    gaps[1, 0, 2] = gaps[1, 2, 0] = 0.5
    said = said_of("kernel-distances", {"distance": gaps}, {"distance": 0.02})
    check(said, "The kernels of 1 of 6 pairs of heads", "those of 4 less than 0.1")
    gaps[1, 0, 1] = gaps[1, 1, 0] = 0.09
    said = said_of("kernel-distances", {"distance": gaps}, {"distance": 0.02})
    check(said, "those of 3 less than 0.1 (1 more can't be told)")
    check(finding_of(two_pins(0.02, 0.01)), "0.02 apart", "less than 0.1")
    assert "" == finding_of(two_pins(0.3, 0.01))


def test_measures_side_by_side_are_held_against_each_other():
    def said(*scores, others=1):
        numbers = {"z_score": [[0.0] + [each] * others for each in scores]}
        heads = ["L3H4", "L0H1", "L2H2"][: others + 1]
        return said_of("compare-heads", numbers, texts={"heads": heads})

    check(said(-7.0, 2.9, 1.9, 0.5, np.nan), "In 2 of 4 measures", "more than their errors")
    many = said(-7.0, 2.9, 1.9, 0.5, others=2)
    check(many, "In 4 of 8 measured differences the 2 other heads and L3H4 differ")
    assert "" == said(2.0, -1.9, 0.0)


def test_a_measure_by_depth_and_at_a_step():
    said = said_of("depth", {"mean": [7.0, np.nan, 19.0, 3.5]}, params={"measure": "some measure"})
    check(said, "mean some measure", "largest in layer 2 (19) and smallest in layer 3 (3.5)")
    assert "" == said_of("depth", {"mean": [7.0, 7.0]})
    every = {"measure": [[0.1, 0.2, 0.1], [0.1, 0.9, 0.1]]}
    asked = {"chosen": {"step": 4096}, "params": INDUCTION}
    said = said_of("over-training", every, {"measure": 0.01}, **asked)
    check(said, "at step 4,096 is largest in L1H1 (0.90) and smallest in L0H0 (0.10, not")
    kinds = {"labels": {"measure": ("local", "uniform")}}
    assert "" == said_of("over-training", every, **asked, **kinds)


def test_enough_texts():
    """Numbers of windows are uncertain by a third."""
    measure = {"measure": "attention sink"}
    asked = {"params": measure, "coordinates": {"subset": np.array([100, 500])}}
    rows = (31, "fewer"), (310, ""), (500, ""), (2000, "more"), (np.inf, "")
    for enough, more in rows:
        numbers = {"enough": float(enough), "wanted": 0.02, "error": np.ones(2)}
        said = said_of("how-many-texts", numbers, chosen=L3H4, **asked)
        assert bool(more) == bool(said)
        if more:
            check(said, "0.02", "sink of L3H4", f"{enough:,} windows", f"{more} than the 500")
    numbers = {"enough": [[31.0, 310.0, 2000.0], [7.0, np.inf, np.nan]], "wanted": np.ones((2, 3))}
    numbers["error"] = np.ones((2, 2, 3))
    check(said_of("how-many-texts", numbers, **asked), "The 500 windows", "2 of 4 heads")


@pytest.mark.parametrize(("position", "text"), [
    ((0.99, 0.01), "position explains 0.99 of"),
    ((1.01, 0.02), "position explains 1 (within its error) of"),
    ((1.31, 0.02), "position explains 1.31 (above 1: content opposes it) of"),
])  # fmt: skip
def test_a_share_above_one_says_why(position, text):
    share, error = position
    shares = {"position_share": share, "content_share": 0.1}
    assert text in said_of("score-variance", shares, {"position_share": error}, chosen=AT).lower()


def test_verdicts():
    begins = [["sink", "kernel", "sink"], ["", "look back", "kernel"]]
    said = said_of("verdicts", {}, texts={"headline": begins})
    check(said, "3 of 5 heads", "the first key in 2 and one distance in 1.")
    assert "" == said_of("verdicts", {}, texts={"headline": [["kernel"]]})


def parts(result):
    """A result, and its parts by head, query position and value, as cards show them."""
    every = [result, *(result.only(name) for name in result.values)]
    places = {"layer": 0, "head": 0}
    places |= {axis: int(at[-1]) for axis, at in result.coordinates.items()}
    for part in every:
        yield part
        axes = {axis for name in part.values for axis in part.axes[name]}
        here = {axis: at for axis, at in places.items() if axis in axes}
        for size in range(1, len(here) + 1):
            yield part.select(**dict([*here.items()][:size]))
        if "query" in here:
            yield part.select(query=here["query"])


def test_the_form_of_what_is_said_of_shipped_results():
    shipped, said = Shipped([RESULTS / "demo-attn-2l"]), set()
    for key, _ in shipped.headers():
        result = from_entry(shipped.get(key))
        if result is not None:
            said |= {finding_of(part) for part in parts(result)}
    said.discard("")
    assert len(said) > 20
    for text in said:
        check(text)
