"""One optimizer step of DeepSpeed's own engine on a fake process group, in a process of its own.

DeepSpeed is installed apart (``pip install deepspeed`` beside the ``measure`` extra). Runs ZeRO stages 0 to 3, ZeRO++ with
stand-ins for its kernels, Ulysses, and the pipeline engine.
"""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tokenwire.errors import InputError, MissingExtra
from tokenwire.measure.dryrun.calls import Call
from tokenwire.measure.dryrun.record import require_torch, table
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.deepspeed import DeepspeedPlan

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import polars as pl

LARGEST = 400_000_000
"""Parameters of the largest model that is run: it is held whole."""
SECONDS = 600


def record(arch: Architecture, plan: Plan, rank: int) -> pl.DataFrame:
    """Return the calls of construction and of one step by ``rank`` (``record.COLUMNS``).

    Raises ``InputError`` for what cannot be run, ``MissingExtra`` without torch or DeepSpeed.
    """
    return table(calls(arch, plan, rank), plan, rank)


def calls(arch: Architecture, plan: Plan, rank: int) -> list[Call]:
    """Return every call in order."""
    require_torch("a dry run of DeepSpeed")
    config = plan.config
    if not isinstance(config, DeepspeedPlan):
        raise InputError(f"dialect = {config.dialect}", where="[plan]", rule="this dry run is of deepspeed")
    if find_spec("deepspeed") is None:
        raise MissingExtra("a dry run of DeepSpeed (pip install deepspeed)", "measure")
    _possible(arch, config)
    # Importing torch and DeepSpeed takes seconds: a process that has them is forked.
    seen = _forked(arch, plan, rank) if "deepspeed" in sys.modules else _fresh(arch, plan, rank)
    # The pipeline sends on the group of all ranks, to ranks of its own pipe.
    pipe = tuple(int(member) for member in plan.members("pp", rank))
    return [replace(call, members=pipe) if call.peer in pipe else call for call in seen]


def _fresh(arch: Architecture, plan: Plan, rank: int) -> list[Call]:
    with tempfile.TemporaryDirectory(prefix="tokenwire-deepspeed-") as folder:
        (Path(folder) / "plan.pickle").write_bytes(pickle.dumps((arch, plan, rank)))
        try:
            done = subprocess.run([sys.executable, "-m", "tokenwire.measure.dryrun.deepspeed_process", folder],
                                  capture_output=True, text=True, timeout=SECONDS, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InputError("a dry run of DeepSpeed", rule=f"did not finish in {SECONDS} s") from None
        if done.returncode:
            last = next((line for line in reversed(done.stderr.strip().splitlines()) if line), "no message")
            raise InputError("a dry run of DeepSpeed", rule=f"did not finish ({last[:200]})")
        return [Call(**fields) for fields in pickle.loads((Path(folder) / "calls.pickle").read_bytes())]


def _forked(arch: Architecture, plan: Plan, rank: int) -> list[Call]:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(there, arch, plan, rank))
    child.start()
    there.close()
    try:
        answer: list[Call] | str = here.recv() if here.poll(SECONDS) else f"more than {SECONDS} s"
    except EOFError:
        answer = "the process ended without an answer"
    finally:
        child.kill()
        child.join()
        here.close()
    if isinstance(answer, str):
        raise InputError("a dry run of DeepSpeed", rule=f"did not finish ({answer[:200]})")
    return answer


def _answer(pipe: Connection, arch: Architecture, plan: Plan, rank: int) -> None:
    import torch

    from tokenwire.measure.dryrun.deepspeed_process import run

    torch.set_num_threads(1)  # threads of the parent are not in a fork
    try:
        pipe.send(run(arch, plan, rank))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def _possible(arch: Architecture, config: DeepspeedPlan) -> None:
    from tokenwire.measure.dryrun.torch_model import require_plain
    from tokenwire.model.parameters import parameters

    require_plain(arch)
    if config.offload().weights_on_nvme or config.offload().optimizer_on_nvme:
        raise InputError("offload to nvme", where="[plan]", rule="is not dry-run, for want of a drive", nearest="cpu, which sends the same")
    total = parameters(arch).total
    if total > LARGEST:
        raise InputError(f"model {arch.name} of {total:,} parameters", rule=f"a dry run of DeepSpeed holds it whole, at most {LARGEST:,}")
