"""Network namespaces: one a rank and one for the switch, all under a name that says which process made them.

Nothing is added to the machine's own namespace: bridge and veth ends live in the switch's, so neither names nor
addresses can meet those of the machine. The names carry the process's number and the time it started, so that the next
run knows what was left behind by one that was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenwire.errors import InputError
from tokenwire.measure.hosts.config import Host, Network, NetworkConfig
from tokenwire.measure.hosts.processes import started

FOLDER = Path("/run/netns")
PREFIX = "tokenwire"
INTERFACE = "eth0"
_ROUTER = "02:00:00:00:01:00"
"""The router's hardware address, the same on each of its links."""
_QUEUE = 1 << 28
"""Bytes that may wait for a link of limited rate."""


def unavailable() -> str:
    """Return why namespaces cannot be made here; empty where they can."""
    if not hasattr(os, "geteuid") or not Path("/proc/self/ns/net").exists():
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "network namespaces need the command ip (Debian: iproute2)"
    name = f"{_stem()}.try"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if done.returncode:
        return f"network namespaces cannot be made here ({_line(done.stderr)})"
    _remove(name)
    return ""


@contextmanager
def standing(config: NetworkConfig) -> Iterator[Network]:
    """Build switch and hosts, and take them down when the block ends."""
    take_down_stale()
    stem = _stem()
    try:
        yield _built(config, stem)
    finally:
        for name in _names(stem):
            _remove(name)


def take_down_stale() -> list[str]:
    """Remove namespaces of processes that are gone, with what still runs in them; return their names."""
    stale = []
    for name in _names(PREFIX):
        parts = name.split(".")
        if len(parts) == 4 and parts[1].isdigit() and started(int(parts[1])) != parts[2]:
            _remove(name)
            stale.append(name)
    return stale


def _built(config: NetworkConfig, stem: str) -> Network:
    switch, k = f"{stem}.switch", config.per_node
    nodes = config.ranks // k
    hosts = tuple(Host(rank, _address(config, rank), INTERFACE) for rank in range(config.ranks))
    names = [f"{stem}.rank{rank}" for rank in range(config.ranks)]
    for name in (switch, *names):
        _namespace(name)
    lines = [f"link add leaf{node} type bridge stp_state 0 mcast_snooping 0" for node in range(nodes)]
    lines += [f"link set leaf{node} mtu {config.mtu} up" for node in range(nodes)]
    for rank, name in enumerate(names):
        lines += [f"link add port{rank} mtu {config.mtu} type veth peer name {INTERFACE} mtu {config.mtu} netns {name}",
                  f"link set port{rank} master leaf{rank // k} up"]  # fmt: skip
    _ip(switch, lines)
    if nodes > 1:
        (_joined_by_a_router if config.routed else _joined_by_a_bridge)(config, stem, hosts)
    for host, name in zip(hosts, names, strict=True):
        whole = [] if config.offloads else [f"link set {INTERFACE} gso_max_segs 1"]
        _ip(name, [f"link set {INTERFACE} address {_hardware(host.rank)}", *whole, "link set lo up",
                   f"address add {host.address}/24 dev {INTERFACE}", f"link set {INTERFACE} up",
                   *_neighbours(hosts, host, INTERFACE), *_default(config, host.rank)])  # fmt: skip
        _shape(config, name)
    inside = ("ip", "netns", "exec", switch)
    # A frame crosses the bridge of its sender once; between nodes it would be seen on each leaf: there the ports tell.
    ports = tuple((inside, f"port{rank}", "in") for rank in range(config.ranks))
    between = "a router" if config.routed else "one"
    words = f"{config.ranks} network namespaces joined by a bridge" if nodes == 1 else (
        f"{config.ranks} network namespaces, {k} a node, a bridge a node and {between} between the {nodes} nodes")  # fmt: skip
    return Network("namespaces", f"{words}, MTU {config.mtu:,} B", hosts, namespaces=tuple(str(FOLDER / name) for name in names),
                   taps=((inside, "leaf0", "inout"),) if nodes == 1 else ports)  # fmt: skip


