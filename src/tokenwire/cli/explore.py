"""The verb ``explore``: the journey in a browser."""

from typing import Annotated

import typer

from tokenwire.cli.options import JourneyFile, Set


def explore(
    journey: JourneyFile = None,
    sets: Set = None,
    port: Annotated[int, typer.Option("--port", metavar="N", help="Port of this machine; 0: any that is free.")] = 8050,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; others than this machine's own let others in.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--open", help="Open a browser, too.")] = False,
) -> None:
    """Explore the journey in a browser, a page a room: select a token, and see it in every room.

    Example: tokenwire explore --set plan.tp=4 --port 8051

    It listens on this machine only and loads nothing from elsewhere. Needs the extra: pip install 'tokenwire[web]'.
    """
    from tokenwire.web import serve

    serve(journey, sets or [], host=host, port=port, browser=browser)
