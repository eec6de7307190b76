"""Who may ask: this machine's own pages only; and what a page may load: nothing from elsewhere.

A page of another site can send requests to a server on this machine (DNS rebinding, forged requests), so the Host header must
be one of the explorer's own names (421 otherwise) and an Origin, where there is one, too (403).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

LARGEST_REQUEST = 1 << 20
"""Bytes of the largest request that is read."""

LOCAL = ("localhost", "127.0.0.1", "[::1]")


def names_of(host: str, port: int) -> frozenset[str]:
    """Return the values of the Host header that mean this server.

    >>> sorted(names_of("127.0.0.1", 8050))
    ['127.0.0.1:8050', '[::1]:8050', 'localhost:8050']
    """
    hosts = {*LOCAL, f"[{host}]" if ":" in host else host}
    return frozenset(f"{name}:{port}" for name in hosts)


def refusal(host: str | None, origin: str | None, site: str | None, own: frozenset[str]) -> int | None:
    """Return the status with which a request is refused, or None.

    >>> refusal("evil.example", None, None, names_of("localhost", 80))
    421
    >>> refusal("localhost:80", "http://evil.example", None, names_of("localhost", 80))
    403
    >>> refusal("localhost:80", "http://localhost:80", "same-origin", names_of("localhost", 80))
    """
    if (host or "").lower() not in own:
        return 421
    if origin is not None and (urlsplit(origin).scheme != "http" or urlsplit(origin).netloc.lower() not in own):
        return 403
    return 403 if site == "cross-site" and origin is not None else None


def headers(script_hashes: Sequence[str]) -> dict[str, str]:
    """Return the headers of every answer: scripts of this server only, no frames, no address told to others."""
    policy = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", *script_hashes]),
        # The libraries of the page set styles on elements.
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    }


def protect(server: Any, own: frozenset[str], script_hashes: Sequence[str]) -> None:
    """Make a Flask server refuse foreign requests, answer with the headers, and tell nobody what went wrong inside."""
    from dash.exceptions import DependencyException
    from flask import Response, request

    def nothing(_: Exception | None = None) -> Any:
        return Response("There is nothing of that name.\n", 404, mimetype="text/plain")

    # A file of a package that serves none.
    server.register_error_handler(DependencyException, nothing)
    sent = headers(script_hashes)
    server.config["MAX_CONTENT_LENGTH"] = LARGEST_REQUEST

    @server.before_request
    def refuse() -> Any:
        # Dash answers a path that leads upwards with a failure of its own.
        if ".." in request.path:
            return nothing()
        status = refusal(request.headers.get("Host"), request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site"), own)
        if status is None:
            return None
        return Response("This server answers its own pages on this machine only.\n", status, mimetype="text/plain")

    @server.after_request
    def add(response: Any) -> Any:
        for name, value in sent.items():
            response.headers[name] = value
        response.headers.pop("Server", None)
        return response
