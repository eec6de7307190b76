"""The forward pass in numbers, cut over ranks as Megatron cuts it, with what each rank gives to every communication.

In: an architecture, token ids, a seed and a plan's sizes (tensor parallel, sequence parallel, pipeline stages). Out: a
``Forward`` with the activations and a ``Sent`` for each call: the arrays that the ranks of its group bring to it.
"""

from tokenwire.model.forward.run import forward
from tokenwire.model.forward.sent import Forward, Sent

__all__ = ["Forward", "Sent", "forward"]
"""What comes through this door."""
