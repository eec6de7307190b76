"""Messages as a table, and when each one's first byte passes a link.

A transfer between two ranks is cut into messages as NCCL cuts it: its network transport hands over one step of its
buffer at a time, 4 MiB / 8 = 512 KiB (NCCL 2.30, src/init.cc, DEFAULT_BUFFSIZE; src/include/device.h, NCCL_STEPS).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.wire.config import WireConfig
from tokenwire.wire.connection import MAX_NIC, MAX_NODE
from tokenwire.wire.framing import framings

MESSAGES = np.dtype(
    [
        ("time", "i8"), ("source_node", "i8"), ("source_nic", "i8"), ("destination_node", "i8"),
        ("destination_nic", "i8"), ("bytes", "i8"), ("content", "i8"), ("va", "u8"), ("rkey", "u4"), ("qp", "u4"),
        ("source_qp", "u4"), ("psn", "u4"), ("msn", "u4"),
    ]
)  # fmt: skip
"""Columns of messages: ``time`` in ns of the first bit; ``content`` where in the content its bytes begin; ``qp`` the
receiver's queue pair; ``psn`` of its first packet; ``msn`` messages completed on the queue pair with this one."""

STEP = 2**19
"""Bytes of the largest message that a transfer is cut into, where nothing else is asked for."""
_FIRST_QP, _KEY = 0x100, 0x1000


def busiest_nic(
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    gpus_per_node: int,
    nics_per_node: int | None = None,
) -> tuple[int, int]:
    """Return the NIC, (node, NIC), that sends and receives most bytes of transfers between ranks; the first of equals.

    Raises ``InputError`` where no transfer leaves its node.

    >>> busiest_nic([0, 1, 5], [1, 5, 1], [999, 10, 10], gpus_per_node=4)
    (0, 1)
    """
    k = nics_per_node or gpus_per_node
    size = np.asarray(sizes, np.int64)
    (a, i), (b, j) = (_nic_of(np.asarray(ranks, np.int64), gpus_per_node, k) for ranks in (src, dst))
    out = (a != b) & (size > 0)
    if not out.any():
        raise InputError("this step", rule="sends nothing between nodes, so no packet is on any network link")
    nics = np.concatenate([(a * k + i)[out], (b * k + j)[out]])
    names, which = np.unique(nics, return_inverse=True)
    most = int(names[np.argmax(np.bincount(which, np.concatenate([size[out], size[out]])))])
    return most // k, most % k


def _nic_of(
    ranks: npt.NDArray[np.int64], gpus: int, nics: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return ranks // gpus, ranks % gpus * nics // gpus


def messages_of_nic(
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    nic: tuple[int, int],
    gpus_per_node: int,
    config: WireConfig,
    nics_per_node: int | None = None,
    largest: int = STEP,
) -> npt.NDArray[Any]:
    """Return the messages that a NIC sends or receives for transfers between ranks, in their order, times all 0.

    ``src``, ``dst`` (ranks) and ``sizes`` (bytes) are columns of transfers; GPU g of a node uses NIC floor(g·k/n) of its
    k NICs, n its GPUs; transfers inside a node are left out. Every pair of NICs has a queue pair of its own at each end.
    Raises ``InputError`` where numbers do not fit the address plan.
    """  # fmt: skip
    if gpus_per_node < 1 or largest < 1:
        raise InputError("a node without GPUs or messages without bytes", rule="both must be at least 1")
    sender, receiver = np.asarray(src, np.int64), np.asarray(dst, np.int64)
    size = np.asarray(sizes, np.int64)
    k = nics_per_node or gpus_per_node
    (a, i), (b, j) = (_nic_of(ranks, gpus_per_node, k) for ranks in (sender, receiver))
    here = (a == nic[0]) & (i == nic[1]) | (b == nic[0]) & (j == nic[1])
    keep = here & (a != b) & (size > 0)
    a, i, b, j, size = a[keep], i[keep], b[keep], j[keep], size[keep]
    if len(a) and (max(a.max(), b.max()) > MAX_NODE or max(i.max(), j.max()) > MAX_NIC):
        raise InputError(
            "too many nodes or NICs", rule=f"addresses hold nodes 0 to {MAX_NODE:,} and NICs 0 to {MAX_NIC}"
        )
    count = -(-size // largest)
    at = np.repeat(np.arange(len(size)), count)
    index = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
    out = np.zeros(len(at), MESSAGES)
    for name, column in (
        ("source_node", a),
        ("source_nic", i),
        ("destination_node", b),
        ("destination_nic", j),
    ):
        out[name] = column[at]
    out["bytes"] = np.minimum(largest, size[at] - index * largest)
    out["rkey"] = _KEY
    return _numbered(out, config, index * largest)


def _numbered(
    messages: npt.NDArray[Any], config: WireConfig, offset: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    # Queue pairs by direction of a pair of NICs; packet and message numbers count on along each.
    names = ["source_node", "source_nic", "destination_node", "destination_nic"]
    if not len(messages):
        return messages
    _, flow = np.unique(messages[names], return_inverse=True)
    # TCP numbers bytes, all others packets.
    tcp = config.transport == "tcp"
    packets = messages["bytes"] if tcp else framings(messages["bytes"], config)["packets"]
    mask = 0xFFFFFF if config.transport in ("rocev2", "infiniband") else 0xFFFFFFFF
    order = np.argsort(flow, kind="stable")
    start = np.concatenate([[True], flow[order][1:] != flow[order][:-1]])
    before = np.cumsum(packets[order]) - packets[order]
    number = np.arange(len(order))
    first = np.maximum.accumulate(np.where(start, number, 0))
    messages["psn"][order] = (before - before[first]) & mask
    messages["msn"][order] = (number - first + 1) & 0xFFFFFF
    messages["qp"] = messages["source_qp"] = _FIRST_QP + flow
    messages["va"] = 0x7F00_0000_0000 + offset.astype(np.uint64)
    messages["content"] = offset
    return messages


def scheduled(messages: npt.NDArray[Any], config: WireConfig, rate: float) -> npt.NDArray[Any]:
    """Return the messages with times at which they can pass their links: one after the other in each direction.

    ``time`` is when a message is ready; it waits until the one before it, of the same sender or (at one NIC) to the
    same receiver, has passed. ``rate`` is in bytes/s. t_i = max(ready_i, t_(i-1) + wire_(i-1)/rate).
    """
    if not rate > 0:
        raise InputError(f"a rate of {rate:g} bytes/s", rule="must be above 0")
    out = messages.copy()
    duration = framings(out["bytes"], config)["wire_bytes"] * (1e9 / rate)
    # The closed form of the recurrence: what passed before, plus the latest excuse for waiting.
    before = np.cumsum(duration) - duration
    # The first whole nanosecond; less than a thousandth beyond one is an error of the sums, not time.
    out["time"] = np.ceil(np.maximum.accumulate(out["time"] - before) + before - 1e-3)
    return out
