"""Words from elsewhere are shown, not obeyed."""

import pytest

from pages.shared.plain import plain


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
    """Images, links, colours, formulas and tags stay text."""
    assert shown == plain(text)
