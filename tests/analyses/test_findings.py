"""Findings: one sentence from tested rules, and none where a 95 % interval holds the limit."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core import analyses
from poskernel_core.analyses.findings import finding_of
from poskernel_core.common.result import NORMAL, Result, texts_array
from poskernel_core.engine.provenance import from_entry
from poskernel_core.models.stored import RESULTS
from poskernel_core.storage.shipped import Shipped

L3H4 = {"layer": 3, "head": 4}
AT = {"query": 400, **L3H4}
OFFSETS = 13


def made(analysis, numbers, errors=None, *, chosen=None, texts=None, params=None, **more):
    """A result with some of the values that a question declares, at the chosen places."""
    question, chosen = analyses.find(analysis), chosen or {}
    declared = {value.name: value for value in (*question.values, *question.texts)}
    axes = {n: tuple(a for a in declared[n].axes if a not in chosen) for n in declared}
    names = (*numbers, *(texts or {}))
    return Result(
        analysis=analysis,
        params=params or {},
        values={name: np.array(value) for name, value in numbers.items()},
        errors={
            name: np.broadcast_to(error, np.shape(numbers[name])).astype(float)
            for name, error in (errors or {}).items()
        },
        axes={name: axes[name] for name in names},
        units={name: declared[name].unit for name in names},
        texts={name: texts_array(text) for name, text in (texts or {}).items()},
        chosen=chosen,
        **more,
    )


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


def curves(analysis, **more):
    """A maker of a kernel and an observed attention at a distance with an error."""
    return lambda v, e: made(
        analysis,
        {"kernel": [0.0, 1.0, 0.0], "observed": [0.0, 1 - v, v]},
        {"kernel": 0.0, "observed": [0.0, e, e]},
        **more,
    )


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


def denominators(v, e):
    numbers = {"denominator_cv": [0.5, v], "predicted_cv": [0.5, 0.3]}
    return made(
        "denominators",
        numbers,
        {"denominator_cv": e},
        params={"head": "L0H4"},
        coordinates={"query": np.array([7, 400])},
    )


def mean_denominator(v, e):
    return made(
        "denominators",
        {"mean": [1.5, 1.7, v]},
        {"mean": e},
        params={"head": "L0H4"},
        coordinates={"query": np.array([7, 31, 400])},
    )


def token_weights(v, e):
    return made(
        "token-weights",
        {"log_weight": [-3.0, v, -2.0]},
        {"log_weight": e},
        params={"head": "L0H4"},
        texts={"top_words": [" saith", "\n", "the"]},
    )


def contrast(v, e):
    numbers = {"self_contrast": v, "previous_contrast": -0.9}
    return made("previous-token", numbers, dict.fromkeys(numbers, e), chosen=L3H4)


def two_pins(v, e):
    return made(
        "compare-kernels",
        {"distance": [[0, v], [v, 0]]},
        {"distance": e},
        texts={"heads": ["L3H4", "L0H1@demo-gpt2"]},
    )


def pinned_kernels(v, e):
    kernels = np.zeros((2, OFFSETS))
    kernels[:, 3], kernels[:, 11] = v, 1 - v
    errors = np.zeros_like(kernels)
    errors[:, 3] = e
    texts = {"heads": ["L3H4", "L0H1"]}
    return made("compare-kernels", {"kernel": kernels}, {"kernel": errors}, texts=texts)


STEPS = {"step": np.array([0, 512, 4096])}
INDUCTION = {"measure": "induction score"}


def trained(v, e):
    numbers = {"measure": [0.0, 0.1, v], "change": v}
    return made(
        "over-training", numbers, {"change": e}, chosen=L3H4, coordinates=STEPS, params=INDUCTION
    )


def trained_heads(v, e):
    changes = {"change": np.full((2, 3), v)}
    return made("over-training", changes, {"change": e}, coordinates=STEPS, params=INDUCTION)


def trained_kernel(v, e):
    params = {"head": "L3H4"}
    return made(
        "kernel-over-training",
        {"etc": [40.0, 30.0, v]},
        {"etc": e},
        params=params,
        coordinates=STEPS,
    )


HELD = [
    (one_head("etc", "local_mass", AT, etc=3.2, visible_keys=398), 0.5, 0.97,
     "By position alone L3H4 gives 0.97 of its attention to the last 10 tokens at n = 400; a "
     "kernel is local from 0.5 on."),
    (one_head("etc", "etc", AT, local_mass=0.1, visible_keys=398), 199, 301,
     "By position alone L3H4 spreads its attention over 301 tokens of 398 at n = 400; a kernel is "
     "uniform from 199 on."),
    (one_head("etc", "etc", AT, local_mass=0.1, visible_keys=398), 199, 41,
     "By position alone L3H4 spreads its attention over 41 tokens at n = 400, between a local "
     "kernel (0.5 of the mass in the last 10 tokens) and a uniform one (from 199 on)."),
    (one_head("etc", "attention_distance", AT), 0.5, 0.06,
     "The kernel and the observed attention of L3H4 at n = 400 are 0.06 apart (total variation: 0 "
     "equal, 1 disjoint): the kernel predicts the attention (limit 0.5)."),
    (heads("etc", "attention_distance", chosen={"query": 400}), 0.5, 0.71,
     "At n = 400, in 6 of 6 heads the distance of kernel and observed attention is certainly 0.5 "
     "or more; it is largest in L0H0 (0.71)."),
    (one_of("etc", "equivariance_error", 0.25, chosen={"query": 400}), 0.25, 0.75,
     "The equivariance error at n = 400 is largest in L1H0 (0.75) and smallest in L0H0 (0.25)."),
    (one_head("kernel", "attention_distance"), 0.5, 0.71,
     "The kernel and the observed attention of L3H4 are 0.71 apart (total variation: 0 equal, 1 "
     "disjoint): too far for a kernel that predicts the attention (limit 0.5)."),
    (curves("kernel", chosen=L3H4, params={"query": 2}), 0.5, 0.25,
     "The kernel and the observed attention of L3H4 at n = 2 are 0.25 apart (total variation: 0 "
     "equal, 1 disjoint): the kernel predicts the attention (limit 0.5)."),
    (heads("kernel", "local_mass", params={"query": 400}), 0.5, 0.31,
     "At n = 400, in none of 6 heads is the mass of the kernel in the last 10 tokens 0.5 or more; "
     "it is largest in L0H0 (0.31)."),
    (distances, 0.5, 0.9,
     "The kernels of 3 of 3 pairs of heads of layer 3 are 0.5 or more apart for certain (total "
     "variation: 0 equal, 1 disjoint), those of 0 less than 0.1."),
    (profile, 0.3, 0.87,
     "L3H4 gives the previous token 0.87 of its attention on average; a head looks somewhere from "
     "0.3 on."),
    (profile, 0.3, 0.08,
     "No diagonal of L3H4 gets 0.3 of its attention on average; the previous token gets most, "
     "0.08."),
    (profiles, 0.3, 0.87,
     "In 1 of 6 heads the mean attention to the previous token is certainly 0.3 or more; it is "
     "largest in L1H2 (0.87)."),
    (one_head("entropy", "entropy", AT), math.log(397), 3.5,
     "The attention of L3H4 at n = 400 has an entropy of 3.5 nats, as if spread evenly over 33.1 "
     "of 397 tokens."),
    (one_of("entropy", "entropy", 1.5, chosen={"query": 400}), 1.5, 0.25,
     "The attention entropy at n = 400 is largest in L0H0 (1.5 nats) and smallest in L1H0 (0.25 "
     "nats)."),
    (lambda v, e: made("sinks", {"alpha": [v, 0.9]}, {"alpha": e}, chosen=L3H4), 0.3, 0.62,
     "The key at position 0 gets 0.62 of the attention of L3H4 on average: an attention sink "
     "(limit 0.3)."),
    (lambda v, e: made("sinks", {"alpha": [v, 0.9]}, {"alpha": e}, chosen=L3H4), 0.3, 0.05,
     "The key at position 0 gets 0.05 of the attention of L3H4 on average: no attention sink "
     "(limit 0.3)."),
    (learned_sink, 0.3, 0.5,
     "A learned sink takes 0.50 of the attention of L3H4 on average (limit 0.3)."),
    (one_of("sinks", "sink", 0.3), 0.3, 0.62,
     "In 1 of 6 heads the attention to the first key is certainly 0.3 or more; it is largest in "
     "L1H0 (0.62)."),
    (anatomy, 0.1, 0.61,
     "The sink of L3H4 follows what stands first (+0.61), not position 0 (+0.02) nor the start "
     "token (0)."),
    (anatomy_of_heads, 0.1, 0.61,
     "Among 2 heads with a sink, it certainly follows what stands first in 2, position 0 in none, "
     "the start token in none (effect 0.1 or more)."),
    (one_head("foreseen-attention", "gain_32", share_32=0.68, visible_keys=401), 0, 0.12,
     "32 of 401 keys chosen by the kernel get 0.68 of the mean attention of L3H4, more than the "
     "first 4 and the last 28 keys get (0.56)."),
    (one_head("foreseen-attention", "gain_32", share_32=0.68, visible_keys=401), 0, -0.12,
     "32 of 401 keys chosen by the kernel get 0.68 of the mean attention of L3H4, less than the "
     "first 4 and the last 28 keys get (0.80)."),
    (one_of("foreseen-attention", "gain_32", 0.0), 0, 0.12,
     "32 keys chosen by the kernel certainly get more of the mean attention than the first 4 and "
     "the last 28 keys in 1 of 6 heads, and less in none (0.30 differ by chance)."),
    (caches, 0.3, 0.82,
     "For 0.95 of the attention, caches by kernel certainly need fewer keys than the first 4 and "
     "the last ones in none of 2 layers, and more in 1."),
    (caches, 0.3, 0.12,
     "For 0.95 of the attention, caches by kernel certainly need fewer keys than the first 4 and "
     "the last ones in 1 of 2 layers, and more in none."),
    (one_head("score-variance", "position_share", AT, content_share=0.1), 0.5, 0.82,
     "Position explains 0.82 of the score variance of L3H4 at n = 400, more than half."),
    (shares, 0.5, 0.82,
     "Position certainly explains more than half of the score variance of L3H4 at 2 of 3 query "
     "positions, most at n = 31 (0.82)."),
    (heads("score-variance", "content_share", chosen={"query": 400}), 0.5, 0.82,
     "At n = 400, in 6 of 6 heads the share of score variance explained by content is certainly "
     "0.5 or more; it is largest in L0H0 (0.82)."),
    (one_head("place-and-content", "place_share", AT, content_share=0.1, both_share=0.1), 0.5, 0.82,
     "If every key stood at every place, place would explain 0.82 of the score variance of L3H4 at "
     "n = 400, more than half."),
    (places, 0.5, 0.82,
     "If every key stood at every place, only place and content together would explain 0.82 of "
     "the score variance of L3H4 at n = 63, more than half."),
    (one_of("place-and-content", "content_share", 0.5, chosen={"query": 400}), 0.5, 0.82,
     "At n = 400, in 1 of 6 heads the share of score variance explained by content is "
     "certainly 0.5 or more; it is largest in L1H0 (0.82)."),
    (one_head("headvis", "prev_token_score"), 0.3, 0.82,
     "The attention to the previous token is 0.82 in L3H4; a head looks somewhere from 0.3 on."),
    (one_of("headvis", "qk_distance", 7.0), 7, 19.0,
     "The mean distance of the attended key is largest in L1H0 (19 tokens) and smallest in L0H0 "
     "(7 tokens)."),
    (one_head("head-examples", "mean_max_activation"), 0.3, 0.1,
     "The largest attention in a text, on average, is 0.10 in L3H4, below the limit of 0.3 for a "
     "head that looks somewhere."),
    (one_head("previous-token", "largest_mass", largest_offset=5), 0.3, 0.87,
     "L3H4 gives the token 5 back 0.87 of its attention on average; a head looks somewhere from "
     "0.3 on."),
    (contrast, 0, -1.5,
     "On average L3H4 scores the current token itself 1.5 nats below the straight line through "
     "the scores of the next token and of the one two back."),
    (one_of("previous-token", "ratio", 0.9), 0.9, 0.25,
     "In 1 of 6 heads the second diagonal over the largest is certainly below 0.9; it is smallest "
     "in L1H0 (0.25)."),
    (one_head("additivity", "interaction_share", position_share=0.1, content_share=0.2), 0.5, 0.7,
     "The interaction of position and content explains 0.70 of the variance of the keys of L3H4, "
     "more than half."),
    (one_head("additivity", "content_similarity", {"shift": 7, **L3H4}), 0, 0.98,
     "Moved by 7 tokens, the content in the keys of L3H4 has a cosine of 0.98 with itself (1: "
     "unchanged, 0: unrelated)."),
    (contextual, 0.25, 0.08,
     "L3H4 is contextual: by position it spreads over 120 tokens, and its softmax denominator "
     "varies by 0.08 of its mean between windows (limit 0.25)."),
    (duplicates, 0.3, 0.7,
     "L3H4 gives far duplicates of the current token 0.70 more of its attention than other tokens "
     "there; a duplicate-token head from 0.3 on."),
    (one_of("contextual-heads", "far_duplicates", 0.3), 0.3, 0.7,
     "In 1 of 6 heads the extra attention to far duplicates of the current token is certainly 0.3 "
     "or more; it is largest in L1H0 (0.70)."),
    (denominators, 0.3, 0.08,
     "At n = 400 the softmax denominator of L0H4 varies by 0.08 of its mean from window to window, "
     "less than the 0.30 of independent content."),
    (mean_denominator, 1.5, 3.5,
     "The mean softmax denominator of L0H4 rises from 1.5 at n = 7 to 3.5 at n = 400."),
    (token_weights, 0, 2.0,
     "By content L0H4 weights «␣saith» up most: it gets 7.39 times the attention that position "
     "alone gives it."),
    (two_pins, 0.5, 0.97,
     "The kernels of L3H4 and L0H1 demo-gpt2 are 0.97 apart (total variation: 0 equal, 1 "
     "disjoint), certainly more than 0.5."),
    (pinned_kernels, 0.5, 0.97,
     "2 of 2 kernels certainly have 0.5 or more of the mass in the last 10 tokens; that of L3H4 "
     "has most, 0.97."),
    (curves("kernel-replicates", chosen=L3H4, params={"query": 2}), 0.5, 0.75,
     "The kernel and the observed attention of L3H4 at n = 2 are 0.75 apart (total variation: 0 "
     "equal, 1 disjoint): too far for a kernel that predicts the attention (limit 0.5)."),
    (trained, 0, 0.85,
     "The induction score of L3H4 rose from step 0 to step 4,096: from 0 to 0.85."),
    (trained_heads, 0, -0.25,
     "The induction score of 6 of 6 heads changed for certain from step 0 to step 4,096 "
     "(0.30 would by chance); that of L0H0 (by −0.25) changed most."),
    (trained_kernel, 40, 3.5,
     "By position alone L3H4 spread its attention over 40 tokens at step 0, and over 3.5 tokens at "
     "step 4,096."),
]  # fmt: skip
"""A maker of a result from a number and its error, the limit, a number, and what is said of it."""

LIMITS = [row[:2] for row in HELD]


@pytest.mark.parametrize(("make", "limit", "value", "sentence"), HELD)
def test_what_is_said(make, limit, value, sentence):
    assert sentence == finding_of(make(value, 0.01))


@pytest.mark.parametrize(("make", "limit"), LIMITS)
@given(share=st.floats(-0.99, 0.99), error=st.floats(0.001, 0.2))
def test_nothing_is_said_where_the_interval_holds_the_limit(make, limit, share, error):
    assert "" == finding_of(make(limit + share * NORMAL * error, error))


@pytest.mark.parametrize(("make", "value"), [(row[0], row[2]) for row in HELD])
def test_nothing_is_said_without_a_known_error(make, value):
    assert "" == finding_of(make(value, math.nan))


def said_of(*args, **more):
    return finding_of(made(*args, **more))


def test_kinds_of_all_heads():
    """A head that may be local, or may not, counts among neither."""
    numbers = {
        "etc": [[3.0, 300.0, 40.0], [3.0, 300.0, 200.0]],
        "local_mass": [[0.9, 0.1, 0.1], [0.52, 0.48, 0.1]],
        "visible_keys": np.full((2, 3), 397.0),
    }
    errors = {"etc": 5.0, "local_mass": 0.05}

    def said(**numbers):
        return said_of("etc", numbers, errors, chosen={"query": 400})

    assert (
        "1 of 6 heads is certainly local at n = 400 (0.5 or more of the kernel in the last 10 "
        "tokens), and 1 uniform (effective token count 0.5 or more of the visible keys)."
    ) == said(**numbers)
    assert "" == said(**numbers | {"local_mass": np.full((2, 3), 0.5)})


def test_contextual_heads():
    limit = {"denominator_cv": [[0.1, 0.25, 0.1], [0.1, 0.4, 0.1]]}
    numbers = {
        "etc": np.full((2, 3), 100.0),
        "near_duplicates": [[0.0, 0.0, 0.3], [0.0, 0.0, np.nan]],
        "far_duplicates": np.zeros((2, 3)),
        "group": [[2, 2, 2], [1, 3, 2]],
    }
    errors = dict.fromkeys(("denominator_cv", "near_duplicates", "far_duplicates"), 0.02)
    assert (
        "2 of 6 heads are certainly contextual: by position they spread over 30 tokens or more, "
        "and their softmax denominator varies by less than 0.25 of its mean."
    ) == said_of("contextual-heads", numbers | limit, errors)
    assert "" == said_of(
        "contextual-heads", numbers | {"denominator_cv": np.full((2, 3), 0.25)}, errors
    )


def test_a_head_that_is_not_drawn_to_duplicates():
    assert (
        "L3H4 is not drawn to duplicates of the current token: they get at most 0.02 more of its "
        "attention than other tokens there (limit 0.3)."
    ) == finding_of(duplicates(0.02, 0.01))


def test_a_pair_of_kernels_may_be_alike():
    assert (
        "The kernels of L3H4 and L0H1 demo-gpt2 are 0.02 apart (total variation: 0 equal, 1 "
        "disjoint), certainly less than 0.1."
    ) == finding_of(two_pins(0.02, 0.01))
    assert "" == finding_of(two_pins(0.3, 0.01))


def test_attention_on_one_text():
    pattern = np.zeros((7, 7))
    pattern[0, 0] = 1

    def said(back, share):
        for query in range(1, 7):
            pattern[query] = 0
            pattern[query, 0] = 1 - share
            pattern[query, max(0, query - back)] += share
        numbers = {"pattern": pattern}
        return said_of("stages", numbers, params={"head": "L3H4"})

    assert (
        "L3H4 gives the current token 0.75 of its attention on this text; a head looks somewhere "
        "from 0.3 on."
    ) == said(0, 0.75)
    assert (
        "L3H4 gives the first key 0.75 of its attention on this text; a head looks somewhere from "
        "0.3 on."
    ) == said(0, 0.25)


def test_a_map_from_query_to_query():
    """The first row sees a single key, so that its two distributions must agree."""
    kernel = [[1.0, np.nan, np.nan], [0.5, 0.5, np.nan], [0.5, 0.25, 0.25]]
    observed = [[1.0, np.nan, np.nan], [0.75, 0.25, np.nan], [0.0, 0.5, 0.5]]
    places = {"query": np.array([0, 1, 2])}
    maps, params = {"kernel": kernel, "observed": observed}, {"head": "L3H4"}
    assert (
        "From n = 1 to n = 2 the kernel and the observed attention of L3H4 are 0.25 to 0.50 apart "
        "(total variation: 0 equal, 1 disjoint)."
    ) == said_of("kernel-map", maps, params=params, coordinates=places)


def test_pairs_of_a_whole_model():
    """Pairs within a layer count, each once."""
    gaps = np.zeros((2, 3, 3))
    gaps[0, 0, 1] = gaps[0, 1, 0] = 0.9
    gaps[1, 0, 2] = gaps[1, 2, 0] = 0.5
    assert (
        "The kernels of 1 of 6 pairs of heads of one layer are 0.5 or more apart for certain "
        "(total variation: 0 equal, 1 disjoint), those of 4 less than 0.1."
    ) == said_of("kernel-distances", {"distance": gaps}, {"distance": 0.02})


def test_measures_beside_each_other_are_held_against_chance():
    texts = {"heads": ["L3H4", "L0H1"]}

    def said(*scores):
        numbers = {"z_score": [[0.0, each] for each in scores]}
        return said_of("compare-heads", numbers, texts=texts)

    assert (
        "In 2 of 4 measures L0H1 and L3H4 differ by more than 1.96 standard errors; by chance it "
        "would be about 0.20."
    ) == said(-7.0, 2.0, 1.9, 0.5, np.nan)
    assert "" == said(1.9, -1.9, 0.0)


def test_a_measure_by_depth():
    numbers = {"mean": [7.0, np.nan, 19.0, 3.5]}
    assert (
        "The mean effective token count of a layer is largest in layer 2 (19) and smallest in "
        "layer 3 (3.5)."
    ) == said_of("depth", numbers, params={"measure": "effective token count"})
    assert "" == said_of("depth", {"mean": [7.0, 7.0]})


def test_a_measure_at_a_step():
    every = [[0.1, 0.2, 0.1], [0.1, 0.9, 0.1]]
    asked = {"chosen": {"step": 4096}, "params": INDUCTION}
    assert (
        "The induction score at step 4,096 is largest in L1H1 (0.90) and smallest in L0H0 (0.10)."
    ) == said_of("over-training", {"measure": every}, {"measure": 0.01}, **asked)
    kinds = {"labels": {"measure": ("local", "uniform")}}
    assert "" == said_of("over-training", {"measure": every}, **asked, **kinds)


@pytest.mark.parametrize(
    ("enough", "more"), [(31, "fewer"), (310, ""), (500, ""), (2000, "more"), (np.inf, "")]
)
def test_enough_texts(enough, more):
    """Numbers of windows are uncertain by a third."""
    numbers, params = {"enough": float(enough), "wanted": 0.02}, {"measure": "attention sink"}
    places = {"subset": np.array([100, 500])}
    said = said_of("how-many-texts", numbers, chosen=L3H4, params=params, coordinates=places)
    assert said == (
        f"For an error of 0.02 in the attention sink of L3H4 about {enough:,} windows are enough, "
        f"{more} than the 500 that were read." * bool(more)
    )


def test_enough_texts_for_all_heads():
    numbers = {"enough": [[31.0, 310.0, 2000.0], [7.0, np.inf, np.nan]], "wanted": np.ones((2, 3))}
    asked = {"params": {"measure": "attention sink"}, "coordinates": {"subset": np.array([500])}}
    assert (
        "The 500 windows that were read certainly give 2 of 4 heads the wanted error of the "
        "attention sink."
    ) == said_of("how-many-texts", numbers, **asked)


def test_verdicts():
    verdicts = [
        ["Local: looks one token back.", "About local: no sink.", "Uniform."],
        ["No head: layer 1 is gone."] * 3,
    ]
    assert (
        "By the verdicts on 3 heads the kernel is certainly local in 1, slowly decaying in 0 and "
        "uniform in 1."
    ) == said_of("verdicts", {}, texts={"verdict": verdicts})
    assert "" == said_of("verdicts", {}, texts={"verdict": [["About local."]]})


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
    shipped = Shipped([RESULTS / "demo-attn-2l"])
    said = set()
    for key, _ in shipped.headers():
        result = from_entry(shipped.get(key))
        if result is not None:
            said |= {finding_of(part) for part in parts(result)}
    said.discard("")
    assert len(said) > 20
    for text in said:
        assert re.fullmatch(r"[A-Z0-9](?:(?!\. |\n|–|\bnan\b).){1,238}\.", text), text
