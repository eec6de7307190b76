"""How much of the wire is payload, as a picture: by size of the message, a line for each transport and MTU."""

from __future__ import annotations

from collections.abc import Sequence

from tokenwire.errors import InputError
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.units import format_bytes
from tokenwire.wire.config import WireConfig
from tokenwire.wire.efficiency import efficiencies

SIZES = tuple(1 << power for power in range(6, 31))
"""Sizes of messages that are drawn, in bytes: 64 B to 1 GiB."""


MOST = 8
"""Lines that can be told apart; of more configurations the largest MTU of each transport is drawn."""


def check_whole(path: str, size: str | None) -> None:
    """Raise ``InputError`` where one size was given: the sizes are the axis."""
    if size is not None:
        raise InputError(f"--plot {path}"[:120], rule="draws all sizes", nearest="--plot without --bytes")


def efficiency(configs: Sequence[WireConfig]) -> Chart:
    """Return the efficiency of messages by size under each configuration.

    >>> efficiency([WireConfig()]).series[0].name
    'rocev2, MTU 4,096 B'
    """
    series = tuple(
        Series(_name(config), tuple(row.efficiency * 100 for row in efficiencies([config], SIZES))) for config in _few(configs)
    )
    return Chart("How much of the wire is payload", "lines", "size of the message", "payload, % of all bytes on the wire",
                 tuple(format_bytes(size, binary=True) for size in SIZES), series, tuple(map(float, SIZES)), log_y=False)  # fmt: skip


def _name(config: WireConfig) -> str:
    version = f" over IPv{config.ip_version}" if config.transport == "tcp" else ""
    return f"{config.transport}{version}, MTU {config.mtu:,} B"


def _few(configs: Sequence[WireConfig]) -> Sequence[WireConfig]:
    if len(configs) <= MOST:
        return configs
    return list({(one.transport, one.ip_version): one for one in sorted(configs, key=lambda one: one.mtu)}.values())