def _joined_by_a_bridge(config: NetworkConfig, stem: str, hosts: tuple[Host, ...]) -> None:
    # One subnet: the spine is a bridge of bridges.
    lines = ["link add spine type bridge stp_state 0 mcast_snooping 0", f"link set spine mtu {config.mtu} up"]
    for node in range(len(hosts) // config.per_node):
        lines += [f"link add up{node} mtu {config.mtu} type veth peer name down{node} mtu {config.mtu}",
                  f"link set up{node} master leaf{node} up", f"link set down{node} master spine up"]  # fmt: skip
    _ip(f"{stem}.switch", lines)


def _joined_by_a_router(config: NetworkConfig, stem: str, hosts: tuple[Host, ...]) -> None:
    # A subnet a node: a host of its own in their middle forwards, as leaves and spines that route do.
    router, k = f"{stem}.router", config.per_node
    _namespace(router)
    _run(["ip", "netns", "exec", router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
    for node in range(len(hosts) // k):
        down, mine = f"down{node}", hosts[node * k : (node + 1) * k]
        _ip(f"{stem}.switch", [f"link add up{node} mtu {config.mtu} type veth peer name {down} mtu {config.mtu} netns {router}",
                               f"link set up{node} master leaf{node} up"])  # fmt: skip
        told = [f"neighbour add {host.address} lladdr {_hardware(host.rank)} nud permanent dev {down}" for host in mine]
        _ip(router, [f"link set {down} address {_ROUTER}", f"address add {_gateway(node)}/24 dev {down}", f"link set {down} up", *told])


def _neighbours(hosts: tuple[Host, ...], of: Host, interface: str) -> list[str]:
    # Neighbours are told, so that no question about addresses is among what is counted.
    subnet = of.address.rpartition(".")[0]
    return [f"neighbour add {host.address} lladdr {_hardware(host.rank)} nud permanent dev {interface}"
            for host in hosts if host.rank != of.rank and host.address.rpartition(".")[0] == subnet]  # fmt: skip


def _default(config: NetworkConfig, rank: int) -> list[str]:
    if not config.routed:
        return []
    gateway = _gateway(rank // config.per_node)
    return [f"neighbour add {gateway} lladdr {_ROUTER} nud permanent dev {INTERFACE}", f"route add default via {gateway}"]


def _namespace(name: str) -> None:
    _run(["ip", "netns", "add", name])
    # Only IPv4 is spoken, so that no router is looked for.
    for where in ("all", "default"):
        with suppress(InputError):
            _run(["ip", "netns", "exec", name, "sh", "-c", f"echo 1 > /proc/sys/net/ipv6/conf/{where}/disable_ipv6"])


def _shape(config: NetworkConfig, name: str) -> None:
    if config.rate is None and not config.delay:
        return
    add = ["tc", "-n", name, "qdisc", "add", "dev", INTERFACE, "root"]
    if not config.delay:
        assert config.rate is not None
        # What may leave at once after a rest is a quarter millisecond's worth, and never less than a packet; nothing is dropped.
        burst = max(int(config.rate * 2.5e-4), config.mtu + 14)
        _run([*add, "tbf", "rate", f"{config.rate * 8:.0f}bit", "burst", f"{burst}", "limit", f"{_QUEUE}"])
        return
    rate = ["rate", f"{config.rate * 8:.0f}bit"] if config.rate is not None else []
    done = subprocess.run([*add, "netem", "limit", "100000", "delay", f"{config.delay * 1e6:.0f}us", *rate], capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"delay = {config.delay:g} s", rule=f"needs netem in the kernel, with tc ({_line(done.stderr)})",
                         nearest="leave it out")  # fmt: skip


def _ip(namespace: str, lines: list[str]) -> None:
    done = subprocess.run(["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True)
    if done.returncode:
        raise InputError("the network of namespaces", rule=f"could not be made ({_line(done.stderr)})")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise InputError(f"the command {command[0]}", rule="is not installed (Debian: iproute2)") from None
    if done.returncode:
        raise InputError(" ".join(command[:4]), rule=f"failed ({_line(done.stderr)})")


def _remove(name: str) -> None:
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
    for pid in listed:
        if pid.isdigit() and int(pid) != os.getpid():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)
    for _ in range(100):
        if not subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
            break
        time.sleep(0.02)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _names(stem: str) -> list[str]:
    return sorted(path.name for path in FOLDER.glob(f"{stem}.*")) if FOLDER.is_dir() else []


def _stem() -> str:
    return f"{PREFIX}.{os.getpid()}.{started(os.getpid())}"


def _address(config: NetworkConfig, rank: int) -> str:
    node, place = divmod(rank, config.per_node) if config.routed else (0, rank)
    return f"10.0.{node}.{place + 1}"


def _gateway(node: int) -> str:
    return f"10.0.{node}.254"


def _hardware(rank: int) -> str:
    return f"02:00:00:00:00:{rank + 1:02x}"


def _line(text: str) -> str:
    return next((line for line in text.strip().splitlines() if line), "no message")[:200]
