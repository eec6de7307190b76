"""What RoCEv2 and InfiniBand share: path MTUs, operation codes, and the headers that follow the BTH."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.wire import headers
from tokenwire.wire.transports.transport import Layer

if TYPE_CHECKING:
    from tokenwire.wire.config import WireConfig

PATH_MTUS = (256, 512, 1024, 2048, 4096)
"""Payload bytes a packet (InfiniBand Architecture Specification, volume 1, chapter 7.7.8)."""

_SERVICES = ("RC", "UC", "RD", "UD")
_OPERATIONS = (
    "SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "SEND_LAST_WITH_IMMEDIATE", "SEND_ONLY", "SEND_ONLY_WITH_IMMEDIATE",
    "WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_WITH_IMMEDIATE", "WRITE_ONLY", "WRITE_ONLY_WITH_IMMEDIATE",
    "READ_REQUEST", "READ_RESPONSE_FIRST", "READ_RESPONSE_MIDDLE", "READ_RESPONSE_LAST", "READ_RESPONSE_ONLY",
    "ACKNOWLEDGE", "ATOMIC_ACKNOWLEDGE", "COMPARE_SWAP", "FETCH_ADD",
)  # fmt: skip
OPCODES: dict[int, str] = {
    service << 5 | operation: f"{name}_{said}"
    for service, name in enumerate(_SERVICES)
    for operation, said in enumerate(_OPERATIONS)
} | {0x16: "RC_SEND_LAST_WITH_INVALIDATE", 0x17: "RC_SEND_ONLY_WITH_INVALIDATE", 0x81: "CNP"}
"""BTH opcodes by number: three bits of service, five of operation (volume 1, table 38; CNP: annex A17.9)."""
NUMBERS = {name: number for number, name in OPCODES.items()}

_STEMS = {
    "write": ("RC_WRITE", ""),
    "write_with_immediate": ("RC_WRITE", "_WITH_IMMEDIATE"),
    "send": ("RC_SEND", ""),
}


def opcode(operation: str, index: int, packets: int) -> int:
    """Return the BTH opcode of packet ``index`` of a message in ``packets`` packets.

    >>> [OPCODES[opcode("write", i, 3)] for i in range(3)], OPCODES[opcode("send", 0, 1)]
    (['RC_WRITE_FIRST', 'RC_WRITE_MIDDLE', 'RC_WRITE_LAST'], 'RC_SEND_ONLY')
    """
    stem, ending = _STEMS[operation]
    if packets == 1:
        return NUMBERS[f"{stem}_ONLY{ending}"]
    if index == packets - 1:
        return NUMBERS[f"{stem}_LAST{ending}"]
    return NUMBERS[f"{stem}_FIRST" if index == 0 else f"{stem}_MIDDLE"]


def extended(config: WireConfig) -> tuple[Layer, ...]:
    """Return the headers after the BTH: the RETH on the first packet of a WRITE, immediate data on the last one."""
    write = (Layer(headers.RETH, on="first"),) if config.operation != "send" else ()
    immediate = (Layer(headers.IMMEDIATE, on="last"),) if config.operation == "write_with_immediate" else ()
    return write + immediate
