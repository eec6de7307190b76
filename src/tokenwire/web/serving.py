"""The application: the shell, the callbacks, the downloads; and serving it on this machine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from tokenwire.web.journeys import Journeys

PORT = 8050


def explorer(file: str | None = None, sets: Sequence[str] = (), *, host: str = "127.0.0.1", port: int = PORT) -> Any:
    """Return the explorer as a Dash application that answers to ``host`` and ``port``.

    Raises ``InputError`` for a journey that does not work, and ``MissingExtra`` where Dash is not installed.
    """
    try:
        import dash
    except ImportError:
        raise MissingExtra("the explorer", "web") from None
    from tokenwire.web import callbacks, downloads, guard, shell
    from tokenwire.web.journeys import Journeys
    from tokenwire.web.making import Pages
    from tokenwire.web.rooms import ROOMS, page_of

    for name in ROOMS:  # all component libraries must be known before the first page is asked for
        page_of(name)
    pages = Pages(Journeys(file, sets))
    app = dash.Dash(
        "tokenwire.web", assets_folder=str(_assets()), serve_locally=True, title="tokenwire", update_title="", suppress_callback_exceptions=True,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}], index_string=shell.INDEX,
    )  # fmt: skip
    app.layout = shell.layout()
    callbacks.register(app, pages)
    downloads.register(app.server, pages)
    guard.protect(app.server, guard.names_of(host, port), app.csp_hashes())
    return app


def serve(
    file: str | None = None, sets: Sequence[str] = (), *, host: str = "127.0.0.1", port: int = PORT, browser: bool = False,
    said: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Serve the explorer until it is interrupted; ``said`` is told its address. Raises ``InputError`` for a port in use."""
    import logging

    from werkzeug.serving import make_server

    from tokenwire.web.journeys import Journeys

    if not 1 <= port <= 65535:
        raise InputError(f"--port {port}", rule="must be 1 to 65535", nearest=str(min(max(port, 1), 65535)))
    if host in ("", "0.0.0.0", "::"):
        raise InputError(f"--host {host}", rule="must be one address or name, the one that visitors type: requests that name another are refused",
                         nearest="--host 127.0.0.1")  # fmt: skip
    app = explorer(file, sets, host=host, port=port)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    try:
        server = make_server(host, port, app.server, threaded=True)
    except (OSError, SystemExit):
        raise InputError(f"{host} port {port}", rule="cannot be listened on: something else has it, or it is no address of this machine",
                         nearest=f"--port {port + 1 if port < 65535 else PORT}") from None  # fmt: skip
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    said(f"The explorer is at {address} (interrupt to end)")
    # What the first visitor would wait for (libraries, compiled loops) is loaded meanwhile.
    threading.Thread(target=warm, args=(Journeys(file, sets),), daemon=True).start()
    if browser:
        import webbrowser

        webbrowser.open(address)
    try:
        server.serve_forever()
    finally:
        server.server_close()


def warm(journeys: Journeys) -> None:
    """Make every page once, for journeys of its own, so that libraries are loaded; a page that cannot be made is left out."""
    from tokenwire.web.rooms import ROOMS, page_of
    from tokenwire.web.state import State
    from tokenwire.web.view import View

    for name in ROOMS:
        with contextlib.suppress(InputError):
            page_of(name)(View(name, State(), journeys))


def _assets() -> Any:
    from pathlib import Path

    return Path(__file__).parent / "assets"
