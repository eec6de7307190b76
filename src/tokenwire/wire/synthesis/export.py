"""From a step's transfers to a capture file of one NIC's link."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenwire.errors import InputError
from tokenwire.units import counted, format_bytes, format_count
from tokenwire.wire.capture.writing import SNAPLEN, link_type, write_capture
from tokenwire.wire.config import WireConfig
from tokenwire.wire.synthesis.capture import packet_total, synthesize
from tokenwire.wire.synthesis.messages import STEP, busiest_nic, messages_of_nic


@dataclass(frozen=True)
class Written:
    """What was written: whose link, how many messages and packets there are, how many packets are in the file."""

    file: str
    node: int
    nic: int
    transport: str
    messages: int
    packets_of_step: int
    packets: int
    payload_bytes: int
    file_bytes: int

    @property
    def line(self) -> str:
        """Return the same in a line for people."""
        part = "" if self.packets == self.packets_of_step else f" of {format_count(self.packets_of_step)}"
        return (
            f"{self.file}: {format_count(self.packets)}{part} packets ({format_bytes(self.file_bytes)}) of "
            f"{counted(self.messages, 'message')} ({format_bytes(self.payload_bytes)}) by {self.transport} "
            f"at NIC {self.nic} of node {self.node}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return dict(vars(self))


def read_nic(text: str) -> tuple[int, int]:
    """Return (node, NIC) from ``"0.3"``. Raises ``InputError`` for anything else.

    >>> read_nic("12.3")
    (12, 3)
    """
    match = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", text.strip())
    if not match:
        raise InputError(f"--link {text[:40]!r}", rule="must be NODE.NIC, both counted from 0", nearest="0.0")
    return int(match[1]), int(match[2])


def export_capture(
    path: str,
    config: WireConfig,
    *,
    rate: float,
    gpus_per_node: int,
    nics_per_node: int,
    transfers: Mapping[str, Any] | Any | None = None,
    one: int | None = None,
    nic: tuple[int, int] | None = None,
    largest: int = STEP,
    content: bytes | None = None,
    snap_length: int = SNAPLEN,
    max_packets: int | None = None,
    acknowledged: bool = True,
) -> Written:
    """Write the capture of a NIC's link to ``path``: of ``transfers`` (columns src, dst, bytes), or of ``one`` message.

    ``nic`` None takes the one with most bytes. Raises ``InputError`` for a NIC that is not there or has no traffic.
    """  # fmt: skip
    if one is not None:
        if one < 1:
            raise InputError(f"a message of {one} bytes", rule="must have at least 1 byte", nearest="1 B")
        transfers = {"src": [0], "dst": [gpus_per_node], "bytes": [one]}
        largest = one
    assert transfers is not None
    columns = [np.asarray(transfers[name], np.int64) for name in ("src", "dst", "bytes")]
    if nic is None:
        nic = (
            (0, 0)
            if one is not None
            else busiest_nic(*columns, gpus_per_node=gpus_per_node, nics_per_node=nics_per_node)
        )
    if nic[1] >= nics_per_node:
        raise InputError(
            f"NIC {nic[1]}",
            where="--link",
            rule=f"a node has NICs 0 to {nics_per_node - 1}",
            nearest=str(nics_per_node - 1),
        )
    messages = messages_of_nic(
        *columns, nic=nic, gpus_per_node=gpus_per_node, nics_per_node=nics_per_node, config=config, largest=largest,
    )  # fmt: skip
    if not len(messages):
        raise InputError(
            f"NIC {nic[1]} of node {nic[0]}", where="--link", rule="sends and receives nothing in this step"
        )
    total = packet_total(messages, config, acknowledged=acknowledged)
    pieces = synthesize(
        messages, config, rate=rate, nic=nic, content=content, acknowledged=acknowledged, snap_length=snap_length,
        max_packets=max_packets,
    )  # fmt: skip
    size = write_capture(path, pieces, link_type(config.transport))
    packets = total if max_packets is None else min(total, max_packets)
    return Written(
        path, *nic, config.transport, len(messages), total, packets, int(messages["bytes"].sum()), size
    )  # fmt: skip
