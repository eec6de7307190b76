"""From a plan with a fault to a small one with the same: options dropped and sizes halved while the fault remains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.agreement.document import Document, changed
from tests.agreement.running import Job, Outcome, run

MOST = 300
"""Plans tried for one fault."""

_KEPT = {"dialect"}
_SIZES = ("tp", "pp", "cp", "ep", "etp", "vpp")


def shrunk(name: str, job: Job, outcome: Outcome, processes: int = 1) -> tuple[Job, Outcome]:
    """Return the smallest plan found that has a part of the fault of ``outcome``."""
    wanted, tried = outcome.fault, 0
    while tried < MOST:
        candidates = [Job(job.name, document) for document in smaller(job.document)]
        for candidate, found in run(name, candidates, processes):
            tried += 1
            if found.kind == outcome.kind and found.fault & wanted:
                job, outcome = candidate, found
                break
        else:
            break
    return job, outcome


def smaller(document: Document) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield documents that say a little less: a world halved, a key dropped, a number halved or one less."""
    training, gpus = document["training"], document["cluster"]["gpus"]
    batch = training["global_batch"]
    for by in (4, 2, 3):
        if gpus % by == 0 and batch % by == 0:
            yield changed(document, cluster={"gpus": gpus // by}, training={"global_batch": batch // by})
    for size in _SIZES:
        value = document["plan"].get(size)
        if isinstance(value, int) and value > 1:
            yield changed(document, plan={size: None}, cluster={"gpus": max(1, gpus // value)})
            yield changed(document, plan={size: value // 2}, cluster={"gpus": max(1, gpus // 2)})
    for section in ("plan", "model"):
        for key in document[section]:
            if key not in _KEPT:
                yield changed(document, **{section: {key: None}})
    for section in ("model", "training", "plan"):
        for key, value in document[section].items():
            if isinstance(value, int) and not isinstance(value, bool) and value > 1:
                for less in dict.fromkeys((value // 2, value - 1 if value < 16 else value // 2)):
                    yield changed(document, **{section: {key: less}})
