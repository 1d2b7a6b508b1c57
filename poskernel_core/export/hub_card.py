"""A model's results as a data set for the hub: arrays as safetensors, a table, and a card."""

import json
from collections.abc import Iterator, Sequence

from safetensors.numpy import save

from poskernel_core.common.result import Result
from poskernel_core.engine.provenance import to_entry
from poskernel_core.export.files import bibtex, caption_and_errors, identity, template, to_csv


def hub_card(
    results: Sequence[tuple[str, Result]], measures: Result
) -> Iterator[tuple[str, str | bytes]]:
    """Yield the names and contents of all files of a data set: answers of one run, by title."""
    known = identity(measures)
    model = str(known["model_title"])
    title = f"Position in the attention heads of {model.rstrip('/').rpartition('/')[2]}"
    card = template("hub_card.md").render(
        title=title,
        model=model,
        revision=known.get("revision", "main"),
        fingerprint=known.get("fingerprint", ""),
        caption=caption_and_errors(measures).removesuffix("."),
        results=results,
        bibtex=bibtex(measures, title),
    )
    yield "README.md", f"{card}\n"
    table = to_csv(measures).splitlines(keepends=True)
    yield "measures.csv", "".join(line for line in table if not line.startswith("#"))
    for _, result in results:
        header, arrays = to_entry(result)
        yield f"{result.analysis}.safetensors", save(arrays, {"header": json.dumps(header)})
