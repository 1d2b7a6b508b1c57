"""Where the documentation tells more about a question."""

from poskernel_core.analyses import find
from poskernel_core.server import site


def page_on(analysis: str) -> str | None:
    """Return the address of the documentation's page on a question.

    That is the concept of its topic or with its name, or else its page of the reference.

    None if the site was not built, or does not know the question.
    """
    folder = site()
    topic = type(find(analysis)).__module__.split(".")[-2:][0].replace("_", "-")
    concepts = (f"concepts/{name}.html" for name in (topic, analysis))
    paths = (*concepts, f"reference/questions/{analysis}.html")
    return next((f"docs/{path}" for path in paths if folder and (folder / path).is_file()), None)
