"""What ranks do together, and how they find each other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from tokenwire.measure.hosts import Network


@dataclass(frozen=True, kw_only=True)
class Task:
    """``module`` has ``run(folder, rank, task)``, which writes ``rank<RANK>.json``. ``addresses`` by rank; ``namespaces`` by rank are the
    files that stand for them, none on loopback; ``delay`` in s is that of the network.
    """

    module: ClassVar[str]
    addresses: tuple[str, ...]
    interface: str
    store_port: int
    namespaces: tuple[str, ...]
    timeout: float = 120.0
    delay: float = 0.0

    @property
    def world(self) -> int:
        """Return how many ranks there are."""
        return len(self.addresses)


def meeting(net: Network) -> dict[str, Any]:
    """Return what a ``Task`` says of a network."""
    return {"addresses": tuple(host.address for host in net.hosts), "interface": net.hosts[0].interface,
            "store_port": net.store_port, "namespaces": net.namespaces}  # fmt: skip


def join(task: Task, rank: int) -> Any:
    """Join the others as ``rank`` over gloo and return the store."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = task.interface
    if not task.namespaces:
        _speak_from(task.addresses[rank])
    wait = timedelta(seconds=task.timeout)
    store = dist.TCPStore(task.addresses[0], task.store_port, task.world, rank == 0, timeout=wait)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=task.world, timeout=wait)
    return store


def _speak_from(address: str) -> None:
    # On loopback an interface does not tell ranks apart: gloo is given the address of this rank.
    from torch.distributed import distributed_c10d as c10d

    kind: Any = c10d.ProcessGroupGloo

    class AtAddress(type):
        def __call__(cls, store: Any, rank: int, size: int, timeout: Any) -> Any:
            options = kind._Options()
            options._devices = [kind.create_device(hostname=address)]
            options._timeout = timeout
            options._threads = 2
            return kind(store, rank, size, options)

        def __instancecheck__(cls, other: object) -> bool:
            return isinstance(other, kind)

        def __getattr__(cls, name: str) -> Any:
            return getattr(kind, name)

    c10d.ProcessGroupGloo = AtAddress("ProcessGroupGloo", (), {})
