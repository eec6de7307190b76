"""Megatron-LM's command line as sections of a journey file.

Rules and defaults: NVIDIA/Megatron-LM, megatron/training/arguments.py (``core_transformer_config_from_args``,
``validate_args``), megatron/training/tokenizer. A flag is a key with the value true; ``--no-x`` turns x off.
Arguments that change neither tensors, nor messages, nor memory (learning rates, logging, data paths) are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tokenwire.formats.megatron_arguments.command_line import whole
from tokenwire.formats.megatron_arguments.unrepresented import Sections, Unrepresented, layer_wise, reasons

GPT2_VOCABULARY = 50_257
"""Words of GPT-2's BPE, the tokenizer of a run that names none."""
TOKENIZERS = {"nemotron_2_256k.model": 256_000, "Llama2Tokenizer": 32_000, "BertWordPieceCase": 28_998, "BertWordPieceLowerCase": 30_524}
"""Vocabularies of tokenizers that runs name by file or kind: SentencePiece models of Nemotron-4 and of Llama 2, BERT's words and two
more, for the ends of a sentence."""

_SIZES = {
    "tensor-model-parallel-size": "tp", "pipeline-model-parallel-size": "pp", "context-parallel-size": "cp",
    "expert-model-parallel-size": "ep",
}  # fmt: skip
_SWITCHES = (
    "sequence-parallel", "use-distributed-optimizer", "overlap-grad-reduce", "overlap-param-gather", "cross-entropy-loss-fusion",
    "calculate-per-token-loss", "tp-comm-overlap", "fp8-param-gather", "moe-grouped-gemm", "moe-router-enable-expert-bias",
    "moe-pad-expert-input-to-capacity", "first-last-layers-bf16", "reuse-grad-buf-for-mxfp8-param-ag", "account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split",
    "distribute-saved-activations", "overlap-moe-expert-parallel-comm",
)  # fmt: skip
_VALUES = (
    "cross-entropy-fusion-impl", "num-distributed-optimizer-instances", "recompute-granularity", "recompute-method",
    "recompute-num-layers", "moe-token-dispatcher-type", "moe-router-load-balancing-type", "moe-router-dtype",
    "moe-router-num-groups", "moe-router-group-topk", "moe-expert-capacity-factor", "moe-aux-loss-coeff", "cp-comm-type",
    "decoder-first-pipeline-num-layers", "pipeline-model-parallel-layout", "decoder-last-pipeline-num-layers", "make-vocab-size-divisible-by",
    "moe-flex-dispatcher-backend", "fp8-recipe", "num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16",
)  # fmt: skip
_RENAMED = {"microbatch-group-size-per-virtual-pipeline-stage": "microbatch_group_size_per_vp_stage",
            "ddp-average-in-collective": "average_in_collective"}  # fmt: skip
_SOFTWARE = {
    "transformer-impl": "transformer_impl", "attention-backend": "attention_backend", "attention-dropout": "attention_dropout",
    "hidden-dropout": "hidden_dropout", "deterministic-mode": "deterministic_mode", "optimizer": "optimizer",
    "defer-embedding-wgrad-compute": "defer_embedding_wgrad_compute", "wgrad-deferral-limit": "wgrad_deferral_limit",
    "use-precision-aware-optimizer": "use_precision_aware_optimizer", "main-params-dtype": "main_params_dtype",
    "exp-avg-dtype": "exp_avg_dtype", "exp-avg-sq-dtype": "exp_avg_sq_dtype",
}  # fmt: skip


def sections(args: Mapping[str, Any], gpus: int) -> tuple[Sections, dict[str, Any]]:
    """Return the sections of a journey and the options of the framework that shape memory.

    Raises ``Unrepresented`` for arguments that no journey can say.

    >>> found, _ = sections({"num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "seq-length": 32,
    ...     "micro-batch-size": 1, "global-batch-size": 4, "max-position-embeddings": 32, "bf16": True}, 4)
    >>> found["model"]["vocabulary_size"], found["plan"]["grad_reduce_in_fp32"]
    (50257, True)
    """
    why = reasons(args)
    if why:
        raise Unrepresented(why[0])
    return (
        {"model": model(args), "training": training(args), "plan": plan(args), "cluster": {"gpus": gpus}},
        software(args),
    )  # fmt: skip


