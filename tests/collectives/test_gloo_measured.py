"""Gloo's models against gloo: every call on loopback, the bytes of each connection as the kernel counts them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tokenwire.collectives.gloo import messages, on_connections

CALLS = [
    ("all_reduce", 4), ("all_reduce", 4 * 1001), ("all_reduce", 4 * 2_500_003), ("reduce", 12), ("reduce", 4 * 1001),
    ("reduce", 4 * 2_500_003), ("broadcast", 4 * 777), ("all_gather", 4 * 24 * 11), ("all_gather", 4 * 24),
    ("reduce_scatter", 4 * 24 * 1000), ("all_to_all", 4 * 24 * 100), ("gather", 4 * 24), ("scatter", 4 * 24), ("barrier", 0),
    ("send", 4 * 1001),
]  # fmt: skip
PROCESS = '''
import json, sys, time, torch, torch.distributed as dist
from tokenwire.measure.counting.sockets import connections
rank, n, port, calls = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
torch.set_num_threads(1)
store = dist.TCPStore("127.0.0.1", port, n, rank == 0)
dist.init_process_group("gloo", store=store, rank=rank, world_size=n)
def wait(key):
    store.add(key, 1)
    while int(store.add(key, 0)) < n: time.sleep(0.005)
def run(op, e):
    ones, part = torch.ones(e), torch.ones(max(e // n, 1))
    if op == "all_reduce": dist.all_reduce(ones)
    elif op == "reduce": dist.reduce(ones, 0)
    elif op == "broadcast": dist.broadcast(ones, 0)
    elif op == "all_gather": dist.all_gather_into_tensor(ones, part)
    elif op == "reduce_scatter": dist.reduce_scatter_tensor(part, ones)
    elif op == "all_to_all": dist.all_to_all_single(torch.empty(e), ones)
    elif op == "gather": dist.gather(part, [torch.empty(e // n) for _ in range(n)] if rank == 0 else None, 0)
    elif op == "scatter": dist.scatter(part, [torch.ones(e // n) for _ in range(n)] if rank == 0 else None, 0)
    elif op == "barrier": dist.barrier()
    elif rank == 0: dist.send(ones, 1)
    elif rank == 1: dist.recv(ones, 0)
seen = []
for index in range(len(calls) + 1):
    if index: run(calls[index - 1][0], calls[index - 1][1] // 4)
    wait(f"there{index}")
    time.sleep(0.05)
    seen.append([c for c in connections() if port not in (c["local"][1], c["remote"][1])])
    wait(f"read{index}")
print(json.dumps(seen))
wait("end")
'''


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_every_call_to_the_byte(n: int, tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(PROCESS)
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port = asked.getsockname()[1]
    environment = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    running = [subprocess.Popen([sys.executable, "-W", "ignore", str(script), str(rank), str(n), str(port), json.dumps(CALLS)],
                                stdout=subprocess.PIPE, text=True, env=environment) for rank in range(n)]  # fmt: skip
    try:
        seen = [json.loads(process.communicate(timeout=200)[0]) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    for index, (op, size) in enumerate(CALLS, start=1):
        owner = {_ends(c): rank for rank in range(n) for c in seen[rank][index]}
        counted: dict[tuple[int, int], int] = {}
        for rank in range(n):
            before = {_ends(c): c["sent"] for c in seen[rank][index - 1]}
            for c in seen[rank][index]:
                grown = c["sent"] - before.get(_ends(c), 0)
                if grown:
                    pair = rank, owner[_ends(c)[::-1]]
                    counted[pair] = counted.get(pair, 0) + grown
        assert counted == on_connections(messages(op, n, size)), (op, size)


def _ends(connection: dict[str, list[object]]) -> tuple[tuple[object, ...], tuple[object, ...]]:
    return tuple(connection["local"]), tuple(connection["remote"])
