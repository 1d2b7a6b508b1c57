"""Tables of pairs: every form that they come in, what is wrong with a row, and makers."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.patching import makers
from poskernel_core.analyses.patching.pairs import (
    PairsParams,
    TokenPair,
    by_length,
    groups_of_pairs,
    token_pairs,
)
from poskernel_core.analyses.patching.tables import PromptPair, as_table, decoded, read_table
from poskernel_core.analyses.patching.tables import table_or_file as opened
from poskernel_core.api import build_request
from poskernel_core.common.errors import BadRequest, InvalidField
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS
from poskernel_core.data.layouts import TokenPool
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from tests.analyses.patching.test_patching import subject_of
from tests.support.builders import START
from tests.support.passes import loaded
from tests.support.refusals import refused

ROWS = [
    {"clean": " a, b", "changed": ' a; "c"', "answer": " b", "other_answer": " c"},
    {"clean": "d\ne", "changed": "ü\u2028", "answer": "f", "other_answer": "g", "template": "t"},
]
QUOTED = '" a, b"{0}" a; ""c"""{0} b{0} c{0}""\r\n"d\ne"{0}ü\u2028{0}f{0}g{0}t\r\n\r\n'
HEADER = "clean{0}changed{0}answer{0}other_answer{0}template\n"
JSONL = "\n\n".join(map(json.dumps, ROWS))
FORMS = {
    "rows": ROWS,
    "commas": HEADER.format(",") + QUOTED.format(","),
    "semicolons": HEADER.format(";") + QUOTED.format(";"),
    "tabs": HEADER.format("\t") + QUOTED.format("\t"),
    "a mark first": "\ufeff" + HEADER.format(";") + QUOTED.format(";"),
    "other names": "\r\n ID,Clean,Corrupted , answer,Wrong,template\r\n"
    '1," a, b"," a; ""c""", b, c,\r\n2,"d\ne",ü\u2028,f,g,t',
    "lines": JSONL + "\n",
    "a mark and lines": "\ufeff" + JSONL,
    "lines as they are": "\r\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS),
    "a list": json.dumps(ROWS, indent=1),
    "with nothing": [{**row, "template": row.get("template"), "id": 7} for row in ROWS],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_table(form):
    table = as_table(FORMS[form])
    assert as_table(ROWS) == table == as_table(table)
    assert [PromptPair(**row) for row in ROWS] == read_table(table)
    assert table == PairsParams(pairs=FORMS[form]).pairs


NO_TABLES = {
    "clean,changed,answer\na,b,c": "in its first line, got 'clean,changed,answer' without other_a",
    "a text": "expected a table with the columns .*, got 'a text' without clean, changed",
    "clean,changed,answer,wrong\n": "expected a table with rows, got none",
    "clean,changed,answer,wrong\na,b,c,d\na, b,c,d,e": "row 2 has 5 cells, and there are 4 columns"
    ": put texts with ',' in quotes",
    '{"clean": "a"}': "row 1: 'pair' needs 'changed'",
    '{"clean": "a", "changed": 3, "answer": "b", "wrong": "c"}': "row 1: .*'changed'",
    '{"clean": ': "as CSV or JSONL, and it is not JSON",
    "[1, 2]": "row 1: expected clean, changed, answer, other_answer by name, got 1",
    "7": "without clean",
}


@pytest.mark.parametrize("text", NO_TABLES)
def test_what_is_no_table(text):
    with pytest.raises(InvalidField, match=NO_TABLES[text]) as error:
        PairsParams(pairs=text)
    assert "\n" not in str(error.value)


def test_a_table_that_is_too_long():
    """It says how many of its rows would fit, and that many do."""
    rows = [{"clean": f"the king {n}", "changed": "x" * 70, "answer": "a", "other_answer": "b"}
            for n in range(10_000)]  # fmt: skip
    with pytest.raises(InvalidField, match=r"in 10,000 pairs: about ([\d,]+) of them") as error:
        PairsParams(pairs=rows)
    few = int(str(error.value).split("about ")[1].split()[0].replace(",", ""))
    assert 0.99 * MAX_TEXT_CHARACTERS < len(as_table(rows[:few])) <= MAX_TEXT_CHARACTERS


def test_files_are_read_here_and_never_for_others(tmp_path):
    """In Python and on the command line a path names a file; over HTTP it is no table."""
    file, table = tmp_path / "set.csv", FORMS["semicolons"]
    for written in ("utf-8", "utf-8-sig", "utf-16"):
        file.write_bytes(table.encode(written))
        assert as_table(opened(str(file))) == as_table(ROWS) == as_table(decoded(file.read_bytes()))
        asked, _ = build_request("patch-heads", "demo-gpt2", params={"pairs": str(file)})
        assert as_table(ROWS) == as_table(asked.params["pairs"])
    asked, _ = build_request("patch-heads", "demo-gpt2", params={"pairs": str(file)}, files=False)
    assert str(file) == asked.params["pairs"]
    with pytest.raises(InvalidField, match="without clean"):
        PairsParams(pairs=asked.params["pairs"])
    with refused("'none.csv' cannot be read"):
        opened(str(tmp_path / "none.csv"))
    with pytest.raises(ValueError, match="text in UTF-8"):
        decoded(b"\xff\xfa\x00")


@pytest.fixture(scope="module")
def model(model_dirs):
    return loaded(model_dirs["gpt2"])


def pairs_of(model, rows, **more):
    """Prompts are numbers of tokens."""
    subject = subject_of(model, "")
    return token_pairs(subject, PairsParams(pairs=rows, **more))


def row(clean, changed, answer="3", other_answer="5", template=""):
    return {"clean": clean, "changed": changed, "answer": answer, "other_answer": other_answer,
            "template": template}  # fmt: skip


def test_pairs_are_cut_into_tokens(model):
    """The start token stands first; spans stand where their tokens do, in each prompt."""
    rows = [row("7 {who:11 13} 17", "{who:19 23} 7 17"), row("7", "11", template="t")]
    one, two = pairs_of(model, rows)
    assert ((START, 7, 11, 13, 17), (START, 19, 23, 7, 17)) == (one.clean, one.changed)
    assert (3, 5, "") == (one.answer, one.other_answer, one.template)
    assert {"who": (slice(2, 4), slice(1, 3)), "end": (slice(4, 5), slice(4, 5))} == one.spans
    assert ((START, 7), "t", ["end"]) == (two.clean, two.template, [*two.spans])


BAD = {
    "the prompts have 2 and 3 tokens": ("7 11", "7 11 13"),
    "both prompts are equal": ("7 11", "7 11"),
    "the span 'who' is in one prompt alone": ("7 {who:11}", "7 13"),
    "the span 'who' has 1 token in one prompt, 2 in the other": ("{who:11} 7 8", "{who:7 11} 8"),
    "the span 'who' holds no whole token": ("7{who:} 11", "7{who:} 13"),
    "clean is empty": (" ", "7"),
    "tokens that are not in the vocabulary": ("7 9999", "7 11"),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_row_is_named(model, reason):
    """Others are used only if that is asked for."""
    rows = [row("7", "11"), row(*BAD[reason]), row("13", "17")]
    with refused(f"1 of 3 rows cannot be used: mend these, or leave them out .row 2: .*{reason}"):
        pairs_of(model, rows)
    assert [7, 13] == [pair.clean[-1] for pair in pairs_of(model, rows, skip_bad=True)]
    with refused(f"1 of 1 row cannot be used: mend these .row 1: .*{reason}"):
        pairs_of(model, rows[1:2], skip_bad=True)


@pytest.fixture(scope="module")
def spoken():
    """A subject with real words."""
    located = catalog.locate("demo-gpt2")
    tokenizer = load_tokenizer(located)
    subject = subject_of(SimpleNamespace(geometry=located.geometry), " the", tokenizer)
    return subject


def test_answers_and_the_context(spoken):
    rows = [
        row(" the king", " the man", " king of", " man"),
        row(" the king", " the man", " king", "king"),
        *[row(" the king" * 999, " the man" * 999, " king", " man")] * 4,
    ]
    told = "row 1: Expected text that is one token.*row 2: both answers are ' king'; "
    with refused(told + "row 3: 1,999 tokens, and the context is [0-9,]+; row 4: .*; and 2 more"):
        token_pairs(spoken, PairsParams(pairs=rows))


@pytest.mark.parametrize("text", [" the{who: king} of the house", " the {who:king} of the house"])
def test_spans_in_words(spoken, text):
    """A span may name a word without the space that its token begins with; not half a token."""
    clean = {"clean": text, "changed": text.replace("king", "man")}
    (pair,) = token_pairs(spoken, PairsParams(pairs=[row("", "", " king", " man") | clean]))
    assert [START, *spoken.encode(" the king of the house")] == [*pair.clean]
    assert (slice(2, 3),) * 2 == pair.spans["who"]
    with refused("the span 'who' holds no whole token"):
        half = {"clean": " the ki{who:n}g", "changed": " the m{who:a}n"}
        token_pairs(spoken, PairsParams(pairs=[row("", "") | half]))


def test_other_braces_are_text(spoken):
    code = {"clean": 'def f() {"a": 1}', "changed": 'def f() {"a": 2}'}
    (pair,) = token_pairs(spoken, PairsParams(pairs=[row("", "", " king", " man") | code]))
    assert code["clean"] == "".join(spoken.decode([*pair.clean[1:]]))


def made(template="", length=2):
    return TokenPair((1,) * length, (2,) * length, 3, 5, template)


def test_groups():
    """Ten at most; all pairs of a template are in one, others are dealt in turn."""
    alone = groups_of_pairs([made() for _ in range(23)])
    assert [*range(10), *range(10), 0, 1, 2] == alone.tolist()
    some = [made("a"), made(), made("b"), made("a"), made(), made("b")]
    assert [0, 1, 2, 0, 3, 2] == groups_of_pairs(some).tolist()
    assert [0, 0] == groups_of_pairs([made("a")] * 2).tolist()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=17))
