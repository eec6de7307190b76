"""What was counted between two marks, by pair of ranks: by the kernel's sockets, and by the capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tokenwire.measure.counting.streams import DATA, Stream

Pair = tuple[int, int]
Ends = tuple[tuple[str, int], tuple[str, int]]


def owners(runs: Sequence[dict[str, Any]], mark: int) -> dict[Ends, int]:
    """Return whose end of a connection each (local, remote) is."""
    return {ends(c): run["rank"] for run in runs for c in run["marks"][mark]["connections"]}


def ends(connection: dict[str, Any]) -> Ends:
    """Return the two ends of a connection, the own one first."""
    (a, b), (c, d) = connection["local"], connection["remote"]
    return (str(a), int(b)), (str(c), int(d))


def by_sockets(runs: Sequence[dict[str, Any]], mark: int) -> dict[str, Counter[Pair]]:
    """Return stream bytes sent (``sent``), received by the other (``received``), sent again, and packets, since the mark before.

    Keys are (sender, receiver); a connection is that of two ranks by its ends, which both list.
    """
    owner = owners(runs, mark)
    out: dict[str, Counter[Pair]] = {name: Counter() for name in ("sent", "received", "resent", "packets", "data_packets")}
    for run in runs:
        before = {ends(c): c for c in run["marks"][mark - 1]["connections"]}
        for connection in run["marks"][mark]["connections"]:
            mine, other = ends(connection)
            if (other, mine) not in owner:
                continue
            old, peer = before.get((mine, other), {}), owner[other, mine]
            for name, key, pair in (
                ("sent", "sent", (run["rank"], peer)), ("resent", "resent", (run["rank"], peer)),
                ("received", "received", (peer, run["rank"])), ("packets", "packets_out", (run["rank"], peer)),
                ("data_packets", "data_out", (run["rank"], peer)),
            ):  # fmt: skip
                out[name][pair] += connection[key] - old.get(key, 0)
    return out


def by_capture(found: Sequence[Stream], runs: Sequence[dict[str, Any]], mark: int) -> dict[str, Counter[Pair]]:
    """Return stream bytes, payload, messages, frames with data and without, and their bytes by pair since the mark before, from the capture.

    A mark is the moment at which the sender of a stream read its counts.
    """
    owner = owners(runs, mark)
    names = ("stream_bytes", "payload", "messages", "data_frames", "acks", "frame_bytes")
    out: dict[str, Counter[Pair]] = {name: Counter() for name in names}
    for stream in found:
        rank = owner.get((stream.source, stream.target))
        peer = owner.get((stream.target, stream.source))
        if rank is None or peer is None:
            continue
        first, last = (runs[rank]["marks"][at]["time_ns"] for at in (mark - 1, mark))
        counts = stream.window(first, last)
        for name in ("stream_bytes", "data_frames", "frame_bytes"):
            out[name][rank, peer] += counts[name]
        out["acks"][rank, peer] += counts["frames"] - counts["data_frames"]
        records = stream.records()
        data = records[(records[:, 0] > first) & (records[:, 0] <= last) & (records[:, 1] == DATA)]
        out["payload"][rank, peer] += int(data[:, 2].sum())
        out["messages"][rank, peer] += len(data)
    return out

