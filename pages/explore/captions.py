"""The words of Explore."""

from pages.explore.scatter import Column
from pages.shared.cards.card import Explanation
from pages.shared.cards.explained import explained
from pages.shared.cards.plain import capital, plain
from pages.shared.grid.measures import MEASURES


def words(three: tuple[Column, Column, Column]) -> Explanation:
    """Return how to read the points, and the formula of each of our measures that they show."""
    reading = (
        "One point per head; hovering names it with its values and their standard errors. The "
        "large ring is the selected head, small rings are the chosen ones. Points far from the "
        "others, and groups of them, are what to look for: a measure alone does not make a head "
        "of a kind."
    )
    distinct = {column.heading: column for column in three}
    theirs = [column for column in distinct.values() if column.source]
    if theirs:
        named = "; ".join(f"{plain(each.title)} from {plain(each.source)}" for each in theirs)
        reading += f" Not ours, and shown as they came: {named}."
    formulas = []
    for column in distinct.values():
        if not column.source:
            measure = MEASURES[column.title]
            formula = explained(measure.question.name, "", measure.declared.value).formula
            formulas.append(f"**{capital(column.title)}.** {formula}")
    return Explanation(f"**How to read this.** {reading}", "\n\n".join(formulas))
