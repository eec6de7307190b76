"""The model: architecture -> layers -> tensors, with parameters and FLOPs; vectors and a forward pass in numbers.

In: a ``ModelConfig`` (preset, fields, or a Hugging Face configuration read by ``formats.hf_config``) and, where the model
leaves it to the tokenizer, a vocabulary size. Out: an ``Architecture`` (sizes only) and, from it, ``tensors`` (names,
shapes, how tensor parallelism cuts them), ``parameters``, ``flops_per_token``; a seeded ``embedding_row`` with its
``bfloat16_bits``; and in ``forward/`` the activations at each place where something is sent.
"""

from tokenwire.model.architecture import (
    Architecture,
    Attention,
    DeltaNet,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Norm,
    StateSpace,
    Tensor,
)
from tokenwire.model.config import (
    Model,
    ModelConfig,
    architecture,
    from_fields,
    from_huggingface,
    preset,
    presets,
)
from tokenwire.model.flops import CONVENTIONS, flops_per_token
from tokenwire.model.parameters import (
    ParameterCount,
    layer_parameters,
    layer_runs,
    parameter_figures,
    parameters,
)
from tokenwire.model.tensors import layer_tensors, tensors
from tokenwire.model.vectors import (
    bfloat16_bits,
    bfloat16_values,
    embedding_row,
    learned_positions,
    rotary_angles,
    sinusoidal_positions,
)

__all__ = [
    "CONVENTIONS",
    "Architecture",
    "Attention",
    "DeltaNet",
    "Experts",
    "FeedForward",
    "LatentAttention",
    "Layer",
    "Model",
    "ModelConfig",
    "Norm",
    "ParameterCount",
    "StateSpace",
    "Tensor",
    "architecture",
    "bfloat16_bits",
    "bfloat16_values",
    "embedding_row",
    "flops_per_token",
    "from_fields",
    "from_huggingface",
    "layer_parameters",
    "layer_runs",
    "layer_tensors",
    "learned_positions",
    "parameter_figures",
    "parameters",
    "preset",
    "presets",
    "rotary_angles",
    "sinusoidal_positions",
    "tensors",
]
