"""Tables of measured runs that others published: a reader for each, which makes a journey of every row.

In: a CSV file. Out: ``Run``s (``validation.run``), with the seconds of a step that were measured; what the table does not tell and was
assumed; or why a row cannot be said. No row is dropped.
"""

from __future__ import annotations

from validation.tables.b200 import b200_runs
from validation.tables.bridge import bridge_runs
from validation.tables.foundry import foundry_runs
from validation.tables.papers import korthikanti_runs, narayanan_runs
from validation.tables.titan import titan_runs

__all__ = ["b200_runs", "bridge_runs", "foundry_runs", "korthikanti_runs", "narayanan_runs", "titan_runs"]
