"""What this machine can do, measured by component: products, attention, and each call of gloo by size and number of ranks.

In: how hosts are joined. Out: a ``Calibration``, written as TOML, from which the communication of a step is predicted in seconds.
"""

from tokenwire.measure.calibrate.calibrating import calibrate
from tokenwire.measure.calibrate.calibration import Calibration, calibration_text, read_calibration
from tokenwire.measure.calibrate.predicting import communication_seconds

__all__ = ["Calibration", "calibrate", "calibration_text", "communication_seconds", "read_calibration"]
