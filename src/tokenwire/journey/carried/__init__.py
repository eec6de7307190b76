"""What carries a token's vector from one GPU to another: the first message with it, and its true bits in there."""

from tokenwire.journey.carried.first_message import carried
from tokenwire.journey.carried.message import Carried
from tokenwire.journey.carried.numbers import micro_batch_ids

__all__ = ["Carried", "carried", "micro_batch_ids"]
