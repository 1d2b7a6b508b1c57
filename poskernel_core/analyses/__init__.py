"""Each folder is a topic; :data:`TOPICS` lists the modules, :data:`ANALYSES` the questions."""

from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any

from poskernel_core.analyses.base import Analysis, Composition, Experiment, Params, Question
from poskernel_core.common import plugins
from poskernel_core.common.errors import UnknownAnalysis
from poskernel_core.common.result import Result

TOPICS = (
    "kernels.etc",
    "kernels.kernel",
    "kernels.kernel_map",
    "kernels.distances",
    "kernels.near",
    "kernels.profile",
    "dilution.spec",
    "dilution.longer",
    "entropy.spec",
    "sinks.spec",
    "sink_anatomy.spec",
    "foreseen.spec",
    "score_shares.spec",
    "place_and_content.spec",
    "kernel_only.spec",
    "writing.spec",
    "ablation.spec",
    "position_sources.spec",
    "headvis.spec",
    "helix.spec",
    "helix.tangent",
    "previous_token.spec",
    "interventions.spec",
    "patching.spec",
    "circuits.spec",
    "additivity.spec",
    "own_text.spec",
    "score_components.spec",
    "conversations.spec",
    "contextual_heads.spec",
    "contextual_heads.denominators",
    "bag.contextual_neurons",
    "bag.neuron",
    "induction.spec",
    "random_tokens.spec",
    "induction.norm_cause",
    "position_vs_token.spec",
    "rotary.spec",
    "rotary.kernel",
    "rotary.bands",
    "training.spec",
    "comparison.folds",
    "comparison.spec",
    "head_measures.spec",
    "head_measures.verdicts",
    "comparison.measures",
    "how_many_texts.spec",
)
"""The modules that define questions, in the order in which the questions are listed."""


NAMED = 12
"""Names that an error gives, those like the unknown one first."""


def _questions(module: ModuleType) -> Iterator[Question[Any]]:
    for member in vars(module).values():
        own = isinstance(member, type) and member.__module__ == module.__name__
        if own and issubclass(member, Question) and "name" in vars(member):
            yield member()


ANALYSES: dict[str, Question[Any]] = {
    question.name: question
    for topic in TOPICS
    for question in _questions(import_module(f"{__name__}.{topic}"))
}
Question.questions = ANALYSES


def add_questions(entry: Any, module: Any) -> tuple[str, ...]:
    """Add the questions of another package's module.

    Raises:
        ValueError: it defines none, or one of a name that is taken.
    """
    questions = {question.name: question for question in _questions(module)}
    if not questions:
        raise ValueError(f"{entry.value} defines no question")
    if taken := sorted(questions.keys() & ANALYSES):
        raise ValueError(f"the name {', '.join(taken)} is taken: choose another")
    ANALYSES.update(questions)
    return tuple(questions)


plugins.load(plugins.QUESTIONS, add_questions)

__all__ = [
    "ANALYSES",
    "Analysis",
    "Composition",
    "Experiment",
    "Params",
    "Question",
    "Result",
    "find",
]


def find(name: str) -> Question[Any]:
    """Return the analysis or experiment called ``name``.

    Raises:
        UnknownAnalysis: no analysis has that name.
    """
    if not isinstance(name, str) or name not in ANALYSES:
        near = dict.fromkeys([*get_close_matches(str(name), ANALYSES, 6, cutoff=0.3), *ANALYSES])
        raise UnknownAnalysis(
            f"No analysis {name!r}: expected one of {len(ANALYSES)} names, such as "
            f"{', '.join([*near][:NAMED])}."
        )
    return ANALYSES[name]
