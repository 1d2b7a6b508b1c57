"""Words from elsewhere are shown, not obeyed."""

import pytest

from pages.head.blocks import marked
from pages.shared.cards.plain import plain, sentence_with_code


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("![](http://x.y/z.png)", r"\!\[\]\(http\://x.y/z.png\)"),
        ("**bold** _it_", r"\*\*bold\*\* \_it\_"),
        ("$x$ <b> `c` :red[r]", r"\$x\$ \<b\> \`c\` \:red\[r\]"),
        ("plain words, 12.5", "plain words, 12.5"),
    ],
)
def test_marks_are_escaped(text, shown):
    assert shown == plain(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("run `pip install --no-deps x` *now*", r"run `pip install --no-deps x` \*now\*"),
        ("one ` alone, *so*", r"one \` alone, \*so\*"),
    ],
)
def test_code_in_a_sentence_stays_code(text, shown):
    assert shown == sentence_with_code(text)


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (("the public", " service", " of"), "the public :primary[**service**] of"),
        (("pub", "lic", "*ly"), r"pub:primary[**lic**]\*ly"),
        (("end", ".", "\n"), "end:primary[**.**]⏎"),
        (("a", "  ", "b"), "a  :primary[**␣**]b"),
    ],
)
def test_one_token_of_a_text_is_bold(pieces, shown):
    assert shown == marked(*pieces)
