"""What can be taken away: every table as CSV, the token's message as a capture."""

from __future__ import annotations

from typing import Any

from tokenwire.errors import InputError
from tokenwire.web.making import Pages, exists
from tokenwire.web.state import read


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
