"""Random sequences: which token stands where, by hand, and how tokens are drawn."""

import collections
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.errors import BadRequest
from poskernel_core.data.layouts import (
    MAX_CANDIDATES,
    ROLES,
    TokenPool,
    pairs_layout,
    random_layout,
    second_positions,
    sequences,
    twice_layout,
)
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes.prepare import random_source
from tests.support import builders

# position of the second [A]: roles, as the post's table of 13 tokens has them
POST = {
    4: "S R A B A C R R R R R R A",
    5: "S R A B R A C R R R R R A",
    6: "S R A B R R A C R R R R A",
    7: "S R A B R R R A C R R R A",
    8: "S R A B R R R R A C R R A",
    9: "S R A B R R R R R A C R A",
    10: "S R A B R R R R R R A C A",
}
# length, first, second, candidates, start token: roles
OTHERS = {
    (13, 2, 6, 3, True): "S R A B A C A D R R R R A",
    (13, 2, 9, 3, True): "S R A B A C R R R A D R A",
    (13, 0, 10, 3, False): "A B A C R R R R R R A D A",
    (11, 1, 1, 1, True): "S A B R R R R R R R A",
    (11, 0, 0, 1, False): "A B R R R R R R R R A",
    (11, 1, 7, 1, True): "S R R R R R R A B R A",
    (17, 3, 13, 5, False): "R R R A B A C A D A E R R A F R A",
    (5, 0, 2, 2, False): "A B A C A",
}
POOL = np.array([3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61])
SOURCE = TokenPool(POOL, 2, 5)


def words(layout):
    short = {"start": "S"} | {role: role.strip("[]") for role in ROLES if role != "start"}
    return " ".join(short[ROLES[role]] for role in layout.roles())


def check_tokens(expected, ids, start):
    """Equal letters but R are equal tokens; all others differ, and come from the pool."""
    letters = expected.split()
    by_letter = {}
    for place, (letter, token) in enumerate(zip(letters, ids.tolist(), strict=True)):
        by_letter.setdefault(letter if letter != "R" else f"R{place}", set()).add(token)
    assert all(len(tokens) == 1 for tokens in by_letter.values())
    drawn = [tokens.pop() for letter, tokens in by_letter.items() if letter != "S"]
    assert len(drawn) == len(set(drawn)) == len(set(ids.tolist())) - start
    assert set(drawn) <= set(POOL.tolist())


@pytest.mark.parametrize("start", [True, False])
def test_the_seven_rows_of_the_post(start):
    seconds = second_positions(13, 2, 2, start)

    assert list(POST) == list(seconds)
    for second, expected in POST.items():
        expected = expected if start else expected.replace("S", "R")
        layout = pairs_layout(13, 2, second, 2, start)
        assert expected == words(layout)
        assert (2, second) == layout.pairs
        assert (3, second + 1) == layout.candidates
        assert [n for n, letter in enumerate(expected.split()) if letter == "R"] == layout.others()
        for ids in sequences(layout, SOURCE, 0, range(7)):
            check_tokens(expected, ids, start)
            assert (SOURCE.start == ids[0]) == start


@pytest.mark.parametrize("case", OTHERS)
def test_other_layouts(case):
    length, first, second, candidates, start = case
    layout = pairs_layout(*case)
    assert OTHERS[case] == words(layout)
    assert second in second_positions(length, first, candidates, start)
    letters = OTHERS[case].split()
    assert [letters.index(x) for x in "BCDEF"[:candidates]] == list(layout.candidates)
    check_tokens(OTHERS[case], sequences(layout, SOURCE, 3, [11])[0], start)


@given(st.integers(5, 23), st.integers(0, 11), st.integers(1, MAX_CANDIDATES), st.booleans())
def test_rows_have_all_candidates(length, first, candidates, start):
    try:
        seconds = second_positions(length, first, candidates, start)
    except BadRequest:
        assert first < start or first + 2 * candidates >= length
        return
    assert length - 2 == seconds[-1] + 1
    for second in seconds:
        letters = words(pairs_layout(length, first, second, candidates, start)).split()
        assert candidates + 1 == letters.count("A")
        assert "A" == letters[-1] == letters[second]
        assert all("A" == letters[letters.index(x) - 1] for x in "BCDEF"[:candidates])
        assert start == letters.count("S")
        assert length - 2 * candidates - 1 - start == letters.count("R")


