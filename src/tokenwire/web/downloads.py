"""What can be taken away: every table as CSV, the token's message as a capture, the step as a trace."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from tokenwire.errors import InputError
from tokenwire.report.rooms.time import timed
from tokenwire.report.scenes.packet import packets_of
from tokenwire.timeline.trace import trace as traced
from tokenwire.web.making import Pages, exists
from tokenwire.web.state import State, read
from tokenwire.web.view import View
from tokenwire.wire import Packet
from tokenwire.wire.capture import link_type, records
from tokenwire.wire.capture.writing import file_header

LARGEST_MESSAGE = 1 << 28
"""Bytes of the largest message that is given as a capture."""


def register(server: Any, pages: Pages) -> None:
    """Add the addresses of the downloads to a Flask server."""
    from flask import Response, request

    def given(name: str, kind: str, made: Callable[[State], Any]) -> Any:
        try:
            body = made(read(request.query_string.decode("latin-1")))
        except InputError as error:
            return Response(f"{error}\n", 400, mimetype="text/plain")
        return Response(body, mimetype=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})

    @server.get("/csv/<page>/<table>")
    def csv(page: str, table: str) -> Any:
        def text(state: State) -> str:
            if not exists(page):
                raise InputError(f"page {page[:40]!r}", rule="there is none of that name")
            return pages.csv(page, table, state)

        return given(f"{page}-{table}.csv", "text/csv", text)

    @server.get("/pcap")
    def pcap() -> Any:
        return given("message.pcap", "application/vnd.tcpdump.pcap", lambda state: pages.bounded("pcap", state, lambda: _capture(View("packet", state, pages.journeys))))

    @server.get("/trace")
    def trace() -> Any:
        return given("step.json", "application/json", lambda state: pages.bounded("trace", state, lambda: _trace(View("timeline", state, pages.journeys))))


def _capture(view: View) -> Iterator[bytes]:
    walk = view.walk
    message = walk.journey.carried(walk.followed)
    if message is not None and message.message_bytes > LARGEST_MESSAGE:
        raise InputError("the capture", rule=f"is of {message.message_bytes:,} B: at most {LARGEST_MESSAGE:,} B are given here",
                         nearest="tokenwire walk --pcap FILE")  # fmt: skip
    packets = packets_of(walk)
    # What cannot be had is known with the first packet; the others are made as they are sent.
    return _chunks(next(packets), packets, link_type(walk.journey.config.wire.transport))


def _chunks(first: tuple[int, Packet], packets: Iterator[tuple[int, Packet]], link: int) -> Iterator[bytes]:
    yield file_header(link)
    for chunk in records(itertools.chain([first], packets), link=link):
        yield bytes(chunk)


def _trace(view: View) -> str:
    step = timed(view.journey, whole=True)
    about = {"model": view.journey.model().architecture.name, "gpus": view.journey.plan().world, "schedule": step.schedule}
    return json.dumps(traced(step, about), allow_nan=False)
