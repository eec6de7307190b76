"""One of the processes of ``ddp``: builds the model, runs a few steps, rank 0 writes what it called for."""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

_GLOO = {"gloo:all_reduce": "allreduce_", "gloo:broadcast": "broadcast_", "gloo:all_gather": "allgather_"}


def run(folder: Path, rank: int, processes: int) -> None:
    """Run rank ``rank``; ``folder`` holds the plan and takes the calls."""
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    from tokenwire.measure.dryrun.torch_model import Decoder

    arch, config, micro_batches, length = pickle.loads((folder / "plan.pickle").read_bytes())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=processes)
    model = Decoder(arch).to(getattr(torch, config.parameter_dtype))
    if config.buffers:
        model.register_buffer("buffers_", torch.zeros(config.buffers))
    seen: list[dict[str, Any]] = []
    with _Profiled(seen, "setup"):
        parallel = torch.nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=config.bucket_cap_mb, broadcast_buffers=config.broadcast_buffers,
            find_unused_parameters=config.find_unused_parameters, static_graph=config.static_graph,
            gradient_as_bucket_view=config.gradient_as_bucket_view,
        )  # fmt: skip
    if config.comm_hook != "none":
        parallel.register_comm_hook(None, getattr(default_hooks, config.comm_hook))
    rebuilt: list[dict[str, Any]] = []
    # Buckets are made anew after the first backward, with a static graph one later.
    with _Profiled(rebuilt, "setup"):
        for _ in range(3):
            _step(parallel, config, micro_batches, length)
    seen += [event for event in rebuilt if event["name"].endswith("broadcast_") and event["type"] == "int"]
    with _Profiled(seen, "gradients"):
        _step(parallel, config, micro_batches, length)
    for event in seen:
        if event["phase"] == "gradients" and event["name"].endswith("broadcast_"):
            event["phase"] = "forward"
    if rank == 0:
        (folder / "calls.json").write_text(json.dumps(seen))
    dist.barrier()
    dist.destroy_process_group()


def _step(parallel: Any, config: Any, micro_batches: int, length: int) -> None:
    import torch

    for index in range(micro_batches):
        waits = config.no_sync and index < micro_batches - 1
        with parallel.no_sync() if waits else nullcontext():
            ids = torch.zeros(1, min(length, 8), dtype=torch.int64)
            parallel(ids).float().sum().backward()
    parallel.zero_grad()


class _Profiled:
    def __init__(self, seen: list[dict[str, Any]], phase: str) -> None:
        from torch.profiler import ProfilerActivity, profile

        self.seen, self.phase = seen, phase
        self.profile = profile(activities=[ProfilerActivity.CPU], record_shapes=True)

    def __enter__(self) -> None:
        self.profile.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.profile.__exit__(*error)
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            self.profile.export_chrome_trace(str(trace))
            events = json.loads(trace.read_text())["traceEvents"]
        for event in sorted((e for e in events if _is_call(e)), key=lambda e: e["ts"]):
            args = event["args"]
            name = event["name"]
            # gloo's own note of the call: it has the dtype, which a list of tensors hides.
            self.seen.append({"name": f"c10d::{_GLOO.get(name, name)}", "dims": [args["Input Dims"][0]] * 2,
                              "type": args["Input type"][0], "phase": self.phase})  # fmt: skip


def _is_call(event: dict[str, Any]) -> bool:
    return str(event.get("name", "")).startswith("gloo:") and bool(event.get("args", {}).get("Input Dims"))


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), 2)
