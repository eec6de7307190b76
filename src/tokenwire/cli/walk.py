"""The verb ``walk``: the whole journey, scene by scene."""

from typing import Annotated

import typer

from tokenwire.cli.options import JourneyFile, Json, Set


def walk(
    journey: JourneyFile = None,
    text: Annotated[str | None, typer.Option("--text", metavar="FILE", help="Read this text (- is stdin).")] = None,
    encoding: Annotated[str | None, typer.Option("--encoding", help="Encoding of the text, if not UTF-8.")] = None,
    verse: Annotated[
        str | None, typer.Option("--verse", metavar="PLACE", help='What to show, e.g. "Inferno III 1-9".')
    ] = None,
    token: Annotated[
        int | None, typer.Option("--token", metavar="N", help="Follow the N-th token shown (from 0) to the wire.")
    ] = None,
    scene: Annotated[
        list[str] | None, typer.Option("--scene", metavar="NAME", help="Only this scene (may be repeated).")
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option("--scale", metavar="NAME", help="Beside it: gpt2, llama-3.1-8b, 70b or 405b (may be repeated)."),
    ] = None,
    pcap: Annotated[
        str | None, typer.Option("--pcap", metavar="FILE", help="Write the packets of the token's message as a capture.")
    ] = None,
    sets: Set = None,
    json: Json = False,
) -> None:
    """Walk the whole way: a verse of Dante becomes tokens, vectors, collectives, flows, packets and bits.

    Example: tokenwire walk --token 7 --scale 405b

    Scenes: verse, words, tokens, vector, model, plan, step, traffic, links, packet, needs.
    """
    from tokenwire.cli.options import with_text
    from tokenwire.cli.output import print_json
    from tokenwire.journey import Journey
    from tokenwire.journey import scale as journey_at
    from tokenwire.report.scenes import Walk, capture, chosen, facts, show

    overrides = [*with_text(text, encoding), *(sets or [])]
    names = chosen(scene)
    stroll = Walk(
        Journey.read(journey, overrides),
        tuple((name, journey_at(name, overrides)) for name in scale or []),
        verse=verse,
        token=token,
    )
    if pcap:
        capture(stroll, pcap)
    if json:
        print_json(facts(stroll, names))
    else:
        show(stroll, names)
