"""The environment variables of PosKernel, as the fields of :class:`Settings`.

The field ``cache_gb`` is ``POSKERNEL_CACHE_GB``, and so on. ``POSKERNEL_CACHE`` and the two lists
``POSKERNEL_MODELS`` and ``POSKERNEL_CORPORA`` are not validated here: names are resolved on use,
and a server checks paths when it starts. Plain pydantic reads all variables in 0.1 ms;
pydantic-settings takes 3.4 ms, and 170 ms to import.
"""

import ipaddress
import os
import re
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import DEVICE, brief, plain_python

MAX_GB = 1e6
EXPECTED = {
    "bool_parsing": "1 (on) or 0 (off)",
    "float_parsing": "a number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
}
"""What was expected, by pydantic's error type, where pydantic's own message is too long."""

PATHS = ("/", "./", "../", "~/")
"""Prefixes that mark a name as a path."""


def _matching(pattern: str, expected: str) -> AfterValidator:

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(expected)
        return text

    return AfterValidator(check)


def _endpoint(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/\[\]]+)):([0-9]{1,5})", text)
    if not match or not 0 < int(match[3]) < 2**16:
        raise ValueError("an address and a port such as 127.0.0.1:9464")
    return match[1] or match[2], int(match[3])


def _proxies(text: str) -> str:
    """Check the list of proxies; uvicorn would silently accept an invalid address as a name."""
    for proxy in filter(None, map(str.strip, "" if text == "*" else text.split(","))):
        try:
            (ipaddress.ip_network if "/" in proxy else ipaddress.ip_address)(proxy)
        except ValueError as error:
            raise ValueError(
                "addresses and networks of proxies, such as '10.1.2.3' and '10.0.0.0/8', with "
                f"commas between, or '*' alone, not {proxy[:80]!r}"
            ) from error
    return text


def _size(default: float, description: str) -> Any:
    return Field(default, gt=0, le=MAX_GB, description=description)


def _count(default: int, description: str) -> Any:
    return Field(default, ge=0, le=1_000_000, description=description)


def _quota(default: int | None, description: str) -> Any:
    return Field(default, gt=0, lt=10**15, description=description)


Address = Annotated[
    str,
    _matching(r"https?://[^/?#]+(/[^?#]*)?", "that of a dashboard, such as http://localhost:8501"),
    AfterValidator(lambda text: text.rstrip("/")),
]

_ADDRESS: TypeAdapter[str] = TypeAdapter(Address)


