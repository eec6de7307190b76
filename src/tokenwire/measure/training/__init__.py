"""Training that is real: a decoder in torch on the tokens of a text, a process a rank, gloo over TCP between hosts.

In: an ``Architecture``, a mode (or a checked plan), token ids. Out: per rank the loss of each step and the marks at which all
ranks were at rest and the kernel's counts were read; of the last step the calls as torch made them.
"""

from tokenwire.measure.training.modes import MODES, Mode, mode_of, plan_of

__all__ = ["MODES", "Mode", "mode_of", "plan_of"]
