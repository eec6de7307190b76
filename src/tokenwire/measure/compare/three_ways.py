"""What each rank sent, counted three ways that must agree: by its interface, by its sockets, by the capture.

The interface counts frames without knowing what is in them; TCP_INFO counts bytes of streams and segments, to which headers are
added; the capture is decoded. All three are read at a moment at which nothing crosses the interface, and hold the store's talk too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenwire.measure.compare.frames import FRAME_HEADER
from tokenwire.measure.counting.streams import Stream


def three_ways(runs: Sequence[dict[str, Any]], found: Sequence[Stream] | None) -> tuple[dict[str, Any], ...]:
    """Return a row a rank: ``packets`` and ``bytes`` sent from the first mark to the last, ``_interface``, ``_sockets``, ``_capture``.

    ``bytes_sockets`` are of the streams, sent again or not, and 66 of headers a segment; what TCP adds where packets were lost or came
    out of order (12 for a selective acknowledgement) and where it connects is ``option_bytes``, by the capture. ``store_bytes`` are the
    part of ``bytes_capture`` that is the store's. Without a capture its columns are None.
    """
    rows = []
    for run in runs:
        first, last = run["marks"][0], run["marks"][-1]
        sockets = [_sockets(mark) for mark in (first, last)]
        row = {"rank": run["rank"], "packets_interface": _grown(first, last, "tx_packets"),
               "packets_sockets": sockets[1][0] - sockets[0][0], "packets_capture": None,
               "bytes_interface": _grown(first, last, "tx_bytes"), "bytes_sockets": sockets[1][1] - sockets[0][1],
               "bytes_capture": None, "option_bytes": None, "store_bytes": None}  # fmt: skip
        if found is not None:
            row.update(_captured(run, found))
        rows.append(row)
    return tuple(rows)


def _grown(first: dict[str, Any], last: dict[str, Any], key: str) -> int:
    return int(last["interface"][key] - first["interface"][key])


def _sockets(mark: dict[str, Any]) -> tuple[int, int]:
    # Rank 0 asks its own store without leaving its host.
    both = [one for one in (*mark["connections"], *mark["store"]) if one["local"][0] != one["remote"][0]]
    segments = sum(one["packets_out"] for one in both)
    return segments, sum(one["sent"] + one["resent"] for one in both) + FRAME_HEADER * segments


def _captured(run: dict[str, Any], found: Sequence[Stream]) -> dict[str, int]:
    first, last = (run["marks"][at]["time_ns"] for at in (0, -1))
    ends = {kind: {tuple(one["local"]) for mark in run["marks"] for one in mark[kind]} for kind in ("connections", "store")}
    out = {"packets_capture": 0, "bytes_capture": 0, "option_bytes": 0, "store_bytes": 0}
    for stream in found:
        if stream.source not in ends["connections"] | ends["store"]:
            continue
        counts = stream.window(first, last)
        out["packets_capture"] += counts["frames"]
        out["bytes_capture"] += counts["frame_bytes"]
        out["option_bytes"] += counts["frame_bytes"] - counts["payload_bytes"] - FRAME_HEADER * counts["frames"]
        if stream.source in ends["store"]:
            out["store_bytes"] += counts["frame_bytes"]
    return out
