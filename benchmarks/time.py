# ruff: noqa: A005 - named as its verb
"""Plans a second: how many plans of GPT-3 175B on 64 A100 are timed, from options to seconds of a step, on one core; beside calculon.

    python benchmarks/time.py [checkout of github.com/calculon-ai/calculon]

Both run in one process each, over the same plans (tensor and pipeline parallelism, micro-batch, interleaving, recomputation), in CPU
time. The step itself is what is timed; the model and the cluster are read once. Llama 3.1 405B follows, one plan at a time.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

GPUS, BATCH = 64, 64
LIMIT = 0.1
"""Seconds that a plan of 405B may take (issue: under 0.1 s)."""


def plans() -> list[dict[str, int | str]]:
    """Return the plans that both run."""
    out: list[dict[str, int | str]] = []
    for t, p, b, v, recompute in itertools.product((1, 2, 4, 8), (2, 4, 8, 16), (1, 2, 4), (1, 2, 3), ("none", "full")):
        d = GPUS // (t * p)
        if not d or BATCH % (b * d) or (v > 1 and (p == 1 or 96 % (p * v))) or (v > 1 and BATCH // (b * d) % p):
            continue
        out.append({"tp": t, "pp": p, "dp": d, "b": b, "v": v, "recompute": recompute})
    return out


def own() -> tuple[int, float, float]:
    """Return how many plans were timed, the CPU seconds that it took, and those of them after the table of the step was there."""
    from tokenwire.fabric import ClusterConfig
    from tokenwire.model import preset
    from tokenwire.plan import TrainingConfig, read_plan, resolve
    from tokenwire.step import calls_of
    from tokenwire.timeline import step_time

    arch, facts = preset("gpt3-175b"), ClusterConfig(preset="dgx-a100-superpod", gpus=GPUS).facts
    found, begin, alone = 0, 0.0, 0.0
    for number, one in enumerate([*plans()[:1], *plans()]):
        if number == 1:  # what the first plan reads and imports is not of the others
            begin = time.process_time()
        again = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        config = read_plan({"tp": one["tp"], "pp": one["pp"], "vpp": one["v"], "sequence_parallel": one["tp"] != 1,
                            "use_distributed_optimizer": True, **(again if one["recompute"] == "full" else {})})  # fmt: skip
        plan = resolve(config, TrainingConfig(sequence_length=2048, global_batch=BATCH, micro_batch=int(one["b"])), arch, GPUS)
        rows = calls_of(arch, plan)
        ready = time.process_time()
        step_time(arch, plan, rows, facts)
        alone += (time.process_time() - ready) * (number > 0)
        found += number > 0
    return found, time.process_time() - begin, alone


def large() -> float:
    """Return the CPU seconds of one plan of Llama 3.1 405B (1,024 GPUs, interleaved, 96 micro-batches), nothing kept from another."""
    from tokenwire.fabric import ClusterConfig
    from tokenwire.model import preset
    from tokenwire.plan import TrainingConfig, read_plan, resolve
    from tokenwire.step import calls_of
    from tokenwire.timeline import step_time

    arch, facts = preset("llama-3.1-405b"), ClusterConfig(preset="dgx-h100-superpod", gpus=1024).facts
    config = read_plan({"tp": 8, "pp": 8, "vpp": 8, "sequence_parallel": True, "account_for_embedding_in_pipeline_split": True,
                        "account_for_loss_in_pipeline_split": True})  # fmt: skip
    plan = resolve(config, TrainingConfig(sequence_length=8192, global_batch=1536, micro_batch=1), arch, 1024)
    rows = calls_of(arch, plan)
    begin = time.process_time()
    step_time(arch, plan, rows, facts)
    return time.process_time() - begin


PEER = """
import json, logging, sys, time, types
sys.modules |= {name: types.ModuleType(name) for name in ("pandas", "psutil")}  # only its sweeps use them
sys.path.insert(0, sys.argv[1])
from calculon.llm.llm import Llm
from calculon.system import System
app = json.load(open(sys.argv[1] + "/models/gpt3-175B.json"))
system = json.load(open(sys.argv[1] + "/systems/a100_80g.json"))
system["mem1"]["GiB"] = 100000
logger = logging.getLogger("quiet"); logger.setLevel(logging.ERROR)
done = 0
begin = time.process_time()
for one in json.load(sys.stdin):
    exe = {"num_procs": 64, "tensor_par": one["tp"], "pipeline_par": one["pp"], "data_par": one["dp"], "tensor_par_net": 0,
           "pipeline_par_net": 1, "data_par_net": 1, "batch_size": 64, "microbatch_size": one["b"], "datatype": "float16",
           "fused_activation": True, "attention_type": "multihead", "activation_recompute": one["recompute"],
           "pipeline_interleaving": one["v"], "optimizer_sharding": one["dp"] > 1, "tensor_par_comm_type": "rs_ag" if one["tp"] > 1 else "ar", "tensor_par_overlap": "none",
           "seq_par_ag_redo": False, "data_par_overlap": False, "weight_offload": False, "activations_offload": False,
           "optimizer_offload": False, "training": True}
    model = Llm(Llm.Application(app), logger)
    try:
        model.compile(System(system), Llm.Execution.from_json(exe))
        model.run(System(system))
        done += 1
    except (Llm.Error, AssertionError):
        pass
print(json.dumps([done, time.process_time() - begin]))
"""


def peer(checkout: Path) -> tuple[int, float]:
    """Return how many plans calculon timed and the CPU seconds that it took."""
    run = subprocess.run([sys.executable, "-c", PEER, str(checkout)], input=json.dumps(plans()), capture_output=True, text=True, check=True)
    done, seconds = json.loads(run.stdout.strip().splitlines()[-1])
    return int(done), float(seconds)


def main() -> None:
    """Print plans a second, and the ratio to the peer where its checkout is given."""
    one = large()
    print(f"Llama 3.1 405B, 1,024 GPUs, 8 stages of 8 virtual ones, 96 micro-batches: {one * 1e3:.0f} ms of {LIMIT * 1e3:.0f} ms"
          f" ({'within' if one <= LIMIT else 'over'} the limit)")  # fmt: skip
    count, seconds, alone = own()
    print(f"tokenwire: {count:,} plans of GPT-3 175B on {GPUS} GPUs in {seconds:.2f} s of CPU: {count / seconds:.0f} plans/s; "
          f"every call of the step in its table took {seconds - alone:.2f} s of that, without it {count / alone:.0f} plans/s")  # fmt: skip
    if len(sys.argv) > 1:
        done, spent = peer(Path(sys.argv[1]))
        print(f"calculon: {done:,} plans in {spent:.2f} s of CPU: {done / spent:.0f} plans/s; ratio {count / seconds * spent / done:.1f}")


if __name__ == "__main__":
    main()
