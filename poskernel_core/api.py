"""The Python interface: ``import poskernel_core as pk``.

There are two ways to the same numbers. :func:`show` uses the engine and its store, like the pages
and the command line. :func:`load`, :func:`run_pass` and :func:`analyse` stay in this process and
take token windows directly, so that anyone can check the numbers on their own tokens::

    model = pk.load("demo-gpt2")
    gathered = pk.run_pass(model, windows)             # integers [windows, T]
    pk.analyse("etc", gathered, skip=4).select(query=400).values["etc"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from poskernel_core import analyses
from poskernel_core.analyses.patching.tables import table_or_file
from poskernel_core.analyses.sources import TextParams
from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest, UnknownField
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.settings import checked_address, settings
from poskernel_core.common.specs import (
    ALL_GATHERED,
    QUERIES_PER_POSITION,
    AnyModel,
    CorpusSpec,
    Execution,
    Gather,
    Request,
    RunSpec,
    ascending,
    brief,
    default_positions,
    plain_python,
    whole,
)
from poskernel_core.common.views import Gathered
from poskernel_core.data.conversations import text_or_file
from poskernel_core.engine.checkpoints import first_questions, or_left_out
from poskernel_core.engine.engine import Engine, describe_run, engine_or_shared
from poskernel_core.engine.plan import check_params
from poskernel_core.engine.provenance import provenance
from poskernel_core.models.catalog import Located, locate
from poskernel_core.models.known import telling_head

if TYPE_CHECKING:
    from poskernel_core.export.notebook import View

    class Lab(Protocol):
        """An attached model."""

        def opened(self) -> AbstractContextManager[Opened]:
            """Open it for questions."""


RUN_FIELDS = frozenset(RunSpec.model_fields) - {"model", "gather"}
"""The fields of a run that whoever asks may give."""


def load(name: AnyModel, *, revision: str | None = None, device: Any = "auto") -> Any:
    """Load a model by bundled name, directory, GGUF file or hub name, for use by :func:`run_pass`.

    ``device`` is a torch device or its name; None means ``auto``.

    Raises:
        BadRequest: no such model or device, or a model that is not supported.
    """
    from poskernel_core.forward import loading

    execution = Execution(device="auto" if device is None else device)
    return loading.load(locate(name, revision), execution.device)


def to_bridge(model: Any, *, revision: str | None = None, device: Any = "auto") -> Any:
    """Return a model as a ``TransformerBridge`` of transformer_lens.

    ``model`` is one that :func:`load` has loaded, whose tensors the bridge shares, or what
    :func:`load` takes.

    Raises:
        BadRequest: as for :func:`load`; or transformer_lens has no bridge for the architecture.
    """
    from poskernel_core.forward import bridge
    from poskernel_core.forward.loaded import LoadedModel

    held = (
        model if isinstance(model, LoadedModel) else load(model, revision=revision, device=device)
    )
    return bridge.to_bridge(held)


def token_windows(model: AnyModel, **run: Any) -> Tokens:
    """Return the token windows ``[windows, T]`` that a run reads; its fields as in :func:`show`.

    The start token, if the run has one, stands first in each window. The corpora ``"random"`` and
    ``"repeated"`` are the tokens that experiments draw.

    Raises:
        PosKernelError: with a message of one sentence.
    """
    from poskernel_core.data import corpora, made
    from poskernel_core.models.tokenizers import load_tokenizer
    from poskernel_core.passes.prepare import prepare

    drawn = run.get("corpus") in (made.RANDOM, made.REPEATED)
    located = locate(model, run.pop("revision", None))
    spec = describe_run(located, **(run | {"corpus": None} if drawn else run))
    if drawn:
        corpus = corpora.resolve(CorpusSpec(name=run["corpus"]))
        spec = spec.model_copy(update={"corpus": corpus})
    return prepare(spec, Execution(), located, load_tokenizer(located))[0]


def run_pass(
    model: Any,
    windows: Any,
    *,
    positions: Iterable[int] | None = None,
    queries_per_position: int = QUERIES_PER_POSITION,
    start_token: bool = True,
    gather: Iterable[Gather] = ALL_GATHERED,
    batch: int | None = None,
) -> Gathered:
    """Gather the statistics of a model over token windows ``[windows, T]``, in this process.

    Args:
        model: a model returned by :func:`load`, or anything that :func:`load` accepts.
        windows: token ids, used unchanged; no start token is added. Ten or more windows are split
            into ten equal groups of consecutive windows. The remaining windows are not read: of 23
            windows, 20 are read. A ``Cut`` from ``token_windows`` keeps its groups.
        positions: query positions to record (default: 32 evenly spaced, and 400 and 1000).
        queries_per_position: queries kept per position, one per window.
        start_token: whether position 0 holds a start token (the diagonal profile leaves it out).
        gather: names of the statistics.
        batch: windows per forward pass.

    Raises:
        BadRequest: windows of another shape, ids outside the vocabulary, or an invalid argument.
    """
    from poskernel_core.data.corpora import Cut, in_stretches
    from poskernel_core.forward.loaded import LoadedModel
    from poskernel_core.models.tokenizers import load_tokenizer
    from poskernel_core.passes.prepare import check_ids, sizes_of, wants_texts
    from poskernel_core.passes.runner import gather as run

    dealt = windows if isinstance(windows, Cut) else None
    try:
        windows = np.asarray(windows if dealt is None else dealt.tokens)
    except (ValueError, TypeError) as error:
        raise BadRequest(
            "Expected integers of shape [windows, T], got windows of unequal lengths."
        ) from error
    if windows.ndim != 2 or windows.dtype.kind not in "iu" or 0 in windows.shape:
        raise BadRequest(
            f"Expected integers of shape [windows, T], got {windows.dtype} {list(windows.shape)}."
        )
    context = windows.shape[1]
    execution = Execution(batch=batch)
    loaded = model if isinstance(model, LoadedModel) else load(model)
    spec = RunSpec(
        model=loaded.located.spec,
        corpus=CorpusSpec(name="windows"),
        context=context,
        windows=len(windows),
        start_token=start_token,
        positions=default_positions(context) if positions is None else ascending(positions),
        queries_per_position=queries_per_position,
        gather=plain_python(gather),
    )
    remedy = f"make the windows with the tokenizer of {spec.model.name!r}, or load their own model"
    check_ids(loaded.geometry, windows, remedy)
    cut = dealt or in_stretches(windows)
    tokenizer = load_tokenizer(loaded.located) if wants_texts(spec) else None
    sizes = sizes_of(spec, loaded.geometry, cut.tokens, cut.dealt, tokenizer)
    spec = spec.model_copy(update={"positions": sizes.positions})
    gathered = run(loaded, cut.tokens, sizes, spec, batch=execution.batch)
    return replace(gathered, run=spec)


def analyse(analysis: str, gathered: Gathered, **params: Any) -> Result:
    """Compute an analysis from statistics in memory; parameters as in :func:`show`.

    Raises:
        BadRequest: an invalid parameter, or a pass that did not gather the statistics needed.
    """
    definition = analyses.find(analysis)
    if not isinstance(gathered, Gathered) or gathered.run is None:
        raise BadRequest(f"Expected what pk.run_pass returned, got {brief(gathered)}.")
    run, checked = gathered.run, check_params(definition, params)
    if not isinstance(definition, analyses.Analysis) or set(definition.needs(run, checked)) != {
        "main"
    }:
        raise BadRequest(
            f"{analysis!r} needs more than one pass over these windows (or the model itself): "
            "ask for it with pk.show, or choose parameters that need the pass alone."
        )
    try:
        result = definition.answer({"main": gathered}, checked, lambda done, total: None)
    except KeyError as error:
        every = run.model_copy(update={"gather": ALL_GATHERED})
        needed = ", ".join(map(repr, definition.needs(every, checked)["main"].gather))
        raise BadRequest(
            f"The pass gathered too little for {analysis!r}: give pk.run_pass gather=({needed},), "
            "or ask for the analysis with pk.show."
        ) from error
    made = provenance(run, gathered.header, 0.0) | result.provenance
    result = replace(result, provenance=made)
    return result.without_heads(gathered.header.reasons)


@dataclass(frozen=True)
class Opened:
    """A model to ask of, by its description, with the engine that answers.

    ``ran`` is told the run of each answer.
    """

    model: AnyModel
    engine: Engine
    ran: Callable[[RunSpec], None] = lambda run: None


def opened(model: Any, engine: Engine | None = None) -> AbstractContextManager[Opened]:
    """Open a model for questions; one that was attached has an engine of its own."""
    own: Callable[[], AbstractContextManager[Opened]] | None = getattr(model, "opened", None)
    return nullcontext(Opened(model, engine_or_shared(engine))) if own is None else own()


def show(
    analysis: str,
    model: AnyModel | Lab,
    *,
    head: str | None = None,
    query: int | None = None,
    engine: Engine | None = None,
    params: Mapping[str, Any] | None = None,
    **run: Any,
) -> Result:
    """Return a result through the engine, like ``poskernel show``.

    Args:
        analysis: its name, such as ``"etc"``.
        model: a model's name, directory or description, or what ``pk.attach`` returned.
        head: one head, such as ``"L0H3"`` (default: all).
        query: one query position (default: all recorded ones, or the analysis' own default).
        engine: the engine to use (default: this process's shared one, on the default store).
        params: parameters of the analysis, such as ``{"skip": 4}``.
        run: fields of the run (``corpus``, ``context``, ``windows``, ``dtype``, ``seed``, ...).

    Raises:
        PosKernelError: with a message of one sentence.
    """
    with opened(model, engine) as lab:
        request, chosen = build_request(
            analysis, lab.model, head=head, query=query, params=params, **run
        )
        result = lab.engine.result(request)
        lab.ran(request.run)
    assert result is not None  # no time limit was set
    return result.select(**chosen)


def precompute(
    model: AnyModel | Lab, *, engine: Engine | None = None, experiments: bool = False, **run: Any
) -> list[str]:
    """Compute what the pages show first, and return the names of the analyses; as ``precompute``.

    Args:
        model: as in :func:`show`.
        engine: as in :func:`show`.
        experiments: whether to compute experiments too, which run the model again.
        run: fields of the run.

    Raises:
        PosKernelError: with a message of one sentence.
    """
    done = []
    with opened(model, engine) as lab:
        requests = default_requests(lab.model, experiments=experiments, **run)
        for request, _ in answered(lab.engine, requests, lab.engine.result):
            lab.ran(request.run)
            done.append(request.analysis)
    return done


def answered(
    engine: Engine,
    requests: Iterable[Request],
    answer: Callable[[Request], object],
    say: Callable[[str], object] = lambda line: None,
) -> Iterator[tuple[Request, bool]]:
    """Submit requests together, so that they share passes; yield each, and whether it is new.

    Experiments that do not fit are left out.
    """
    fitting = []
    for request in requests:
        with or_left_out(request.analysis, say):
            if new := engine.cached(request) is None:
                engine.submit(request)
            fitting.append((request, new))
    for request, new in fitting:
        with or_left_out(request.analysis, say):
            answer(request)
            yield request, new


def default_requests(
    model: AnyModel,
    *,
    experiments: bool,
    measures: bool = False,
    **run: Any,
) -> list[Request]:
    """Return the requests for the pages' default results; with ``measures``, for every measure."""
    located = locate(model, run.pop("revision", None))
    described = describe_run(located, **run)
    head = telling_head(located.spec.name, "contextual")
    wanted = dict(first_questions(described, located.geometry, head, experiments=experiments))
    for analysis, question in analyses.ANALYSES.items():
        if question.measures and measures:
            wanted.setdefault(analysis, question.default_params(described, located.geometry))
    return [request_about(described, *question) for question in wanted.items()]


def watch(
    analysis: str,
    model: AnyModel | Lab,
    *,
    head: str | None = None,
    query: int | None = None,
    engine: Engine | None = None,
    params: Mapping[str, Any] | None = None,
    **run: Any,
) -> Iterator[Result]:
    """Yield a result while it forms: of the first 4 windows, of more and more, and of all.

    The arguments are those of :func:`show`. Results on the way are at one query position (default:
    the analysis' own); ``result.provenance["windows"]`` says how many windows they are of. They
    come as far as the analysis is a function of one pass. Whoever breaks off cancels the
    computation; what was read is kept.

    Raises:
        PosKernelError: with a message of one sentence.
    """
    with opened(model, engine) as lab:
        request, chosen = build_request(
            analysis, lab.model, head=head, query=query, params=params, **run
        )
        at = looked_at(request, chosen)
        for result in lab.engine.watch(request, at):
            yield result.select(**chosen)
        lab.ran(request.run)


def looked_at(request: Request, chosen: Mapping[str, int]) -> int:
    """Return the query position of a request, as :func:`build_request` returned it."""
    usual = analyses.find(request.analysis).default_query(request.run.context)
    return int(chosen.get("query", request.params.get("query", usual)))


def view(
    analysis: str,
    model: AnyModel | Lab,
    *,
    address: str | None = None,
    embed: bool | None = None,
    **options: Any,
) -> View:
    """Return the result of :func:`show` with its figure, for notebooks.

    Args:
        analysis: its name, such as ``"kernel"``.
        model: a model's name, directory or description.
        address: the dashboard that the figure links to, such as ``"http://localhost:8501"``
            (default: ``POSKERNEL_ADDRESS``; no link if that is not set).
        embed: whether plotly.js is put into the output (default: once in a notebook).
        options: other arguments of :func:`show`, such as ``head`` and ``query``.

    Raises:
        PosKernelError: with a message of one sentence.
    """
    from poskernel_core.export.notebook import View

    base = settings().address if address is None else checked_address(address)
    return View(show(analysis, model, **options), base, embed)


def build_request(
    analysis: str,
    model: AnyModel,
    *,
    head: str | None = None,
    query: int | None = None,
    params: Mapping[str, Any] | None = None,
    files: bool = True,
    **run: Any,
) -> tuple[Request, dict[str, int]]:
    """Return the request of :func:`show`, and the coordinates to select from its result.

    If the analysis has parameters ``head`` and ``query``, these are set; else they select from the
    result. A ``text`` that is a list of turns is written by the model's chat template. With
    ``files``, a text that is the path of a file is read from it.

    Raises:
        BadRequest: the request is invalid.
    """
    definition = analyses.find(analysis)
    fields = definition.params.model_fields
    check_fields(analysis, run, fields)
    params, chosen = read_params(analysis, params, files=files), {}
    selectable = definition.selectable()
    for name, given in (("head", head), ("query", query)):
        if given is not None and name not in (*fields, *selectable):
            raise BadRequest(f"{analysis!r} has no {name} to choose: leave it out.")
    query = None if query is None else whole(query, "query position")
    located = locate(model, run.pop("revision", None))
    if issubclass(definition.params, TextParams) and isinstance(params.get("text"), list | tuple):
        params["text"] = written(located, params["text"])
    described = describe_run(located, query=query, **run)
    if query is not None and "query" in fields:
        params["query"] = query
    elif query is not None:
        chosen["query"] = query
    if head is not None and "head" in fields:
        params["head"] = head
    elif head is not None:
        sizes = located.geometry.n_layers, located.geometry.n_heads
        chosen["layer"], chosen["head"] = parse_cell(head, *sizes)
    return request_about(described, analysis, params), chosen


def read_params(analysis: str, params: Mapping[str, Any] | None, *, files: bool) -> dict[str, Any]:
    """Return parameters; with ``files``, of a text that is the path of a file what it holds.

    Raises:
        BadRequest: they are no dictionary, or a file cannot be read.
    """
    if not isinstance(params, Mapping | None):
        raise BadRequest(
            f"Expected a dictionary as 'params', such as {{'skip': 4}}, got {brief(params)}."
        )
    params, question = dict(params or {}), analyses.ANALYSES.get(analysis)
    for name in question.params.typed_texts() if question and files else ():
        if isinstance(params.get(name), str):
            read = table_or_file if name == "pairs" else text_or_file
            params[name] = read(params[name])
    return params


def request_about(run: RunSpec, analysis: str, params: Mapping[str, Any]) -> Request:
    """Return the request about a described run; at the analysis' own position if none is given."""
    definition, params = analyses.find(analysis), dict(params)
    if "query" in definition.params.model_fields:
        params.setdefault("query", definition.default_query(run.context))
    return Request(analysis=analysis, run=run, params=params)


def written(located: Located, turns: Any) -> str:
    """Return a conversation, a list of turns with role and content, as the model reads it.

    Raises:
        BadRequest: something else than turns, or the model's chat template refuses them.
    """
    from poskernel_core.data.conversations import read_turns
    from poskernel_core.models.chat import render

    try:
        return render(located, read_turns(turns)).text
    except ValueError as error:
        raise BadRequest(f"Parameter 'text': {error}.") from error


def check_fields(analysis: str, run: dict[str, Any], params: Iterable[str]) -> None:
    """Check that all names are fields of a run, and not, say, parameters of the question."""
    known = RUN_FIELDS | {"revision"}
    unknown = sorted(run.keys() - known)
    if not unknown:
        return
    one = unknown[0]
    if one in params:
        raise UnknownField(
            f"{one!r} is a parameter of {analysis!r}: give it in 'params', as in "
            f"params={{{one!r}: {run[one]!r}}}."
        )
    raise UnknownField(f"Expected fields of a run ({', '.join(sorted(known))}), got {one!r}.")
