"""Layers by a pattern of letters, each layer one thing, as Megatron's hybrid models write it (``hybrid_layer_pattern``).

Letters and defaults: Megatron-LM, megatron/core/models/hybrid/hybrid_layer_allocation.py (Symbols); sizes of the state-space
block: megatron/core/transformer/transformer_config.py (``mamba_*``) and megatron/core/ssm/mamba_mixer.py (expand 2, kernel 4).
"""

from __future__ import annotations

from tokenwire.errors import InputError
from tokenwire.model.architecture import Experts, FeedForward, Layer, Mixer, StateSpace

LETTERS = {"M": "state-space block", "*": "attention", "-": "feed-forward part", "E": "experts"}
"""What each letter of a pattern stands for."""
EXPAND, KERNEL = 2, 4


def state_space(hidden: int, heads: int | None, head_dim: int, state: int, groups: int) -> StateSpace:
    """Return a Mamba-2 block; ``heads`` None are as many as make it twice as wide as the hidden size.

    Raises ``InputError`` where heads and groups do not divide.

    >>> state_space(1024, None, 64, 128, 8).heads
    32
    """
    if heads is None and EXPAND * hidden % head_dim:
        raise InputError(
            f"state_head_dim = {head_dim}",
            where="[model]",
            rule=f"must divide {EXPAND}·hidden_size = {EXPAND * hidden:,}",
        )
    heads = heads or EXPAND * hidden // head_dim
    if heads % groups:
        near = next(n for n in range(groups, 0, -1) if heads % n == 0)
        raise InputError(f"state_groups = {groups}", where="[model]", rule=f"must divide the {heads} state-space heads",
                         nearest=f"state_groups = {near}")  # fmt: skip
    return StateSpace(
        2, heads * head_dim, state, KERNEL, heads=heads, head_dim=head_dim, groups=groups, inner_norms=True
    )


def layers_of(
    pattern: str, block: StateSpace, attention: Mixer, dense: FeedForward, experts: Experts | None
) -> list[Layer]:
    """Return one layer a letter. Raises ``InputError`` for a letter that is none, or experts that are not described.

    >>> from tokenwire.model.architecture import Attention
    >>> found = layers_of("M*", state_space(64, None, 64, 16, 1), Attention(2, 2, 32), FeedForward(256, False), None)
    >>> [type(layer.mixer).__name__ for layer in found]
    ['StateSpace', 'Attention']
    """
    if wrong := next((letter for letter in pattern if letter not in LETTERS), None):
        known = ", ".join(f"{letter} ({words})" for letter, words in LETTERS.items())
        raise InputError(f"layer_pattern has {wrong!r}", where="[model]", rule=f"its letters are {known}")
    if "E" in pattern and experts is None:
        raise InputError(
            "experts is missing", where="[model]", rule="layer_pattern has layers of experts (E)"
        )
    # Equal layers are the same object, as everywhere.
    of = {
        "M": Layer(block, None, 1),
        "*": Layer(attention, None, 1),
        "-": Layer(None, dense, 1),
        "E": Layer(None, experts, 1),
    }
    return [of[letter] for letter in pattern]