def test_pairs_by_length(lengths):
    """Each pair comes once, with its own tokens, beside a few of its length alone."""
    pairs = [TokenPair((n,) * size, (n + 50,) * size, 3, 5) for n, size in enumerate(lengths)]
    seen = []
    for numbers, (clean, changed) in by_length(pairs, lambda length: 5 - length):
        assert len(numbers) <= 5 - lengths[numbers[0]]
        assert {clean.shape} == {changed.shape} == {(len(numbers), lengths[numbers[0]])}
        for place, number in enumerate(numbers):
            assert (pairs[number].clean, pairs[number].changed) == (
                tuple(clean[place]), tuple(changed[place])
            )  # fmt: skip
        seen += numbers.tolist()
    assert [*range(len(lengths))] == sorted(seen)


def words(text):
    """Each word is a token, with the space before it or without."""
    known = [*makers.NAMES, *map(str, range(1, 100)), *map(chr, range(65, 91))]
    return [1 + known.index(w) if w in known else 500 + sum(map(ord, w)) for w in text.split()]


def pieces(text):
    """Every second letter of the alphabet, and digits, are tokens of their own after a space."""
    return [(ord(letter) // 2) if letter.isalpha() else ord(letter) for letter in text]


def maker_of(encode, vocabulary=997, seed=0):
    def single(text):
        if len(ids := encode(text)) != 1:
            raise BadRequest(f"{text!r} is several tokens.")
        return ids[0]

    model = SimpleNamespace(geometry=SimpleNamespace(n_vocab=10**6, n_ctx=64))
    pool = TokenPool(np.arange(1, vocabulary), START, seed)
    more = {"encode": encode, "single_id": single, "source": pool}
    return replace(subject_of(model, "1"), **more)


@pytest.mark.parametrize("seed", [0, 3])
def test_copying_and_order(seed):
    """An induction head finds the answer in each prompt; the last one differs by its order alone.

    Pairs are as many as asked for, of one length, and others with another seed.
    """
    for maker in ("copying", "order"):
        pairs = token_pairs(maker_of(words, seed=seed), PairsParams(maker=maker, count=23))
        assert 23 == len(pairs) == len({pair.clean for pair in pairs})
        for pair in pairs:
            for ids, answer in ((pair.clean, pair.answer), (pair.changed, pair.other_answer)):
                assert answer == ids[1:][ids[1:].index(ids[-1]) + 1]
            same = sorted(pair.clean) == sorted(pair.changed)
            assert (maker == "order") == same
            key, follower = (pair.spans[name] for name in ("key", "follower"))
            assert pair.clean[follower[0]] == (pair.answer,)
            assert pair.clean[key[0]] == pair.clean[-1:]
        other = token_pairs(maker_of(words, seed=seed + 1), PairsParams(maker=maker, count=23))
        assert other[0] != pairs[0]


def test_names_and_counting():
    pairs = token_pairs(maker_of(words), PairsParams(maker="names", count=41))
    assert 10 == len({pair.template for pair in pairs}) == len({*groups_of_pairs(pairs).tolist()})
    for pair in pairs:
        again = pair.spans["again"][0].start
        assert (pair.clean[again], pair.changed[again]) == (pair.other_answer, pair.answer)
        assert pair.clean.count(pair.other_answer) == 2 == pair.changed.count(pair.answer)
        assert pair.clean[pair.spans["answer"][0]] == (pair.answer,)
    first = [pair.spans["answer"][0].start < pair.spans["other"][0].start for pair in pairs]
    assert {True, False} == {*first}  # either name comes first
    for pair in token_pairs(maker_of(words), PairsParams(maker="counting", count=41)):
        for ids, answer in ((pair.clean, pair.answer), (pair.changed, pair.other_answer)):
            assert [1] * makers.COUNTED == np.diff([*ids[1:], answer]).tolist()


def test_a_model_without_a_tokenizer():
    """Random tokens need none."""
    subject = replace(maker_of(words), encode=None, single_id=None)
    assert 2 == len(token_pairs(subject, PairsParams(maker="order", count=2)))
    for asked in ({"maker": "names"}, {"pairs": ROWS}):
        with refused("needs a tokenizer, and the model has none"):
            token_pairs(subject, PairsParams(**asked))


def test_a_vocabulary_that_has_too_little():
    with refused("'names' needs 20 names that are one token each, and this vocabulary has 0 of"):
        token_pairs(maker_of(pieces), PairsParams(maker="names"))
    with refused("'counting' finds 0 pairs in this vocabulary, and 40 were asked for"):
        token_pairs(maker_of(pieces), PairsParams(maker="counting"))
    with refused("'copying' finds 0 pairs"):
        token_pairs(maker_of(words, vocabulary=11), PairsParams(maker="copying"))
