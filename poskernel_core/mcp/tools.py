"""The tools of assistants: few, over what a server or this machine answers.

Each public method of :class:`Tools` is a tool. Its docstring, and the descriptions of its
parameters, are what assistants read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.views import figure_of
from poskernel_core.api import RUN_FIELDS, check_fields
from poskernel_core.client import Server
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.export.printing import picture
from poskernel_core.mcp.answers import MAX_ROWS, answer, number, table, written
from poskernel_core.mcp.here import Here

MEASURES = {measure.title: question.name for question in ANALYSES.values()
            for measure in question.measures}  # fmt: skip
"""The question that declares each measure."""

FIRST = next(iter(MEASURES))

SCHEMAS = ("answer", "stage")
"""What of a question's description is for programs alone."""

DRAWING = Lock()
"""One picture is drawn at a time: each takes a browser."""

Model = Annotated[str, Field(description="a model's name: see list_models")]
Head = Annotated[str, Field(description="a head, such as L2H6: layer and head from 0")]
Query = Annotated[int | None, Field(description="one query position, from 0")]
Revision = Annotated[str | None, Field(description="a checkpoint of the model's training")]
Run = Annotated[
    dict[str, Any] | None,
    Field(
        description="what it is computed on, where it is not the default, which is stored for many "
        f"models: {', '.join(sorted(RUN_FIELDS))}"
    ),
]
Picture = Annotated[bool, Field(description="also return the figure, as PNG")]
Measure = Annotated[
    str, Field(description="what is measured", json_schema_extra={"enum": [*MEASURES]})
]
Answer = tuple[str, bytes | None]
"""The text of an answer, and a figure as PNG."""


def described(text: str) -> Any:
    """Return the description of a parameter."""
    return Field(description=text)


