"""What a protocol puts on the link beside the data: flags that tell the receiver the data is there.

LL writes 8 bytes of which 4 are data and 4 a flag; LL128 writes 128 of which 120 are data; Simple sends the data alone and
signals by a separate counter.

Source: NVIDIA/nccl, src/include/device.h, ncclLLFifoLine and NCCL_LL128_LINESIZE.
"""

from __future__ import annotations

from tokenwire.collectives.nccl.constants import PROTOCOLS, tuner
from tokenwire.errors import InputError, unknown


def link_bytes(protocol: str, size_bytes: int) -> int:
    """Return the bytes that a link carries for ``size_bytes`` of data. Raises ``InputError`` for an unknown protocol.

    >>> link_bytes("LL", 1000), link_bytes("LL128", 1200), link_bytes("Simple", 1000)
    (2000, 1280, 1000)
    """
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol[:80], PROTOCOLS)
    if size_bytes < 0:
        raise InputError(f"{size_bytes:,} B", rule="must be zero or more")
    facts, p = tuner()["protocols"], PROTOCOLS.index(protocol)
    line, data = int(facts["line_bytes"][p]), int(facts["data_bytes"][p])
    return -(-size_bytes // data) * line
