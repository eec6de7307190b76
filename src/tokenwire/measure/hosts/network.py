"""The block in which a network of hosts stands, as namespaces or on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokenwire.errors import InputError
from tokenwire.measure.hosts import namespaces
from tokenwire.measure.hosts.config import Host, Network, NetworkConfig


@contextmanager
def network(config: NetworkConfig) -> Iterator[Network]:
    """Stand a network up inside the block.

    Raises ``InputError`` where namespaces are asked for and cannot be, or where loopback is asked for what it has not.
    """
    why = namespaces.unavailable() if config.kind != "loopback" else "loopback was asked for"
    if why and config.kind == "namespaces":
        raise InputError("network namespaces", rule=why, nearest="--network loopback")
    with _ending_in_order():
        if why:
            yield _loopback(config, why)
            return
        with namespaces.standing(config) as built:
            yield built


def _loopback(config: NetworkConfig, why: str) -> Network:
    shaped = [name for name in ("rate", "delay", "ranks_per_node", "routed") if getattr(config, name)]
    if shaped:
        raise InputError(", ".join(shaped), rule=f"cannot be set on loopback ({why})", nearest="leave it out")
    # An address a rank, 127.p.p.rank with the process in it: all of 127.0.0.0/8 is this machine's own.
    pid = os.getpid()
    prefix = f"127.{64 + (pid >> 8) % 128}.{pid % 256}"
    hosts = tuple(Host(rank, f"{prefix}.{rank + 1}", "lo") for rank in range(config.ranks))
    with socket.socket() as asked:
        asked.bind((hosts[0].address, 0))
        port = int(asked.getsockname()[1])
    tap: tuple[Any, ...] = (((), "lo", "inout"),) if _may_capture("lo") else ()
    return Network("loopback", f"loopback, an address a rank ({why})", hosts, port, taps=tap)


def _may_capture(interface: str) -> bool:
    # Who may is the kernel's to say, not the user's number: root in a container often may not, and others may be let.
    # Asked for the code of a filter alone, tcpdump opens the interface and ends.
    if not shutil.which("tcpdump"):
        return False
    return subprocess.run(["tcpdump", "-i", interface, "-d", "tcp"], capture_output=True).returncode == 0


@contextmanager
def _ending_in_order() -> Iterator[None]:
    # A request to end becomes an exception, so that blocks are left in order and everything is taken down.
    def end(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    kept = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        try:
            kept[number] = signal.signal(number, end)
        except ValueError:
            break  # not the main thread: whoever runs the thread ends it
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
