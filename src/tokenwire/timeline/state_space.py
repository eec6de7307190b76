"""What the kernels between the projections of a state-space block move: its convolution, its scan in chunks, its gated norm.

Symbols: D inner width, N state, G groups, C = D + 2·G·N channels of the convolution, Q tokens of a chunk, e bytes of an activation.
Kernels of Mamba 2: state-spaces/mamba, mamba_ssm/ops/triton/ssd_combined.py (_mamba_chunk_scan_combined_fwd and _bwd,
MambaSplitConv1dScanCombinedFn, whose backward makes the convolution and the states of chunks again). Their products, of 2·Q, 2·N and 4·N
FLOPs a number, are of tiles of Q x Q and Q x N, so few for the bytes that they move that memory bounds them. Bytes a token:

    forward    convolution 2·C·e; states of chunks (D + G·N)·e + 4·D·N/Q, passed on 6·D·N/Q; C·B 2·G·N·e + 4·G·Q;
               scan 4·G·Q + (2·D + G·N)·e + 2·D·N/Q; norm and gate 3·D·e
    backward   convolution again and back 5·C·e; norm 6·D·e; states again and passed on (D + G·N)·e + 10·D·N/Q; gradients of states, of x, B,
               C, C·B and decay, each a kernel: (10·D + 10·G·N)·e + 26·D·N/Q + 24·G·Q

A block of Mamba 1 reads and writes its input and state about 4 times forward and 8 backward (assumed).
"""

from __future__ import annotations

from tokenwire.model.architecture import StateSpace

CHUNK = 128
"""Tokens of a chunk: Megatron-LM, megatron/core/ssm/mamba_mixer.py (chunk_size)."""
KERNELS = (7, 16)
"""Kernels forward and backward."""


def moved_between_projections(x: StateSpace, tp: int, item: float) -> tuple[float, float]:
    """Return the bytes a token, forward and backward, on a rank of ``tp``.

    >>> super_ = StateSpace(2, 8192, 128, 4, heads=128, head_dim=64, groups=8)
    >>> [round(size / 1000) for size in moved_between_projections(super_, 1, 2.0)]
    [254, 723]
    """
    d, gn = x.inner_size / tp, x.groups * x.state_size / tp
    if x.version == 1:
        return 8 * (d + 2 * gn) * item, 16 * (d + 2 * gn) * item
    states, pairs, channels = d * x.state_size / CHUNK, x.groups * CHUNK / tp, d + 2 * gn
    forward = (2 * channels + 6 * d + 4 * gn) * item + 12 * states + 8 * pairs
    backward = (5 * channels + 17 * d + 11 * gn) * item + 36 * states + 24 * pairs
    return forward, backward
