"""A simulated client: a web socket to a running server, with the browser's protocol."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

FIND = "-find"  # how the id of the part ends that tells the heads
CHOICES = "-instrument"  # of the part that reports choices
DRAWN = "-drawn"  # and of the part that tells for what the figures have been drawn


class Lost(Exception):
    """The server closed the session, did not answer in time, or its script failed."""


@dataclass
class Reader:
    """A Streamlit session: open an address, then choose heads.

    Attributes:
        heads: names of the model's heads, once the page is open.
        texts: headings, texts and error boxes of the last run, and for what it drew the figures.
        buttons: widget ids of the buttons of the last run, by label.
        waits: whether the last run showed a progress bar.
    """

    url: str
    patience: float = 120.0
    heads: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    buttons: dict[str, str] = field(default_factory=dict)
    waits: bool = False
    _socket: ClientConnection | None = None
    _address: tuple[str, str] = ("", "")
    _page: str = ""
    _part: str = ""
    _chosen: dict[str, Any] = field(default_factory=dict)
    _known: dict[str, ForwardMsg] = field(default_factory=dict)
    _earlier: dict[str, ForwardMsg] = field(default_factory=dict)

    async def open(self, page: str = "", **parameters: object) -> float:
        """Connect and load a page; return the seconds until its script has run.

        Raises:
            Lost: the session failed.
        """
        began = time.perf_counter()
        self._address = (page, urlencode(parameters))
        try:
            self._socket = await connect(
                f"{self.url.replace('http', 'ws', 1)}/_stcore/stream",
                subprotocols=[Subprotocol("streamlit")],
                origin=self.url,  # type: ignore[arg-type]
                compression=None,
                max_size=None,
                open_timeout=self.patience,
            )
        except (OSError, WebSocketException) as error:
            raise Lost(f"no connection: {error!r}") from error
        await self._run(BackMsg())
        return time.perf_counter() - began

    async def choose(self, head: str, *, shown: bool = True) -> float:
        """Choose a head in the sidebar; return the seconds until the script has run.

        Raises:
            Lost: the session failed, or ``shown`` is set and the page does not show the head.
        """
        if head not in self.heads:
            raise Lost(f"the page offers no head {head}")
        message = BackMsg()
        state = message.rerun_script.widget_states.widgets.add()
        kept = {name: self._chosen[name] for name in ("query", "log")}
        choice = {**kept, "cell": head, "rev": self._chosen["rev"] + 1}
        state.id, state.json_value = self._part, json.dumps({"choice": choice})
        seconds = await self._run(message)
        if shown and not any(head in text for text in self.texts):
            raise Lost(f"the page does not show {head}")
        return seconds

    async def press(self, label: str) -> float:
        """Press a button of the last run; return the seconds until the script has run.

        Raises:
            Lost: the session failed.
        """
        message = BackMsg()
        state = message.rerun_script.widget_states.widgets.add()
        state.id, state.trigger_value = self.buttons[label], True
        return await self._run(message)

    async def again(self) -> float:
        """Rerun the script without changes; return the seconds until it has run.

        Raises:
            Lost: the session failed.
        """
        return await self._run(BackMsg())

    async def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            await self._socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, message: BackMsg) -> float:
        """Send a message that runs the script; return the seconds until it has run."""
        assert self._socket is not None
        client = message.rerun_script
        client.page_name, client.query_string = self._address
        client.page_script_hash = self._page
        client.cached_message_hashes.extend(self._known)
        self._earlier, self._known = self._known, {}
        self.texts, self.buttons, self.waits = [], {}, False
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.patience):
                await self._socket.send(message.SerializeToString())
                while not self._take(await self._socket.recv(decode=False)):
                    pass
        except TimeoutError as error:
            raise Lost(f"no answer within {self.patience:g} s") from error
        except WebSocketException as error:
            raise Lost(f"the connection was closed: {error!r}") from error
        return time.perf_counter() - began

    def _take(self, data: bytes) -> bool:
        """Process a message; tell whether it ends the run."""
        message = ForwardMsg.FromString(data)
        if message.WhichOneof("type") == "ref_hash":  # the same as in the last run
            message = self._earlier[message.ref_hash]
        kind = message.WhichOneof("type")
        if message.metadata.cacheable:
            self._known[message.hash] = message
        if kind == "new_session":
            self._page = message.new_session.page_script_hash
        elif kind == "delta" and message.delta.HasField("new_element"):
            self._look(message.delta.new_element)
        elif kind == "script_finished":
            if message.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
                raise Lost("the script could not be compiled")
            return message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY
        return False

    def _look(self, element: Element) -> None:
        match element.WhichOneof("type"):
            case "bidi_component" if element.bidi_component.id.endswith(FIND):
                self.heads = json.loads(element.bidi_component.json)["heads"]
            case "bidi_component" if element.bidi_component.id.endswith(CHOICES):
                self._part = element.bidi_component.id
                self._chosen = json.loads(element.bidi_component.json)
            case "bidi_component" if element.bidi_component.id.endswith(DRAWN):
                drawn = json.loads(element.bidi_component.json)
                self.texts.append(f"{drawn['cell']} at n = {drawn['query']}")
            case "heading":
                self.texts.append(element.heading.body)
            case "markdown":
                self.texts.append(element.markdown.body)
            case "button":
                self.buttons[element.button.label] = element.button.id
            case "progress":
                self.waits = True
            case "alert":
                self.texts.append(element.alert.body)
            case "exception":
                raise Lost(f"an exception on the page: {element.exception.message}")
