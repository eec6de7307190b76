"""The section ``[wire]``: by which transport messages travel, and in packets of what size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tokenwire.config import Section, read_section
from tokenwire.errors import unknown


class WireConfig(Section):
    """How messages become packets.

    ``mtu`` is in bytes: of the payload for RoCEv2, InfiniBand (the path MTU) and Ultra Ethernet, of the IP packet for
    TCP; where it is not given, the transport's default. ``traffic_class`` is the byte of DSCP (6 bits) and ECN (2 bits), for
    RoCEv2 DSCP 26 with ECN 10 (capable) where it is not given. ``operation`` is the RDMA operation that carries a message.

    >>> WireConfig().mtu, WireConfig(transport="tcp").mtu, WireConfig(mtu=1024).mtu
    (4096, 1500, 1024)
    """

    transport: str = "rocev2"
    mtu: Annotated[int, Field(ge=1, le=2**16)] = 4096
    ip_version: Literal[4, 6] = 4
    vlan: Annotated[int, Field(ge=0, le=4094)] | None = None
    operation: Literal["write", "write_with_immediate", "send"] = "write"
    grh: bool = False
    timestamps: bool = True
    traffic_class: Annotated[int, Field(ge=0, le=255)] = 0

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Any) -> Any:
        from tokenwire.wire.transports import TRANSPORTS

        found = TRANSPORTS.get(str(values.get("transport", "rocev2"))) if isinstance(values, dict) else None
        if found is None:
            return values
        defaults = {"mtu": found.usual_mtu, "traffic_class": found.usual_traffic_class}
        return {**values, **{key: value for key, value in defaults.items() if values.get(key) is None}}

    @field_validator("transport")
    @classmethod
    def _known(cls, value: str) -> str:
        from tokenwire.wire.transports import TRANSPORTS

        if value not in TRANSPORTS:
            raise unknown("transport", value, TRANSPORTS)
        return value

    @field_validator("mtu")
    @classmethod
    def _possible(cls, value: int, info: ValidationInfo) -> int:
        from tokenwire.wire.transports import TRANSPORTS

        if "transport" in info.data:
            TRANSPORTS[info.data["transport"]].check_mtu(value)
        return value


def changed(config: WireConfig, given: Mapping[str, Any]) -> WireConfig:
    """Return ``config`` with what is given (None: as it was); another transport comes with its own default MTU and traffic class.

    Raises ``InputError`` that names the key, the rule and the nearest value that works.

    >>> changed(WireConfig(mtu=1024), {"transport": "tcp", "mtu": None}).mtu
    1500
    """
    asked = {key: value for key, value in given.items() if value is not None}
    before = config.model_dump()
    if asked.get("transport", config.transport) != config.transport:
        del before["mtu"], before["traffic_class"]
    return read_section(WireConfig, {**before, **asked}, where="[wire]")