class Settings(BaseModel):
    """The values of the environment variables; limits that may be None are off by default."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    cache_gb: float = _size(8.0, "size limit of the store")
    shipped: bool = Field(True, description="show the results that come with the project")
    allow_any_model: bool | None = Field(
        None, description="let clients type any model name; None: only if the server is local"
    )

    device: Annotated[
        str, _matching(DEVICE, "a device such as auto, cpu, cuda or cuda:1")
    ] = Field("auto", description="where runs are carried out by default")  # fmt: skip
    memory_gb: float = _size(MAX_GB, "how much of each device's memory weights may take")
    weights_on_disk: bool = Field(False, description="read weights that fit nowhere as they run")
    checkpoint_seconds: float = Field(
        5.0, ge=0, le=86_400, description="pause between checkpoints of a pass"
    )
    read_only: bool = Field(False, description="show what was computed before, compute nothing")

    open: bool = Field(False, description="open the dashboard in a browser of this machine")
    address: Address | None = Field(None, description="where the dashboard is served, for links")
    server: Address | None = Field(
        None, description="a dashboard that the command line asks in place of this machine"
    )
    notes: bool | None = Field(
        None, description="let clients write notes; None: only if the server is local"
    )
    keep_texts: bool = Field(True, description="keep typed texts, so that links are short")
    public: bool = Field(False, description="public server: lower quotas")
    api: Literal["off", "stored", "on"] | None = Field(
        None, description="what programs get: nothing, stored answers, or new ones as well"
    )
    user_header: Annotated[
        str, _matching("[A-Za-z0-9-]{1,64}", "the name of a header such as X-Forwarded-User")
    ] | None = Field(None, description="header in which a proxy names the user")  # fmt: skip
    forwarded_allow_ips: Annotated[str, AfterValidator(_proxies)] = Field(
        "", description="proxies that uvicorn trusts to name the client (without our prefix)"
    )
    metrics: Annotated[tuple[str, int], BeforeValidator(_endpoint)] | None = Field(
        None, description="host and port where Prometheus may ask"
    )

    max_sessions: int = _count(200, "pages open at once, of all clients; 0: any number")
    max_sessions_each: int = _count(40, "pages open at once, of one client; 0: any number")
    max_requests_per_minute: int = _count(600, "requests of one client; 0: any number")

    max_jobs: int = _quota(96, "computations of one client that wait or run")
    max_jobs_total: int = _quota(512, "computations of all clients that wait or run")
    max_windows: int | None = _quota(None, "windows of text of one computation")
    max_tokens: int | None = _quota(
        None,
        "tokens that the model reads for one computation: windows times context, over all passes",
    )
    max_samples: int | None = _quota(None, "sequences of an experiment on random tokens")
    max_characters: int = _quota(100_000, "characters of a typed text")
    max_texts: int = _quota(10_000, "typed texts that are kept")
    max_texts_mb: int = _quota(100, "megabytes of typed texts that are kept")
    max_tables_mb: int = _quota(40, "megabytes of uploaded tables of one session")


PUBLIC: Final = {
    "max_jobs": 32,
    "max_jobs_total": 256,
    "max_windows": 500,
    "max_tokens": 4_000_000,
    "max_samples": 2_000,
    "max_characters": 20_000,
    "max_texts": 10_000,
    "max_texts_mb": 100,
    "max_tables_mb": 10,
}
"""Default quotas of a public server."""


def variable(field: str) -> str:
    """Return the environment variable of a field of :class:`Settings`."""
    return field.upper() if field == "forwarded_allow_ips" else f"POSKERNEL_{field.upper()}"


def settings() -> Settings:
    """Read the environment variables; an empty variable counts as not set."""
    texts = {name: os.environ.get(variable(name), "").strip() for name in Settings.model_fields}
    given = {name: text for name, text in texts.items() if text}
    try:
        parsed = Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise BadRequest(
            f"Expected {variable(name)} to be {_expected(first)}, got {brief(first['input'])} "
            f"({Settings.model_fields[name].description})."
        ) from error
    return Settings.model_validate(PUBLIC | given) if parsed.public else parsed


def _expected(error: Any) -> str:
    if error["type"] == "value_error":  # raised by our own validator
        return str(error["ctx"]["error"])
    return EXPECTED.get(error["type"]) or str(error["msg"]).removeprefix("Input should be ")


def checked_address(text: str) -> str:
    """Return the address of a dashboard without a trailing slash."""
    try:
        return _ADDRESS.validate_python(str(text))  # callers may pass any object
    except ValidationError as error:
        expected = _expected(error.errors()[0])
        raise BadRequest(f"Expected the address to be {expected}, got {brief(text)}.") from error


def checked_gb(size: Any) -> float:
    """Check a size limit of the store in GB, as passed by a Python program."""
    number = plain_python(size)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= MAX_GB:
        raise BadRequest(
            f"Expected a size in GB above 0, up to {MAX_GB:,.0f}, as 'limit_gb', got {brief(size)}."
        )
    return number


def check_paths() -> None:
    """Check at a server's start that listed paths exist.

    Paths that disappear later are handled when they are used.
    """
    lists = {name: os.environ.get(name, "") for name in ("POSKERNEL_MODELS", "POSKERNEL_CORPORA")}
    for name, path in ((n, part.strip()) for n, text in lists.items() for part in text.split(",")):
        if path.startswith(PATHS) and not os.path.exists(os.path.expanduser(path)):
            raise BadRequest(
                f"Expected {name} to name what is there, found nothing at {path[:80]!r}: correct "
                "the path, or take it out."
            )
