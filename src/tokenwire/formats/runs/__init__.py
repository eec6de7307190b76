"""Measured runs of others as journey files: what each importer reads, and why a run cannot be said.

In: rows of arguments or of a table, as their publishers give them. Out: ``Run``: the sections of a journey file, the
options of the framework that shape memory (``software``), what was measured, what was assumed; or the reasons why the
run cannot be represented. No run is dropped.
"""

from __future__ import annotations

from tokenwire.formats.runs.run import Run, Unsaid

__all__ = ["Run", "Unsaid"]