@dataclass(frozen=True)
class Tools:
    """The tools for one call.

    Attributes:
        source: who answers.
        tell: hears of what is computed.
    """

    source: Server | Here
    tell: Callable[[Mapping[str, Any]], None]

    def find_heads(
        self,
        model: Model,
        measure: Measure = FIRST,
        order: Literal["largest", "smallest"] = "largest",
        kind: Annotated[str, described("if values are kinds: only heads of this one")] = "",
        query: Query = None,
        revision: Revision = None,
        run: Run = None,
    ) -> Answer:
        """Find the heads of a model that come first by a measure.

        For example those that attend to the previous token, have an attention sink, or a wide
        positional kernel: each with its number, a 95 % interval, and the ranks that it may have.
        """
        if measure not in MEASURES:
            raise BadRequest(f"No measure {measure[:60]!r}: expected one of {', '.join(MEASURES)}.")
        others = {*MEASURES.values()} - {MEASURES[measure]}
        verdicts = self._verdicts(model, others, run, query=query, revision=revision)
        at = verdicts.words("measure").index(measure)
        kinds, values = verdicts.texts["kinds"][at], verdicts.values["value"][at]
        heads = sorted(map(tuple, np.argwhere(np.isfinite(values)).tolist()),
                       key=lambda head: values[head], reverse=order == "largest")  # fmt: skip
        columns = [f"{measure} ({verdicts.texts['unit'][at]})", "rank", "first_rank", "last_rank"]
        rows = [[number(verdicts, name, (at, *head)) for name in ("value", *columns[1:])]
                for head in heads]  # fmt: skip
        if kinds[0]:
            columns, rows = ["kind"], [[kinds[int(values[head])]] for head in heads]
        rows = [[head_name(*head), *row] for head, row in zip(heads, rows, strict=True)
                if kind in ("", row[0])]  # fmt: skip
        params = verdicts.params | {"measure": measure}
        of_map = replace(verdicts, analysis=MEASURES[FIRST], params=params)  # which the Map shows
        heads_told = table(["head", *columns], rows)
        return self._written(of_map, measure=measure, heads=heads_told)

    def describe_head(
        self,
        model: Model,
        head: Head,
        experiments: Annotated[
            bool, described("also compute what runs the model again, for minutes")
        ] = False,
        query: Query = None,
        revision: Revision = None,
        run: Run = None,
    ) -> Answer:
        """Say what one head does, in a sentence, with all its measures and the page about it."""
        stored = {name for entry in self.source.models() if entry["name"] == model
                  for one in entry.get("runs", ()) for name in one["questions"]}  # fmt: skip
        later = {name for name in MEASURES.values() if ANALYSES[name].on_request} - stored
        out = () if experiments else later
        verdicts = self._verdicts(model, out, run, head=head, query=query, revision=revision)
        rows = [[name, number(verdicts, "value", (at,)), verdicts.texts["unit"][at],
                 number(verdicts, "rank", (at,))]
                for at, name in enumerate(verdicts.words("measure"))]  # fmt: skip
        for row, kinds in zip(rows, verdicts.texts["kinds"], strict=True):
            if kinds[0] and row[1] is not None:
                row[1] = kinds[int(row[1])]
        return self._written(
            verdicts,
            verdict=verdicts.text_of("verdict"),
            more=[claim for claim in verdicts.words("claim") if claim],
            not_computed=verdicts.words("unknown"),
            measures=table(["measure", "value", "unit", "rank"], rows),
        )

    def ask(
        self,
        question: Annotated[str, described("its name: see list_questions")],
        model: Model,
        head: Annotated[str | None, described("one head, such as L2H6; else all")] = None,
        query: Query = None,
        params: Annotated[
            dict[str, Any] | None,
            described("parameters of the question: see list_questions(about=question)"),
        ] = None,
        revision: Revision = None,
        run: Run = None,
        picture: Picture = False,
    ) -> Answer:
        """Ask any question about a model: what the answer shows in a sentence, and its numbers.

        Name a head if you can: long tables are cut, and without 'query' are of one position.
        """
        options = {"head": head, "query": query, "params": params, "revision": revision}
        return self._whole(self._show(question, model, run, **options), picture)

    def list_questions(
        self,
        about: Annotated[
            str, described("a question's name, to have all of it described; or words")
        ] = "",
    ) -> Answer:
        """List the questions that can be asked, the likeliest first; or describe one."""
        every = self.source.questions()
        if about in (entry["name"] for entry in every):
            description = self.source.question(about)
            return written(
                {name: description[name] for name in description if name not in SCHEMAS}
            ), None
        words = about.casefold().split()

        def likeness(analysis: Mapping[str, str]) -> int:
            text = " ".join(analysis.values()).casefold()
            return sum(word in text for word in words)

        every = sorted(filter(likeness, every), key=likeness, reverse=True) or every
        rows = [[entry["name"], entry["title"], entry["summary"]] for entry in every]
        columns = ["name", "title", "summary"]
        return written({"questions": table(columns, rows)}, len(rows)), None

    def list_models(self) -> Answer:
        """List the models, whether their weights are here, and which runs are stored."""
        models = self.source.models()
        for model in models:
            model["runs"] = [
                f"{run['corpus']}, {run['windows']} windows of {run['context']} tokens: "
                f"{', '.join(run['questions'])}"
                for run in sorted(model.get("runs", ()), key=lambda run: -len(run["questions"]))[:3]
            ]
        return written({"models": models}), None

    def patch(
        self,
        model: Model,
        clean: Annotated[str, described("the clean prompt")],
        changed: Annotated[str, described("the changed prompt, of as many tokens")],
        answer: Annotated[str, described("the clean prompt's next token; else the likeliest")] = "",
        other_answer: Annotated[str, described("the changed prompt's, likewise")] = "",
        picture: Picture = False,
    ) -> Answer:
        """Patch each head between two prompts: what of their difference it carries.

        It runs the model, for seconds to minutes.
        """
        params = {"clean": clean, "changed": changed}
        params |= {"answer": answer, "other_answer": other_answer}
        return self._whole(self._show("patch-heads", model, None, params=params), picture)

    def ablate(
        self,
        model: Model,
        heads: Annotated[str, described("heads, such as 'L0H1, L2H3': all at once")],
        by: Literal["mean", "zero", "resample", "kernel"] = "mean",
        run: Run = None,
        picture: Picture = False,
    ) -> Answer:
        """Ablate heads on many texts: what the model loses, and its induction.

        It runs the model, for minutes.
        """
        params = {"heads": heads, "by": by}
        return self._whole(self._show("ablate-heads", model, run, params=params), picture)

    def _whole(self, result: Result, drawn: bool) -> Answer:
        """Return all of a result that fits, at one query position, and its figure if wanted."""
        sizes = [array.size for array in result.values.values()]
        if "query" in result.coordinates and max(sizes) > MAX_ROWS:
            queries = result.coordinates["query"].tolist()
            usual = ANALYSES[result.analysis].default_query(int(result.provenance["context"]))
            result = result.select(query=usual if usual in queries else queries[-1])
        text, _ = self._written(result)
        if not drawn:
            return text, None
        try:
            with DRAWING:
                return text, picture(figure_of(result), result, "png")
        except BadRequest as error:  # which names paths of the host
            raise BadRequest("No picture of it is drawn here: ask without 'picture'.") from error

    def _written(self, result: Result, **fields: Any) -> Answer:
        return written(answer(result, self.source.address, **fields)), None

    def _verdicts(self, model: str, leave_out: Any, run: Run, **options: Any) -> Result:
        """Return the measures of all heads, without those of some questions."""
        params = {"leave_out": ",".join(sorted(leave_out))}
        return self._show("verdicts", model, run, params=params, **options)

    def _show(self, question: str, model: str, run: Run, **options: Any) -> Result:
        """Return a result; texts are texts, and no paths."""
        own = ANALYSES[question].params.model_fields if question in ANALYSES else ()
        check_fields(question, run or {}, own)
        given = {**(run or {}), **{k: value for k, value in options.items() if value is not None}}
        return self.source.show(question, model, tell=self.tell, files=False, **given)
