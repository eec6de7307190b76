"""What a capture says: flows, volumes by host, operations, repeats, bursts, and which collective it may have been."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.errors import InputError
from tokenwire.wire.capture.layout import (
    COMPLETE,
    CUT,
    ICRC_CUT,
    ICRC_RIGHT,
    ICRC_UNCLEAR,
    ICRC_WRONG,
    INFINIBAND_PACKET,
    MALFORMED,
    NO_VLAN,
    TRANSPORTS,
)
from tokenwire.wire.capture.pattern import Guess, guess
from tokenwire.wire.capture.reading import Notes, read_capture
from tokenwire.wire.transports.rdma import OPCODES

if TYPE_CHECKING:
    import polars as pl

MAX_FLOWS = 2**20
"""Flows that are kept apart; packets of further ones are counted together."""
FIRST_WRONG = 10
"""Packets with a wrong ICRC that are named."""
PAUSE = 10_000
"""Nanoseconds of silence that end a burst, where nothing else is asked for."""


@dataclass
class Icrc:
    """The invariant CRCs of a capture: packets where it is right, wrong, or could not be checked.

    ``first_wrong`` are numbers of packets, the capture's first is 1 as Wireshark counts; ``cut`` packets end before their ICRC,
    the longest of them kept to ``kept`` bytes; ``unclear`` are fragments, packets of contradicting lengths and the like.
    """

    right: int = 0
    wrong: int = 0
    first_wrong: tuple[int, ...] = ()
    cut: int = 0
    kept: int = 0
    unclear: int = 0

    def add(self, rows: Any, before: int) -> None:
        """Count a batch of packets, of which ``before`` came earlier."""
        found = np.bincount(rows["icrc"], minlength=ICRC_UNCLEAR + 1)
        self.right += int(found[ICRC_RIGHT])
        self.unclear += int(found[ICRC_UNCLEAR])
        if found[ICRC_WRONG]:
            self.wrong += int(found[ICRC_WRONG])
            left = FIRST_WRONG - len(self.first_wrong)
            places = np.flatnonzero(rows["icrc"] == ICRC_WRONG)[:left]
            self.first_wrong += tuple(before + 1 + int(place) for place in places)
        if found[ICRC_CUT]:
            self.cut += int(found[ICRC_CUT])
            self.kept = max(self.kept, int(rows["captured"][rows["icrc"] == ICRC_CUT].max()))

    @property
    def packets(self) -> int:
        """Return the packets that have an ICRC."""
        return self.right + self.wrong + self.cut + self.unclear

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        return {
            "right_packets": self.right, "wrong_packets": self.wrong, "first_wrong_packets": list(self.first_wrong),
            "cut_packets": self.cut, "cut_packets_kept_bytes": self.kept, "unclear_packets": self.unclear,
        }  # fmt: skip


@dataclass(frozen=True)
class Capture:
    """A capture read to its end. ``flows`` has a row a flow (``tallies.FLOWS``); bytes and ns throughout.

    ``opcodes`` is (256, 2): packets and payload by BTH opcode; ``station`` the host that most packets come from or go to, empty where
    none has an address; ``bins`` (2, n) frame bytes that it sent, and all others, by interval of ``bin_width`` ns from ``first``
    on; ``problems`` say in words what could not be read; ``pause`` is the silence that ends a burst; ``vlans`` are all tags seen,
    ``stacked_vlans`` those of frames with several: (outermost, innermost).
    """

    path: str
    format: str
    packets: int
    file_bytes: int
    bytes: int
    payload: int
    first: int
    last: int
    cut: int
    malformed: int
    undecoded: int
    vlans: tuple[int, ...]
    stacked_vlans: tuple[tuple[int, int], ...]
    icrc: Icrc
    flows: Any
    opcodes: Any
    station: str
    bins: Any
    bin_width: int
    pause: int
    problems: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Return the time from the first packet to the last."""
        return (self.last - self.first) / 1e9

    def by_transport(self) -> list[dict[str, Any]]:
        """Return packets, frame bytes and payload by transport, largest first."""
        out = []
        for number, name in enumerate(TRANSPORTS):
            of = self.flows[self.flows["transport"] == number]
            if len(of):
                out.append(
                    {
                        "transport": name, "flows": len(of), "packets": int(of["packets"].sum()),
                        "bytes": int(of["bytes"].sum()), "payload_bytes": int(of["payload"].sum()),
                        "repeated": int(of["repeated"].sum()), "gaps": int(of["gaps"].sum()),
                    }
                )  # fmt: skip
        return sorted(out, key=lambda row: -row["bytes"])

    def by_direction(self) -> list[dict[str, Any]]:
        """Return what ``station`` sent, what it received, and what passed between others: frame bytes, payload and average rate."""
        found: dict[str, list[int]] = {"sent": [0, 0], "received": [0, 0], "between others": [0, 0]}
        for sender, receiver, frames, payload, _ in self._pairs():
            way = (
                "sent"
                if sender == self.station
                else "received"
                if receiver == self.station
                else "between others"
            )
            found[way][0] += frames
            found[way][1] += payload
        return [{"direction": way, "bytes": frames, "payload_bytes": payload,
                 "bytes_per_s": frames / self.seconds if self.seconds > 0 else None}
                for way, (frames, payload) in found.items() if frames]  # fmt: skip

    def by_opcode(self) -> list[dict[str, Any]]:
        """Return packets and payload by RDMA operation, most packets first."""
        found = np.flatnonzero(self.opcodes[:, 0])
        rows = [
            {
                "opcode": int(code), "operation": OPCODES.get(int(code), f"unknown 0x{int(code):02x}"),
                "packets": int(self.opcodes[code, 0]), "payload_bytes": int(self.opcodes[code, 1]),
            }
            for code in found
        ]  # fmt: skip
        return sorted(rows, key=lambda row: -row["packets"])

    def by_host(self) -> list[dict[str, Any]]:
        """Return what each host sent and received, most payload first."""
        hosts: dict[str, dict[str, Any]] = {}
        for sender, receiver, frames, payload, _ in self._pairs():
            for name, role in ((sender, "sent"), (receiver, "received")):
                host = hosts.setdefault(
                    name,
                    {
                        "host": name,
                        "sent_bytes": 0,
                        "received_bytes": 0,
                        "sent_payload": 0,
                        "received_payload": 0,
                    },
                )
                host[f"{role}_bytes"] += frames
                host[f"{role}_payload"] += payload
        return sorted(hosts.values(), key=lambda row: -(row["sent_payload"] + row["received_payload"]))

    def pairs(self) -> dict[tuple[str, str], int]:
        """Return payload bytes by (sender, receiver), those sent twice left out."""
        out: dict[tuple[str, str], int] = {}
        for sender, receiver, _, payload, repeated in self._pairs():
            out[sender, receiver] = out.get((sender, receiver), 0) + payload - repeated
        return out

    def _pairs(self) -> Iterator[tuple[str, str, int, int, int]]:
        # Flows of one pair of addresses added up before any address is written out.
        keys = ["src_high", "src", "dst_high", "dst", "ip", "transport"]
        if not len(self.flows):
            return
        order = np.lexsort([self.flows[key] for key in keys])
        flows = self.flows[order]
        new = np.zeros(len(flows), bool)
        new[0] = True
        for key in keys:
            new[1:] |= flows[key][1:] != flows[key][:-1]
        starts = np.flatnonzero(new)
        sums = [np.add.reduceat(flows[column], starts) for column in ("bytes", "payload", "repeated_bytes")]
        for at, frames, payload, repeated in zip(starts, *sums, strict=True):
            yield (
                address(flows[at], "src"),
                address(flows[at], "dst"),
                int(frames),
                int(payload),
                int(repeated),
            )

    def guess(self) -> Guess:
        """Return which pattern of traffic this looks like: a guess, with its reason."""
        return guess(self.pairs())

    def flow_rows(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield flows as plain values, most frame bytes first."""
        for at in np.argsort(-self.flows["bytes"], kind="stable")[:limit]:
            flow = self.flows[at]
            seconds = int(flow["last"] - flow["first"]) / 1e9
            yield {
                "transport": TRANSPORTS[flow["transport"]], "source": address(flow, "src"),
                "destination": address(flow, "dst"), "source_port": int(flow["source_port"]),
                "destination_port": int(flow["destination_port"]), "qp": int(flow["qp"]),
                "packets": int(flow["packets"]), "bytes": int(flow["bytes"]), "payload_bytes": int(flow["payload"]),
                "messages": int(flow["messages"]), "repeated": int(flow["repeated"]),
                "repeated_bytes": int(flow["repeated_bytes"]), "gaps": int(flow["gaps"]),
                "acknowledgements": int(flow["acknowledgements"]), "refusals": int(flow["refusals"]),
                "congestion_notifications": int(flow["notifications"]), "ecn_marked": int(flow["marked"]),
                "bursts": int(flow["bursts"]), "largest_burst_bytes": int(flow["largest_burst"]),
                "first_ns": int(flow["first"]), "seconds": seconds,
                "bytes_per_s": float(flow["bytes"] / seconds) if seconds > 0 else None,
            }  # fmt: skip

    def table(self) -> pl.DataFrame:
        """Return all flows as a table."""
        import polars as pl

        return pl.DataFrame(list(self.flow_rows()))

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON, with the thousand largest flows."""
        return {
            "file": self.path, "format": self.format, "file_bytes": self.file_bytes, "packets": self.packets,
            "bytes": self.bytes, "payload_bytes": self.payload, "seconds": self.seconds, "first_ns": self.first,
            "cut_packets": self.cut, "malformed_packets": self.malformed, "undecoded_packets": self.undecoded,
            "vlans": list(self.vlans), "stacked_vlans": [list(pair) for pair in self.stacked_vlans],
            "icrc": self.icrc.as_dict(), "problems": list(self.problems), "transports": self.by_transport(),
            "station": self.station, "directions": self.by_direction(),
            "opcodes": self.by_opcode(), "hosts": self.by_host()[:1000], "flows": list(self.flow_rows(1000)),
            "flow_count": len(self.flows), "burst_pause_ns": self.pause, "guess": self.guess().as_dict(),
        }  # fmt: skip


def address(flow: Any, end: str) -> str:
    """Return one end of a flow as people write it; InfiniBand's local ones as LIDs."""
    high, low = int(flow[f"{end}_high"]), int(flow[end])
    if flow["ip"] == 4:
        return str(IPv4Address(low & 0xFFFFFFFF))
    if flow["ip"] == 6:
        return str(IPv6Address(high << 64 | low))
    return f"LID {low}" if flow["transport"] == INFINIBAND_PACKET else "-"


def summarize(path: str | Path, *, limit: int | None = None, pause: int = PAUSE) -> Capture:
    """Read a capture to its end and return what it says; memory does not grow with its packets.

    Raises ``InputError`` where ``path`` is no capture; whatever is wrong inside one is counted and said.
    """
    from tokenwire.wire.capture import tallies

    if pause < 0:
        raise InputError(f"a pause of {pause} ns", rule="must be at least 0", nearest="0")
    notes = Notes()
    slots = np.full(2**12, -1, np.int64)
    flows = np.zeros(2**11, tallies.FLOWS)
    opcodes, bins = np.zeros((256, 2), np.int64), np.zeros((2, tallies.BINS), np.int64)
    used, width, start, last = 0, 1000, None, 0
    totals = {"bytes": 0, "payload": 0, "cut": 0, "malformed": 0, "undecoded": 0}
    vlans: set[int] = set()
    stacked: set[tuple[int, int]] = set()
    icrc = Icrc()
    station = None
    for rows in read_capture(path, notes, limit=limit):
        start = int(rows["time"][0]) if start is None else start
        last = max(last, int(rows["time"].max()))
        begin = 0
        while begin < len(rows):
            begin, used = tallies.tally(rows, begin, slots, flows, used, pause, opcodes)
            if begin < len(rows):
                if used >= MAX_FLOWS:
                    notes.say(
                        f"more than {MAX_FLOWS:,} flows: packets of further ones are only in the totals"
                    )
                    begin += 1
                    continue
                flows = np.concatenate([flows, np.zeros(len(flows), tallies.FLOWS)])
                slots = np.full(2 * len(slots), -1, np.int64)
                tallies.rehash(slots, flows, used)
        station = _busiest(rows) if station is None else station
        high, low = (station["src_high"], station["src"]) if station is not None else (0, 0)
        width = tallies.spread(rows, bins, start, width, np.uint64(high), np.uint64(low))
        totals["bytes"] += int(rows["length"].sum(dtype=np.int64))
        totals["payload"] += int(rows["payload"].sum(dtype=np.int64))
        totals["cut"] += int((rows["status"] == CUT).sum())
        totals["malformed"] += int((rows["status"] == MALFORMED).sum())
        totals["undecoded"] += int(((rows["transport"] == 0) & (rows["status"] == COMPLETE)).sum())
        icrc.add(rows, notes.packets - len(rows))
        tags = rows["vlan"][rows["vlan"] != NO_VLAN]
        if len(tags) and len(vlans) < 4096:
            vlans.update(int(tag) for tag in np.unique(tags))
        both = rows[["outer_vlan", "vlan"]][rows["outer_vlan"] != NO_VLAN]
        if len(both) and len(stacked) < 4096:
            stacked.update((int(outer), int(inner)) for outer, inner in np.unique(both))
    if not notes.packets:
        notes.say("there is no packet in it")
    return Capture(
        path=str(path), format=notes.format, packets=notes.packets, file_bytes=notes.file_bytes, first=start or 0,
        last=max(last, start or 0), vlans=tuple(sorted(vlans | {outer for outer, _ in stacked})),
        stacked_vlans=tuple(sorted(stacked)), icrc=icrc, flows=flows[:used].copy(), opcodes=opcodes, bins=bins,
        station="" if station is None else address(station, "src"),
        bin_width=width, pause=pause, problems=tuple(notes.problems), **totals,
    )  # fmt: skip


def _busiest(rows: Any) -> Any:
    """Return an end of a packet as a row of the host that most packets come from or go to, None where none has an address."""
    of = rows[rows["ip"] != 0]
    if not len(of):
        return None
    keys = ["src_high", "src", "ip", "transport"]
    sent = of[keys]
    received = np.zeros_like(sent)
    for key, of_other in zip(keys, ("dst_high", "dst", "ip", "transport"), strict=True):
        received[key] = of[of_other]
    ends = np.concatenate([sent, received])
    _, first, counts = np.unique(ends[["src_high", "src"]], return_index=True, return_counts=True)
    return ends[first[np.argmax(counts)]]
