"""What recipes of Megatron-Bridge for models with experts say that its tables of runs do not: dispatcher, overlap, what runs again, graphs.

Read in the recipes of each release (NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs/*/*workload_base_configs.py at the tags
v0.2.0 for 25.11, v0.3.0 and v0.3.1 for 26.02 and its patch, v0.4.0 and v0.4.2 for 26.04, v0.5.0 and v0.5.1 for 26.06;
src/megatron/bridge/perf_recipes at v0.6.0 for 26.08). A row of a patch release that ran with the plan of the release before it has
that release's recipe. What 25.09 ran is in none of them; it is taken as 25.11.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Recipe(NamedTuple):
    """Dispatcher (alltoall, deepep, hybridep), whether exchanges run beside another micro-batch, modules that run again, and CUDA graphs.

    ``graph``: none, of "parts" of layers, or of the whole "step", with experts' products and activation in one kernel; ``eight`` and
    ``head`` say whether attention and the output layer are in 8 bits.
    """

    dispatcher: str = "hybridep"
    beside: bool = False
    again: tuple[str, ...] = ()
    graph: str = ""
    eight: bool = False
    head: bool = False


UP = ("mla_up_proj",)
CUT = ("layernorm", "moe_act")
STEP = Recipe("hybridep", True, (), "step", True)
WITH_HEAD = STEP._replace(head=True)
PARTS = Recipe(graph="parts")
PLAIN = Recipe()
ALL_TO_ALL = Recipe("alltoall")
RECIPES: dict[tuple[str, str, str], tuple[tuple[str, Recipe], ...]] = {
    ("DeepSeekV3", "GB300", "8"): (("25.09", Recipe("hybridep", False, ("moe_act",), "parts")), ("26.02", Recipe("hybridep", False, UP)), ("26.06", WITH_HEAD)),
    ("DeepSeekV3", "GB300", "16"): (("25.09", Recipe("hybridep", False, ("moe_act",), "parts")),),
    ("DeepSeekV3", "GB200", "8"): (
        ("25.09", Recipe("hybridep", False, UP, "parts")), ("26.04", Recipe("hybridep", False, ("mlp",), "parts")),
        ("26.06", Recipe("hybridep", True, UP, "step", head=True)),
    ),
    ("DeepSeekV3", "GB200", "16"): (("25.09", Recipe("hybridep", False, UP, "parts")),),
    ("DeepSeekV3", "B300", "8"): (("25.09", Recipe("hybridep", False, UP)), ("26.04.01", Recipe("hybridep", False, UP, "parts")), ("26.08", WITH_HEAD._replace(again=UP))),
    ("DeepSeekV3", "B200", "8"): (
        ("25.09", Recipe("alltoall", False, UP)), ("26.02", Recipe("hybridep", False, UP)),
        ("26.04.01", Recipe("deepep", True, (*UP, "mlp"), "parts")),
    ),
    ("DeepSeekV3", "H100", "8"): (("25.09", Recipe("deepep", True, (*UP, "mlp"))), ("26.02", Recipe("hybridep", False, (*UP, "mlp")))),
    ("GPT OSS 120B", "GB300", "8"): (("25.09", Recipe("alltoall", graph="parts")), ("26.06", WITH_HEAD)),
    ("GPT OSS 120B", "GB200", "8"): (("25.09", Recipe("hybridep", True, CUT)), ("26.06", WITH_HEAD)),
    ("GPT OSS 120B", "GB300", "16"): (("25.09", Recipe("alltoall", graph="parts")),),
    ("GPT OSS 120B", "GB200", "16"): (("25.09", Recipe("alltoall", False, CUT)), ("26.04", Recipe("hybridep", True, CUT)), ("26.06", Recipe("alltoall", True, CUT))),
    ("GPT OSS 120B", "B200", "16"): (("25.09", Recipe("alltoall", False, CUT)), ("26.04", Recipe("hybridep", False, CUT)), ("26.04.01", Recipe("alltoall", False, CUT))),
    ("GPT OSS 120B", "H100", "16"): (("25.09", Recipe("alltoall", False, CUT)),),
    ("Qwen3_30B_a3B", "GB300", "8"): (("25.09", PARTS), ("26.06", STEP)),
    ("Qwen3_30B_a3B", "GB200", "8"): (("25.09", PARTS), ("26.06", STEP)),
    ("Qwen3_30B_a3B", "B300", "8"): (("25.09", PARTS), ("26.06", STEP)),
    ("Qwen3_30B_a3B", "B200", "8"): (("25.09", Recipe("alltoall", graph="parts")), ("26.02.01", PARTS), ("26.08", STEP)),
    ("Qwen3_30B_a3B", "H100", "8"): (("25.09", Recipe("alltoall", True)), ("26.04", PLAIN)),
    ("Qwen3_235B_a22B", "GB300", "8"): (("25.09", PARTS), ("26.06", STEP)),
    ("Qwen3_235B_a22B", "GB200", "8"): (("25.09", PARTS), ("26.06", STEP)),
    ("Qwen3_235B_a22B", "B300", "8"): (("25.09", Recipe("alltoall", True)), ("26.04", ALL_TO_ALL), ("26.04.01", PLAIN), ("26.08", STEP)),
    ("Qwen3_235B_a22B", "B200", "8"): (("25.09", Recipe("alltoall", True)), ("26.02", ALL_TO_ALL), ("26.08", STEP)),
    ("Qwen3_235B_a22B", "H100", "8"): (("25.09", Recipe("alltoall", True)),),
    ("Kimi_K2", "GB300", "8"): (("25.09", Recipe("hybridep", False, UP)),),
    ("Kimi_K2", "GB200", "8"): (("25.09", Recipe("hybridep", False, UP, "parts")),),
}  # fmt: skip
"""By model, GPU and bits of the products: recipes with the release from which on they hold. In 4 bits as in 8."""


def recipe(model: str, system: str, precision: str, release: str) -> Recipe:
    """Return the recipe of a run of a model with experts: the latest that is not later than its release.

    >>> recipe("Qwen3_235B_a22B", "DGX-B300", "mxfp8", "26.04").dispatcher
    'alltoall'
    """
    gpu, bits = system.removeprefix("DGX-"), "16" if precision == "bf16" else "8"
    usual = PARTS if "GB" in gpu else PLAIN
    lines = RECIPES.get((model, gpu, bits)) or RECIPES.get((model, gpu, "8")) or (("", usual),)
    found = [one for since, one in lines if since <= release][-1:] or [lines[0][1]]
    # A whole step is a graph in MXFP8 alone.
    return usual if found[0].graph == "step" and precision != "mxfp8" else found[0]


def options(found: Recipe, dropped: bool, ep: int, interleaved: bool) -> dict[str, Any]:
    """Return a recipe as Megatron's options; tokens that are dropped go by Megatron's own exchange."""
    out: dict[str, Any] = {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True}
    if ep > 1 and found.dispatcher != "alltoall" and not dropped:
        out |= {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": found.dispatcher}
    if found.beside and interleaved:
        out["overlap_moe_expert_parallel_comm"] = True
    if found.again:
        out |= {"recompute_granularity": "selective", "recompute_modules": found.again}
    if found.graph == "step":
        out |= {"use_transformer_engine_op_fuser": True, "moe_paged_stash": True}
        out |= {"fp8_dot_product_attention": found.eight, "fp8_output_proj": found.head}
    if dropped:
        out |= {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}
    return out
