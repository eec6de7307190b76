"""What can be taken away: every table as CSV, the token's message as a capture."""

from __future__ import annotations

import itertools
import json
from typing import Any

from tokenwire.errors import InputError
from tokenwire.report.scenes.packet import packets_of
from tokenwire.web.making import Pages, exists
from tokenwire.web.state import read
from tokenwire.web.view import View

LARGEST_MESSAGE = 1 << 28
"""Bytes of the largest message that is given as a capture."""


def register(server: Any, pages: Pages) -> None:
    """Add the addresses of the downloads to a Flask server."""
    from flask import Response, request

    @server.get("/csv/<page>/<table>")
    def csv(page: str, table: str) -> Any:
        try:
            if not exists(page):
                raise InputError(f"page {page[:40]!r}", rule="there is none of that name")
            text = pages.csv(page, table, read(request.query_string.decode("latin-1")))
        except InputError as error:
            return Response(f"{error}\n", 400, mimetype="text/plain")
        return Response(text, mimetype="text/csv", headers={"Content-Disposition": f'attachment; filename="{page}-{table}.csv"'})

    @server.get("/pcap")
    def pcap() -> Any:
        from tokenwire.wire.capture import link_type, records
        from tokenwire.wire.capture.writing import file_header

        try:
            walk = View("packet", read(request.query_string.decode("latin-1")), pages.journeys).walk
            message = walk.journey.carried(walk.followed)
            if message is not None and message.message_bytes > LARGEST_MESSAGE:
                raise InputError("the capture", rule=f"is of {message.message_bytes:,} B: at most {LARGEST_MESSAGE:,} B are given here", nearest="tokenwire walk --pcap FILE")
            packets = packets_of(walk)
            first = next(packets)
        except InputError as error:
            return Response(f"{error}\n", 400, mimetype="text/plain")
        link = link_type(walk.journey.config.wire.transport)

        def chunks() -> Any:
            yield file_header(link)
            for chunk in records(itertools.chain([first], packets), link=link):
                yield bytes(chunk)

        return Response(chunks(), mimetype="application/vnd.tcpdump.pcap", headers={"Content-Disposition": 'attachment; filename="message.pcap"'})

    @server.get("/trace")
    def trace() -> Any:
        from tokenwire.report.rooms.time import timed
        from tokenwire.timeline.trace import trace as traced

        try:
            view = View("timeline", read(request.query_string.decode("latin-1")), pages.journeys)
            step = timed(view.journey, whole=True)
        except InputError as error:
            return Response(f"{error}\n", 400, mimetype="text/plain")
        about = {"model": view.journey.model().architecture.name, "gpus": view.journey.plan().world, "schedule": step.schedule}
        text = json.dumps(traced(step, about), allow_nan=False)
        return Response(text, mimetype="application/json", headers={"Content-Disposition": 'attachment; filename="step.json"'})
