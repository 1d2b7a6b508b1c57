"""A model's results as a data set for the hub: arrays as safetensors, a table, and a card."""

import json
from collections.abc import Iterator, Sequence

from safetensors.numpy import save

from poskernel_core import __version__
from poskernel_core.common.result import Result
from poskernel_core.engine.provenance import to_entry
from poskernel_core.export.files import bibtex, caption_and_errors, identity, to_csv

CARD = """\
---
license: mit
tags: [interpretability, attention-heads, positional-kernels]
pretty_name: {title}
configs:
- config_name: measures
  data_files: measures.csv
---

# {title}

How the attention heads of `{model}` (revision `{revision}`, weights `{fingerprint}`) use position,
computed by PosKernel {version}. {caption}.

`measures.csv` has one row for each measure of each head, with its standard error, its bias where
it is known, and its rank. Every other file holds the answer to one question: arrays by name under
`values/`, standard errors of the same shape under `errors/`, by how much values are too large under
`biases/`, what indices stand for under `coordinates/`. Their axes, units, parameters and provenance
are JSON in the file's metadata, under `header`.

```python
import json
from safetensors import safe_open

with safe_open("{first}.safetensors", framework="numpy") as file:
    header = json.loads(file.metadata()["header"])
    for name in file.keys():
        print(name, header["axes"].get(name.partition("/")[2]), file.get_tensor(name).shape)
```

| file | question |
|---|---|
{rows}

## Citation

```bibtex
{bibtex}
```
"""


def hub_card(
    results: Sequence[tuple[str, Result]], measures: Result
) -> Iterator[tuple[str, str | bytes]]:
    """Yield the names and contents of all files of a data set.

    Args:
        results: titles of questions and their answers, of one run; at least one.
        measures: all measures of all heads.
    """
    known = identity(measures)
    model = str(known["model"])
    title = f"Position in the attention heads of {model.rstrip('/').rpartition('/')[2]}"
    yield (
        "README.md",
        CARD.format(
            title=title,
            model=model,
            revision=known.get("revision", "main"),
            fingerprint=known.get("fingerprint", ""),
            version=__version__,
            caption=caption_and_errors(measures).removesuffix("."),
            first=results[0][1].analysis,
            rows="\n".join(f"| `{r.analysis}.safetensors` | {name} |" for name, r in results),
            bibtex=bibtex(measures, title),
        ),
    )
    table = to_csv(measures).splitlines(keepends=True)
    yield "measures.csv", "".join(line for line in table if not line.startswith("#"))
    for _, result in results:
        header, arrays = to_entry(result)
        yield f"{result.analysis}.safetensors", save(arrays, {"header": json.dumps(header)})
