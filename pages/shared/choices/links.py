"""Links of earlier versions, under the names of today."""

import re

from poskernel_core.common.heads import layer_of
from poskernel_core.common.renamed import KEYS, MODELS, PAGE_KEYS, SHOWN


def forwarded(link: dict[str, list[str]], page: str) -> dict[str, list[str]]:
    """Return a link to a page with renamed parameters, and its head in capitals."""
    found: dict[str, list[str]] = {}
    names = KEYS | PAGE_KEYS.get(page, {})
    for old, values in link.items():
        key = names.get(old, old)
        if key != old and key in link:  # the link has the parameter under its new name too
            continue
        found[key] = [SHOWN.get(key, {}).get(value, value) for value in values]
        if key == "head":
            found[key] = [value.upper() if layer_of(value) >= 0 else value for value in values]
        elif key == "pins":
            found[key] = [_forwarded_pins(value) for value in values]
    return found


def _forwarded_pins(pins: str) -> str:
    """Return pins with renamed settings and models."""
    pins = pins.replace(";texts=", ";windows=")
    return re.sub("(?<=@)[^@;,]+", lambda name: MODELS.get(name[0], name[0]), pins)