def test_plain_layouts():
    assert "S R R R R" == words(random_layout(5, True))
    assert "R R R R R" == words(random_layout(5, False))
    ids = sequences(random_layout(13, True), SOURCE, 0, range(3))
    assert (3, 13) == ids.shape
    assert [13] * 3 == [len(set(row)) for row in ids.tolist()]
    assert [2] * 3 == ids[:, 0].tolist()
    for start in (True, False):
        once = sequences(twice_layout(7, start), SOURCE, 1, range(3))[:, int(start) :]
        assert (3, 14) == once.shape
        np.testing.assert_array_equal(once[:, :7], once[:, 7:])
        assert [7] * 3 == [len(set(row)) for row in once.tolist()]


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(0, 99))
def test_batches_do_not_matter(sizes, seed):
    layout, source = pairs_layout(11, 2, 5, 2, True), TokenPool(POOL, 2, seed)
    whole = sequences(layout, source, 3, range(sum(sizes)))
    ends = np.cumsum(sizes).tolist()

    parts = [
        sequences(layout, source, 3, range(b - a, b)) for a, b in zip(sizes, ends, strict=True)
    ]

    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_seeds_streams_and_samples_are_independent():
    layout, pool = random_layout(7, False), np.arange(1, 293)
    rows = [
        tuple(row)
        for seed in range(3)
        for stream in (0, 1, 4, 1_000_000)
        for row in sequences(layout, TokenPool(pool, 0, seed), stream, range(101)).tolist()
    ]
    assert 3 * 4 * 101 == len(set(rows))

    drawn = sequences(random_layout(3, False), TokenPool(POOL, None, 7), 0, range(3000))
    expected = 3000 / len(POOL)
    for column in drawn.T.tolist():
        counts = collections.Counter(column)
        assert set(POOL.tolist()) == set(counts)
        chi = sum((count - expected) ** 2 / expected for count in counts.values())
        assert chi < 16 + 5 * (2 * 16) ** 0.5  # mean and deviation of chi-square, 16 degrees
    other = sequences(random_layout(3, False), TokenPool(POOL, None, 7), 1, range(3000))
    same = np.mean(drawn == other)
    assert 1 / 17 == pytest.approx(same, abs=5 * (1 / 17 / 9000) ** 0.5)


def test_special_tokens_are_never_drawn(model_dirs):
    path = str(model_dirs["gpt2"])
    located, run = catalog.locate(path), describe_run(path, seed=11)

    source = random_source(run, located.geometry, load_tokenizer(located))

    assert list(range(1, builders.VOCABULARY)) == source.pool.tolist()
    assert (builders.START, 11) == (source.start, source.seed)
    bare = random_source(run, located.geometry, None)
    assert list(range(builders.VOCABULARY)) == bare.pool.tolist()
    assert bare.start is None

    tokenizer = load_tokenizer(located)
    assert 1 == tokenizer.backend.add_special_tokens(["<|pad|>"])
    assert 1 == tokenizer.backend.add_tokens(["beyond"])
    wide = dataclasses.replace(located.geometry, n_vocab=997)
    assert [293, 294] == [tokenizer.backend.token_to_id(t) for t in ("<|pad|>", "beyond")]
    assert [*range(1, 293), 294] == random_source(run, wide, tokenizer).pool.tolist()
    narrow = random_source(run, located.geometry, tokenizer)
    assert list(range(1, builders.VOCABULARY)) == narrow.pool.tolist()


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda: sequences(random_layout(19, True), SOURCE, 0, [0]), "18 different tokens .* 17"),
        (
            lambda: sequences(random_layout(3, True), TokenPool(POOL, None, 0), 0, [0]),
            "start token",
        ),
        (lambda: second_positions(13, 0, 2, True), "position 1 or later"),
        (lambda: second_positions(13, 2, 6, True), "need 15 tokens or more, got 13"),
        (lambda: second_positions(6, 2, 2, False), "need 7 tokens or more, got 6"),
        (lambda: pairs_layout(13, 2, 3, 2, True), "position 4 to 10, got 3"),
        (lambda: pairs_layout(13, 2, 11, 2, True), "position 4 to 10, got 11"),
    ],
)
def test_refused(ask, expected):
    with pytest.raises(BadRequest, match=expected) as caught:
        ask()
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert message.count(". ") == 0
