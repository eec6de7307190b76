"""What recipes of Megatron-Bridge for models with experts say that its tables of runs do not: dispatcher, overlap, recomputed modules, graphs.

In data/megatron_bridge_recipes.csv, read in the recipes of each release (NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs/*/*workload_base_configs.py at the tags
v0.2.0 for 25.11, v0.3.0 and v0.3.1 for 26.02 and its patch, v0.4.0 and v0.4.2 for 26.04, v0.5.0 and v0.5.1 for 26.06;
src/megatron/bridge/perf_recipes at v0.6.0 for 26.08). A row of a patch release that ran with the plan of the release before it has
that release's recipe. What 25.09 ran is in none of them; it is taken as 25.11.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from validation.run import DATA
from validation.tables.table import rows_of

COLUMNS = ("model", "gpu", "bits", "since", "dispatcher", "overlap", "recompute", "graph", "attention_8bit", "output_8bit")

FILE = "megatron_bridge_recipes.csv"


class Recipe(NamedTuple):
    """Dispatcher (alltoall, deepep, hybridep), whether expert exchanges overlap with another micro-batch, modules recomputed, CUDA graphs.

    ``graph``: none, of "parts" of layers, or of the whole "step", with experts' products and activation in one kernel; ``eight`` and
    ``head`` say whether attention and the output layer are in 8 bits.
    """

    dispatcher: str = "hybridep"
    overlap: bool = False
    recompute: tuple[str, ...] = ()
    graph: str = ""
    eight: bool = False
    head: bool = False


PARTS = Recipe(graph="parts")
PLAIN = Recipe()
Key = tuple[str, str, str]


@cache
def recipes() -> dict[Key, tuple[tuple[str, Recipe], ...]]:
    """Return by model, GPU and bits of the products the recipes, each with the release from which on it holds. In 4 bits as in 8."""
    out: dict[Key, tuple[tuple[str, Recipe], ...]] = {}
    for row in rows_of(DATA / FILE, COLUMNS):
        key = (row["model"], row["gpu"], row["bits"])
        found = Recipe(row["dispatcher"], row["overlap"] == "1", tuple(row["recompute"].split()), row["graph"],
                       row["attention_8bit"] == "1", row["output_8bit"] == "1")
        out[key] = (*out.get(key, ()), (row["since"], found))
    return out


def recipe(model: str, system: str, precision: str, release: str) -> Recipe:
    """Return the recipe of a run of a model with experts: the latest that is not later than its release.

    >>> recipe("Qwen3_235B_a22B", "DGX-B300", "mxfp8", "26.04").dispatcher
    'alltoall'
    """
    gpu, bits = system.removeprefix("DGX-"), "16" if precision == "bf16" else "8"
    usual = PARTS if "GB" in gpu else PLAIN
    lines = recipes().get((model, gpu, bits)) or recipes().get((model, gpu, "8")) or (("", usual),)
    found = [one for since, one in lines if since <= release][-1:] or [lines[0][1]]
    # A whole step is a graph in MXFP8 alone.
    return usual if found[0].graph == "step" and precision != "mxfp8" else found[0]


def options(found: Recipe, dropped: bool, ep: int, interleaved: bool) -> dict[str, Any]:
    """Return a recipe as Megatron's options; tokens that are dropped go by Megatron's own exchange."""
    out: dict[str, Any] = {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True}
    if ep > 1 and found.dispatcher != "alltoall" and not dropped:
        out |= {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": found.dispatcher}
    if found.overlap and interleaved:
        out["overlap_moe_expert_parallel_comm"] = True
    if found.recompute:
        out |= {"recompute_granularity": "selective", "recompute_modules": found.recompute}
    if found.graph == "step":
        out |= {"use_transformer_engine_op_fuser": True, "moe_paged_stash": True}
        out |= {"fp8_dot_product_attention": found.eight, "fp8_output_proj": found.head}
    if dropped:
        out |= {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}
    return out