def model(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``[model]`` section."""
    h, heads, gated = whole(args, "hidden-size"), whole(args, "num-attention-heads"), "swiglu" in args or "quick-geglu" in args
    positions = {"rope": "rotary", "none": "none"}.get(args.get("position-embedding-type", ""), "learned")
    out: dict[str, Any] = {
        "name": "megatron", "hidden_size": h, "layers": layers(args), "heads": heads,
        "kv_heads": args.get("num-query-groups", heads) if "group-query-attention" in args else heads,
        "head_dim": whole(args, "kv-channels", h // heads), "gated": gated,
        "feed_forward": args.get("ffn-hidden-size") or (int(4 * h * 2 / 3 / 64) * 64 if gated else 4 * h),
        "vocabulary_size": vocabulary(args), "max_positions": whole(args, "max-position-embeddings"), "positions": positions,
        "norm": "rms" if args.get("normalization") == "RMSNorm" else "layer",
        "activation": "silu" if gated else ("relu2" if "squared-relu" in args else "gelu"),
        "bias": "disable-bias-linear" not in args, "tied_embeddings": "untie-embeddings-and-output-weights" not in args,
    }  # fmt: skip
    if "qk-layernorm" in args and "multi-latent-attention" not in args:
        out["qk_norm"] = "head"
    if pattern(args):
        out |= {"layer_pattern": pattern(args).replace("|", ""), "state_heads": args.get("mamba-num-heads"),
                "state_head_dim": args.get("mamba-head-dim", 64), "state_size": args.get("mamba-state-dim", 128),
                "state_groups": args.get("mamba-num-groups", 8)}  # fmt: skip
    if "num-experts" in args:
        out |= _experts(args, out["feed_forward"])
    if "multi-latent-attention" in args:
        out |= {
            "kv_lora_rank": args["kv-lora-rank"], "q_lora_rank": args.get("q-lora-rank"), "qk_nope_head_dim": args["qk-head-dim"],
            "qk_rope_head_dim": args["qk-pos-emb-head-dim"], "v_head_dim": args["v-head-dim"],
        }  # fmt: skip
    if further := next_tokens(args):
        out["mtp_layers"] = 1 if "mtp-use-repeated-layer" in args else further
        if block := next_token_pattern(args):
            out["mtp_pattern"] = block
    return out


def _experts(args: Mapping[str, Any], feed_forward: int) -> dict[str, Any]:
    width = args.get("moe-ffn-hidden-size") or feed_forward
    out = {"experts": args["num-experts"], "active_experts": args.get("moe-router-topk", 2), "expert_feed_forward": width,
           "dense_layers": dense_layers(args.get("moe-layer-freq", 1), layers(args))}  # fmt: skip
    if shared := args.get("moe-shared-expert-intermediate-size"):
        out["shared_feed_forward"] = shared
    if latent := args.get("moe-latent-size"):
        out["expert_latent_size"] = latent
    return out


def pattern(args: Mapping[str, Any]) -> str:
    """Return the letters of a hybrid's layers, with strokes between the stages of its pipeline; empty where it is none."""
    return _patterns(args)[0]


def next_token_pattern(args: Mapping[str, Any]) -> str:
    """Return the letters of a hybrid's modules of multi-token prediction, which follow those of its layers; empty where it has none.

    megatron/core/models/hybrid/hybrid_layer_allocation.py, parse_hybrid_pattern: each module's after a slash, all alike.

    >>> next_token_pattern({"hybrid-layer-pattern": "M*E/*E/*E"})
    '*E'
    """
    return str(args.get("mtp-hybrid-override-pattern") or "") or next(iter(_patterns(args)[1:]), "")


def next_tokens(args: Mapping[str, Any]) -> int:
    """Return how many further tokens are predicted.

    >>> next_tokens({"hybrid-layer-pattern": "M*E/*E/*E"}), next_tokens({"mtp-num-layers": 1}), next_tokens({})
    (2, 1, 0)
    """
    return whole(args, "mtp-num-layers") if "mtp-num-layers" in args else len(_patterns(args)) - 1


def _patterns(args: Mapping[str, Any]) -> list[str]:
    return str(args.get("hybrid-layer-pattern") or args.get("hybrid-override-pattern") or "").split("/")


def layers(args: Mapping[str, Any]) -> int:
    """Return the number of layers; of a hybrid the letters of its pattern, of T5 those of its decoder.

    >>> layers({"hybrid-layer-pattern": "M-|M*"}), layers({"num-layers": 12})
    (4, 12)
    """
    letters = pattern(args).replace("|", "")
    if letters:
        args.get("num-layers")  # read, and no more than the pattern says
        return len(letters)
    return whole(args, "decoder-num-layers" if has_encoder(args) else "num-layers")


def has_encoder(args: Mapping[str, Any]) -> bool:
    """Return whether an encoder stands beside the decoder (T5)."""
    return "encoder-num-layers" in args


def dense_layers(pattern: int | str, layers: int) -> int:
    """Return how many dense layers stand before the layers with experts. Raises ``Unrepresented`` where they alternate.

    >>> dense_layers("([0]*3+[1]*11)", 14), dense_layers(1, 12)
    (3, 0)
    """
    if isinstance(pattern, int) or str(pattern).isdigit():
        if int(pattern) == 1:
            return 0
        raise Unrepresented(f"moe-layer-freq = {pattern}", rule="dense layers between those with experts")
    flags = [flag for value, times in re.findall(r"\[([01])\](?:\*(\d+))?", pattern) for flag in [int(value)] * int(times or 1)]
    dense = flags.index(1) if 1 in flags else len(flags)
    if len(flags) != layers or any(flag == 0 for flag in flags[dense:]):
        raise Unrepresented(f"moe-layer-freq = {pattern}", rule="dense layers between those with experts")
    return dense


def vocabulary(args: Mapping[str, Any]) -> int:
    """Return the vocabulary before padding. Raises ``Unrepresented`` for a tokenizer whose size is not known here.

    >>> vocabulary({"tokenizer-type": "NullTokenizer", "vocab-size": 8192})
    8193
    """
    kind, file = args.get("tokenizer-type"), str(args.get("tokenizer-model", "")).rsplit("/", 1)[-1]
    if kind == "NullTokenizer":
        # It has one more id, the end of a document (megatron/core/tokenizers/text/libraries/null_tokenizer.py).
        return whole(args, "vocab-size") + 1
    if "vocab-size" in args:
        return whole(args, "vocab-size")
    more = whole(args, "vocab-extra-ids") if "vocab-extra-ids" in args else 0
    if kind in (None, "GPT2BPETokenizer"):
        return GPT2_VOCABULARY + more
    for name, size in TOKENIZERS.items():
        if name in (file, kind):
            return size + more
    raise Unrepresented(f"tokenizer-type = {kind}", rule="its vocabulary is not known here")


def training(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``[training]`` section; a batch that grows (``step-batch-size-schedule``) has its first size."""
    batch = args.get("global-batch-size") or int(str(args["step-batch-size-schedule"]).split()[0].split(":")[1])
    precision = "bf16" if "bf16" in args else ("fp16" if "fp16" in args else "fp32")
    if "fp8-format" in args and not fp8_of_fp32(args):
        precision = "fp8"
    return {
        "sequence_length": args["decoder-seq-length" if has_encoder(args) else "seq-length"], "global_batch": batch, "micro_batch": args["micro-batch-size"],
        "precision": precision, "optimizer": "adam",
    }  # fmt: skip


def plan(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``[plan]`` section."""
    out: dict[str, Any] = {"dialect": "megatron"}
    out |= {short: whole(args, name) for name, short in _SIZES.items() if name in args}
    if "num-experts" in args and "expert-tensor-parallel-size" in args:
        out["etp"] = args["expert-tensor-parallel-size"]
    out |= {name.replace("-", "_"): True for name in _SWITCHES if name in args}
    if layer_wise(args):
        # Parameters and gradients stand whole and are all-reduced.
        del out["use_distributed_optimizer"]
    out |= {name.replace("-", "_"): args[name] for name in _VALUES if name in args}
    if fp8_of_fp32(args):
        out = {name: value for name, value in out.items() if not name.startswith("fp8_")}
    out |= {renamed: args[name] for name, renamed in _RENAMED.items() if name in args}
    for name, key in (("recompute-modules", "recompute_modules"), ("hierarchical-context-parallel-sizes",) * 2):
        if name in args:
            words = re.findall(r"[\w]+", str(args[name]))
            out[key.replace("-", "_")] = [int(word) if word.isdigit() else word for word in words]
    if (chunks := virtual_stages(args, out.get("pp", 1))) is not None:
        out["vpp"] = chunks
    # Megatron accumulates and reduces in fp32 by itself with bf16 (validate_args).
    if "bf16" in args and "grad-reduce-in-bf16" not in args:
        out["grad_reduce_in_fp32"] = True
    if "no-create-attention-mask-in-dataloader" in args:
        out["create_attention_mask_in_dataloader"] = False
    if further := next_tokens(args):
        out |= {"mtp_num_layers": further, **({"mtp_use_repeated_layer": True} if "mtp-use-repeated-layer" in args else {})}
    if "no-check-for-nan-in-loss-and-grad" in args:
        out["check_for_nan_in_loss_and_grad"] = False
    return out


def fp8_of_fp32(args: Mapping[str, Any]) -> bool:
    """Return whether products are in fp8 and all else in fp32: a journey then says fp32, and memory the casts beside it."""
    return "fp8-format" in args and not {"bf16", "fp16"} & set(args)


def virtual_stages(args: Mapping[str, Any], pp: int) -> int | None:
    """Return how many virtual stages a pipeline rank has, None where the arguments say none.

    >>> virtual_stages({"num-layers": 12, "num-layers-per-virtual-pipeline-stage": 1}, 4)
    3
    """
    if pp == 1:
        return None
    if "num-layers-per-virtual-pipeline-stage" in args:
        return layers(args) // pp // whole(args, "num-layers-per-virtual-pipeline-stage")
    if "num-virtual-stages-per-pipeline-rank" in args:
        return whole(args, "num-virtual-stages-per-pipeline-rank")
    # A hybrid's stages are those that the strokes of its pattern make.
    return (pattern(args).count("|") + 1) // pp if "|" in pattern(args) else None


def software(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that shape memory and that no section has, by Megatron's names."""
    out: dict[str, Any] = {name: args[key] for key, name in _SOFTWARE.items() if key in args}
    if "use-flash-attn" in args:
        out["attention_backend"] = "flash"
    out["gradient_accumulation_fusion"] = "no-gradient-accumulation-fusion" not in args
    out["bias_activation_fusion"] = "no-bias-gelu-fusion" not in args
    out["masked_softmax_fusion"] = "no-masked-softmax-fusion" not in args
    if "fp8-format" in args:
        out["fp8"] = True
    if layer_wise(args):
        # What is logged is the last rank's.
        out["layer_wise_optimizer"] = "last"
    if "optimizer-cpu-offload" in args:
        out["optimizer_offload_fraction"] = args.get("optimizer-offload-fraction", 1.0)
    if "use-megatron-fsdp" in args:
        out["data_parallel_sharding_strategy"] = args.get("data-parallel-sharding-strategy", "optim_grads_params")
    if has_encoder(args):
        out |= {"heads": "t5", "encoder_layers": args["encoder-num-layers"], "encoder_sequence_length": args["encoder-seq-length"]}
    return out
