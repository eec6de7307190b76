"""Memory of every stage: the parts, their sum at each moment, the peak and its moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenwire.figures import Figure
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, Stage
from tokenwire.timeline.memory.assumptions import assumptions
from tokenwire.timeline.memory.buffers import buffers, placeholders, workspaces
from tokenwire.timeline.memory.encoder import encoder
from tokenwire.timeline.memory.flight import in_flight
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.gathered import gathered
from tokenwire.timeline.memory.head import embedding, head, next_tokens
from tokenwire.timeline.memory.part import AT_HEAD, AWAY_FROM_HEAD, MOMENTS, STANDING, Moment, Part
from tokenwire.timeline.memory.passing import activations, passing
from tokenwire.timeline.memory.reserved import in_use
from tokenwire.timeline.memory.software import Software
from tokenwire.timeline.memory.states import states

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class StageMemory:
    """The memory of a rank of one pipeline stage. Sizes in bytes."""

    stage: int
    parts: tuple[Part, ...]

    def at(self, moment: Moment) -> int:
        """Return the bytes that stand at a moment."""
        return sum(part.size for part in self.parts if moment in part.moments)

    @property
    def between(self) -> int:
        """Return what is allocated between steps, as ``torch.cuda.memory_allocated`` counts."""
        return self.at("between")

    @property
    def moment(self) -> Moment:
        """Return the moment of the peak."""
        return max(MOMENTS, key=self.at)

    @property
    def peak(self) -> int:
        """Return the most that is allocated at once, as ``torch.cuda.max_memory_allocated`` counts."""
        return self.at(self.moment)

    def of(self, kind: str, moment: Moment | None = None) -> int:
        """Return the bytes of one kind of part at a moment (that of the peak where none is said)."""
        when = moment or self.moment
        return sum(part.size for part in self.parts if part.kind == kind and when in part.moments)


@dataclass(frozen=True)
class Memory:
    """The memory of all stages, the GPU that it must fit in, and the defaults that were taken (``assumptions``).

    ``in_use`` is the share of what the allocator reserves that is allocated at the peak.
    """

    stages: tuple[StageMemory, ...]
    software: Software
    assumptions: tuple[str, ...] = ()
    in_use: float = 1.0

    @property
    def capacity(self) -> int:
        """Return the bytes of the GPU's memory."""
        return self.software.facts.memory

    @property
    def worst(self) -> StageMemory:
        """Return the stage with the highest peak."""
        return max(self.stages, key=lambda stage: stage.peak)

    @property
    def reserved(self) -> int:
        """Return the bytes that the allocator reserves at most on the worst stage, as ``torch.cuda.max_memory_reserved`` counts."""
        return round(self.worst.peak / self.in_use)

    def figures(self) -> tuple[Figure, ...]:
        """Return every part of every stage as a figure."""
        return tuple(
            Figure(f"stage {one.stage}: {part.what}", part.size, "B", part.formula, part.values, part.source,
                   because=", ".join(part.moments))
            for one in self.stages for part in one.parts
        )  # fmt: skip

    def table(self) -> pl.DataFrame:
        """Return one row a part: ``stage, kind, what, bytes, between, loss, backward, optimizer, formula, values, source``."""
        import polars as pl

        rows = [
            (one.stage, p.kind, p.what, p.size, *(m in p.moments for m in MOMENTS), p.formula, p.values, p.source)
            for one in self.stages for p in one.parts
        ]  # fmt: skip
        flags: dict[str, type[pl.DataType]] = dict.fromkeys(MOMENTS, pl.Boolean)
        words: dict[str, type[pl.DataType]] = dict.fromkeys(("formula", "values", "source"), pl.String)
        schema: dict[str, type[pl.DataType]] = {"stage": pl.Int64, "kind": pl.String, "what": pl.String, "bytes": pl.Int64, **flags, **words}
        return pl.DataFrame(rows, schema=schema, orient="row")


def memory(arch: Architecture, plan: Plan, software: Software | None = None, skew: float = 0.0) -> Memory:
    """Return the memory of a rank of every pipeline stage in one optimizer step.

    ``software`` says what model and plan do not: the GPU, the implementation, dropout. ``skew`` is the share
    by which experts of the rank get more rows than the mean (0.5: half as many again). Sizes are those of torch's allocator.

    >>> from tokenwire.model import preset
    >>> from tokenwire.plan import TrainingConfig, read_plan, resolve
    >>> arch = preset("gpt2", 50257)
    >>> plan = resolve(read_plan({"tp": 2}), TrainingConfig(sequence_length=1024), arch, 8)
    >>> [round(memory(arch, plan).stages[0].of(kind) / 2**20) for kind in ("weights", "gradients", "optimizer")]
    [120, 120, 718]
    """
    frame = Frame(plan.config.trained(arch), plan, software or Software(), skew)
    stages = tuple(StageMemory(stage.index, tuple(_parts(frame, stage))) for stage in plan.stages)
    return Memory(stages, frame.software, tuple(assumptions(frame)), in_use(plan.config))


def _parts(frame: Frame, stage: Stage) -> Iterator[Part]:
    yield from states(frame, stage)
    chunks = [activations(frame, stage, number) for number in range(len(stage.chunks))]
    held = in_flight(frame.plan, stage.index, [float(sum(p.size for p in chunk)) for chunk in chunks])
    for number, (most, at_head, chunk) in enumerate(zip(held.most, held.at_head, chunks, strict=False)):
        name = f"chunk {number}: " if len(chunks) > 1 else ""
        for count, moments in ((most, STANDING),) if most == at_head else ((most, AWAY_FROM_HEAD), (at_head, AT_HEAD)):
            for part in chunk if count else ():
                yield Part(part.kind, f"{name}{part.what}, {count} micro-batches", count * part.size, moments,
                           f"{count}·{part.formula}", f"{count}·{part.values}", part.source)  # fmt: skip
    yield from encoder(frame, stage)
    yield from embedding(frame, stage, held.most[0] if held.most else 0)
    yield from head(frame, stage)
    yield from next_tokens(frame, stage)
    yield from passing(frame, stage)
    yield from buffers(frame, stage)
    yield from gathered(frame, stage)
    yield from placeholders(frame, stage)
    yield from workspaces(frame, stage)
