"""What the kernel counted on each TCP connection of this process: TCP_INFO.

Layout: Linux include/uapi/linux/tcp.h, struct tcp_info. Bytes are those of the stream: no headers, and
``sent - resent`` counts every byte once.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

SEGMENTS, DATA_SEGMENTS, BYTES, SENT = 136, 152, 120, 200
"""Offsets of segs_out, data_segs_in, bytes_acked and bytes_sent, each followed by its companion."""
_LENGTH = 232


def connections() -> Iterator[dict[str, Any]]:
    """Yield the TCP connections of this process that are open.

    ``local`` and ``remote`` are [address, port]; ``sent`` (without what was sent again), ``resent``, ``acked`` and ``received``
    are bytes of the stream; ``packets_out``, ``packets_in`` segments with acknowledgements, ``data_out``, ``data_in`` those
    with data.
    """
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            copy = os.dup(int(name))
        except OSError:
            continue
        with socket.socket(fileno=copy) as one:
            found = _counted(one)
        if found is not None:
            yield found


def _counted(one: socket.socket) -> dict[str, Any] | None:
    if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM:
        return None
    try:
        remote, local = one.getpeername(), one.getsockname()
        info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH)
    except OSError:
        return None  # listening, or closed by the other end
    if len(info) < SENT + 16:
        raise OSError("this kernel does not count bytes sent by connection (Linux 4.19 and later do)")
    acked, received = struct.unpack_from("=QQ", info, BYTES)
    packets_out, packets_in = struct.unpack_from("=II", info, SEGMENTS)
    data_in, data_out = struct.unpack_from("=II", info, DATA_SEGMENTS)
    sent, resent = struct.unpack_from("=QQ", info, SENT)
    return {
        "local": [_plain(local[0]), local[1]], "remote": [_plain(remote[0]), remote[1]], "sent": sent - resent,
        "resent": resent, "acked": acked, "received": received, "packets_out": packets_out, "packets_in": packets_in,
        "data_out": data_out, "data_in": data_in,
    }  # fmt: skip


def _plain(address: str) -> str:
    return address.removeprefix("::ffff:")
