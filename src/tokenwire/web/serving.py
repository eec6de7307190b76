"""The application: the shell, the callbacks, the downloads; and serving it on this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
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
    """Serve the explorer until it is interrupted; ``said`` is told its address; port 0 is any that is free. Raises ``InputError`` for a port in use."""
    import logging

    from werkzeug.serving import make_server

    from tokenwire.web.journeys import Journeys

    if not 0 <= port <= 65535:
        raise InputError(f"--port {port}", rule="must be 0 (any that is free) to 65535", nearest=str(min(max(port, 0), 65535)))
    if host in ("", "0.0.0.0", "::"):
        raise InputError(f"--host {host}", rule="must be one address or name, the one that visitors type: requests that name another are refused",
                         nearest="--host 127.0.0.1")  # fmt: skip
    with listening(host, port) as ear:
        port = ear.getsockname()[1]
        app = explorer(file, sets, host=host, port=port)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        # The server takes a copy of the socket: a bind of its own would print what went wrong.
        server = make_server(host, port, app.server, threaded=True, fd=ear.fileno())
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


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 is any that is free. Raises ``InputError`` where it cannot be listened on."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise _deaf(host, port, "is no address", "--host 127.0.0.1") from None
    ear = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ear.bind(address)
        ear.listen(128)
    except OSError as error:
        ear.close()
        why, nearest = {
            errno.EADDRINUSE: ("something else has it", f"--port {port + 1 if port < 65535 else PORT}"),
            errno.EACCES: ("ports below 1,024 belong to root", f"--port {PORT}"),
        }.get(error.errno or 0, ("is no address of this machine", "--host 127.0.0.1"))
        raise _deaf(host, port, why, nearest) from None
    return ear


def _deaf(host: str, port: int, why: str, nearest: str) -> InputError:
    return InputError(f"--host {host[:80]} --port {port}", rule=f"cannot be listened on: {why}", nearest=nearest)


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
