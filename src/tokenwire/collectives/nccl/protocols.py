"""What a protocol puts on the link beside the data: flags that tell the receiver the data is there.

LL writes 8 bytes of which 4 are data and 4 a flag; LL128 writes 128 of which 120 are data; Simple sends the data alone and
signals by a separate counter.

Source: NVIDIA/nccl, src/include/device.h, ncclLLFifoLine and NCCL_LL128_LINESIZE.
"""

from __future__ import annotations

from tokenwire.collectives.nccl.constants import PROTOCOLS, tuner
from tokenwire.collectives.tables import Ints
from tokenwire.errors import InputError, unknown


def protocol_named(text: str) -> str:
    """Return a protocol by its name in any case. Raises ``InputError`` with the known ones.

    >>> protocol_named("ll128")
    'LL128'
    """
    found = next((name for name in PROTOCOLS if name.lower() == text.lower()), None)
    if found is None:
        raise unknown("protocol", text[:80], PROTOCOLS)
    return found


def link_bytes(protocol: str, size_bytes: int) -> int:
    """Return the bytes that a link carries for ``size_bytes`` of data. Raises ``InputError`` for an unknown protocol.

    >>> link_bytes("LL", 1000), link_bytes("LL128", 1200), link_bytes("Simple", 1000)
    (2000, 1280, 1000)
    """
    if size_bytes < 0:
        raise InputError(f"{size_bytes:,} B", rule="must be zero or more")
    line, data = _line(protocol)
    return -(-size_bytes // data) * line


def links_bytes(protocol: str, sizes: Ints) -> Ints:
    """Return the same for a column of sizes, int64, none below 0.

    >>> import numpy as np
    >>> links_bytes("LL", np.array([0, 1, 1000])).tolist()
    [0, 8, 2000]
    """
    line, data = _line(protocol)
    return -(-sizes // data) * line


def _line(protocol: str) -> tuple[int, int]:
    facts, p = tuner()["protocols"], PROTOCOLS.index(protocol_named(protocol))
    return int(facts["line_bytes"][p]), int(facts["data_bytes"][p])
