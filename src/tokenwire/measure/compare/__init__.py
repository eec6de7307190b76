"""Prediction beside measurement: payload and messages by pair of ranks and step, streams, frames.

In: a plan with its step table, what the ranks wrote down, the capture. Out: a ``Measurement`` with a row a pair, from which all else
is summed.
"""

from tokenwire.measure.compare.measurement import Measurement
from tokenwire.measure.compare.measuring import Settings, measure

__all__ = ["Measurement", "Settings", "measure"]
