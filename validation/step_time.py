"""Predict the measured runs of the validation tables, and write docs/validation.md: every row, hits and misses.

    python -m validation.step_time
    python -m validation.step_time --unseen FOLDER

Fits the settings on the way (``validation.calibrate``): each row is predicted with numbers that were fitted without it. With ``--unseen`` the
tables of a folder (those that it has) are predicted with the settings as the catalog has them, and nothing is fitted or written.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenwire.timeline.calibration import calibrated, named, usual
from validation.calibrate import GROUPS, Fitted, fit_all, wanted
from validation.cases import TABLES, Case, cases
from validation.run import Run

PAGE = Path(__file__).resolve().parents[1] / "docs" / "validation.md"
TARGETS = {"B200": 0.05, "MPT": 0.08, "SC21": 0.08, "sequence parallelism": 0.08, "torchtitan": 0.08, "Megatron-Bridge": 0.12}
KNOWN = (
    "\nOf these, known and not in the model:\n",
    "- GPT OSS in 26.06.01: a backward kernel of experts was ten times too slow in that container (NVIDIA/cudnn-frontend, issue 256; the",
    "  publisher's own note). These rows are predicted, and fit nothing.",
    "- Qwen3 235B on B300 in 26.02: exchanges beside another micro-batch without CUDA graphs, which the CPU cannot keep up with",
    "  (NVIDIA-NeMo/Megatron-Bridge, pull request 1760: 20.1 s with, 16.9 s without on 64 B200). What a CPU needs a layer is not known here.",
    "- Qwen3 30B on H100 in 25.11 and on B200 in 26.02: twice as slow without dropped tokens as with, by the publisher's own issue 1998, which does",
    "  not say why. What ran in 25.09 and with which precision its empty column does not say.",
    "- GPT OSS in 8 bits: what its biases and its cut activation cost in the fused kernels was measured nowhere.",
    "- Releases differ by up to 40 % in the same run of a model with experts; what of that is recipes is taken from them, the rest is kernels.",
    "\nSettings of experts on newer GPUs are of several of them: a model may have been left out on one and not on another; the table of whole models,",
    "releases and machines left out shows what that is worth.",
)
"""What is known of misses."""
MISS = 0.2
"""Error above which a row is named a miss."""


@dataclass(frozen=True)
class Line:
    """A row of the comparison: its run, the seconds that were predicted without it, and by which setting ("": by none of its own)."""

    case: Case
    seconds: float
    setting: str
    alone: float

    @property
    def error(self) -> float:
        """Return predicted over measured, less 1."""
        return self.seconds / self.case.seconds - 1


def lines_of(said: Sequence[Case], fitted: Sequence[Fitted]) -> list[Line]:
    """Return every run with its prediction; runs of no setting are predicted by the usual one of their plan."""
    out, seen = [], set()
    for one in fitted:
        for case, seconds, alone in zip(one.runs, one.left_out, one.alone, strict=True):
            out.append(Line(case, seconds, one.wanted.name, alone))
            seen.add(id(case))
    for case in said:
        if id(case) not in seen:
            gpu = calibrated(case.gpu, usual(case.gpu, case.arch, case.plan), case.precision)
            out.append(Line(case, seconds := case.predicted(gpu).step_seconds, "", seconds))
    order = {id(case): at for at, case in enumerate(said)}
    return sorted(out, key=lambda line: order[id(line.case)])


def summary(name: str, lines: Sequence[Line], target: float | None) -> str:
    """Return a row of the summary."""
    errors = [abs(line.error) for line in lines]
    mean, middle, worst = statistics.fmean(errors), statistics.median(errors), max(lines, key=lambda line: abs(line.error))
    met = "" if target is None else f"{target:.0%}, " + ("met" if mean <= target else "missed")
    alone = statistics.fmean(abs(line.alone / line.case.seconds - 1) for line in lines)
    return f"| {name} | {len(lines)} | {mean:.1%} | {middle:.1%} | {worst.error:+.1%} | {met} | {alone:.1%} |"


def page(lines: Sequence[Line], unsaid: Sequence[tuple[str, Run, str]], fitted: Sequence[Fitted]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Predicted against measured: the time of a step\n"
    yield "Written by `python -m validation.step_time`. Every row of the tables in `validation/data` is read by an importer (`validation.tables`) into the"
    yield "sections of a journey file, predicted, and compared. No row was used to predict itself: the four numbers of a setting (GPU, framework,"
    yield "precision) were fitted to the other rows of that setting, and the same run in other releases or with other micro-batches was left out"
    yield "with it (cross-validation, at most 12 folds). The last column is the mean where a row alone was left out, and its like in other releases"
    yield "was not. Bytes and peaks of memory stand in [memory](validation-memory.md)."
    yield from _by_group(fitted)
    yield "\n## By table\n"
    yield "| table | rows | mean error | median | worst | target for the mean | row alone left out |\n|---|--:|--:|--:|--:|---|--:|"
    tables = list(dict.fromkeys(line.case.table for line in lines))
    for table in tables:
        yield summary(table, [line for line in lines if line.case.table == table], TARGETS.get(table))
    yield summary("all", lines, None)
    yield from _by_setting(lines, fitted)
    yield "\n## Misses\n\nRows off by more than 20 %, and what is known of why.\n\n| run | measured | predicted | error |\n|---|--:|--:|--:|"
    for line in sorted(lines, key=lambda line: -abs(line.error)):
        if abs(line.error) > MISS:
            yield _row(line)
    yield from KNOWN
    yield f"\n## Rows that no journey says ({len(unsaid)})\n\n| table | run | why |\n|---|---|---|"
    for table, run, why in unsaid:
        yield f"| {table} | {run.name} | {why} |"
    yield "\nMicro-batches of the SC21 rows, which their table does not give, are assumed; how they were chosen is not recorded. Whether a"
    yield "Llama 3 70B run trains adapters is told by its published FLOP/s over its tokens/s, which is FLOPs per token."
    yield "\nStep times of Megatron's golden runs are not predicted: their models are so small that the CPU sets the pace, of which nothing is said."
    yield "\n## Every row"
    for table in tables:
        yield f"\n### {table}\n\n| run | measured | predicted | error |\n|---|--:|--:|--:|"
        yield from (_row(line) for line in lines if line.case.table == table)
        notes = list(dict.fromkeys(note for line in lines if line.case.table == table for note in line.case.run.assumed))
        yield "\nAssumed: " + "; ".join(notes) + "." if notes else ""


def _by_group(fitted: Sequence[Fitted]) -> Iterator[str]:
    """Yield how far off Megatron-Bridge's rows are whose whole release, model or machine was left out, where their setting has others."""
    yield "\n## A model, a release or a machine that was never seen\n\nWhat to expect of a run of your own. Megatron-Bridge: all rows of a model, of a release, or of a GPU were left out at once,"
    yield "and predicted by the other rows of their setting; only rows whose setting has others are counted. The last two columns are the same"
    yield "rows with only their own fold left out, and with no fitted number at all.\n"
    yield "| left out | rows | mean error | median | worst | fold left out | nothing fitted |\n|---|--:|--:|--:|--:|--:|--:|"
    for kind, of in GROUPS.items():
        found: list[tuple[float, float, float]] = []
        for one in fitted:
            if kind in one.grouped and len({of(case) for case in one.runs if not case.slowed}) > 1:
                unfitted = [case.predicted().step_seconds for case in one.runs]
                for case, *seconds in zip(one.runs, one.grouped[kind], one.left_out, unfitted, strict=True):
                    found.append((seconds[0] / case.seconds - 1, abs(seconds[1] / case.seconds - 1), abs(seconds[2] / case.seconds - 1)))
        errors = [abs(error) for error, _, _ in found]
        above, nothing = (statistics.fmean(line[i] for line in found) for i in (1, 2))
        worst = max((error for error, _, _ in found), key=abs)
        yield f"| {kind} | {len(found)} | {statistics.fmean(errors):.1%} | {statistics.median(errors):.1%} | {worst:+.1%} | {above:.1%} | {nothing:.1%} |"


def _by_setting(lines: Sequence[Line], fitted: Sequence[Fitted]) -> Iterator[str]:
    yield "\n## Settings\n\nSpeed in a long run over that alone, of products, attention, memory; seconds that products lose for a second of communication beside"
    yield "them; and the mean error of rows left out. A number that was not free is 1 (beside: 0.5, assumed).\n"
    yield "| setting | rows | products | attention | memory | beside | mean error |\n|---|--:|--:|--:|--:|--:|--:|"
    for one in fitted:
        numbers = " | ".join(f"{number:.2f}" for number in one.wanted.numbers(one.place))
        yield f"| {one.wanted.name} | {len(one.runs)} | {numbers} | {one.error:.1%} |"
    rest = [line for line in lines if not line.setting]
    if rest:
        yield "\nOf no setting with other rows, and predicted by the usual one of their plan: "
        yield ", ".join(f"{line.case.run.name} ({line.error:+.1%})" for line in rest) + "."


def _row(line: Line) -> str:
    return f"| {line.case.run.name} | {line.case.seconds:.3f} s | {line.seconds:.3f} s | {line.error:+.1%} |"


def main() -> None:
    """Fit, predict, and write the page."""
    said, unsaid = cases()
    fitted = fit_all(said)
    PAGE.write_text("\n".join(page(lines_of(said, fitted), unsaid, fitted)) + "\n", encoding="utf-8")


def unseen(folder: Path) -> None:
    """Print the rows of a folder's tables as the catalog's settings predict them, and a summary."""
    said, unsaid = cases(folder, *(table for table, (_, file) in TABLES.items() if (folder / file).exists()))
    lines = []
    for case in said:
        of = next((one.name for one in wanted() if one.member(case)), "")
        setting = named(of) if of else usual(case.gpu, case.arch, case.plan)
        seconds = case.predicted(calibrated(case.gpu, setting, case.precision)).step_seconds
        lines.append(Line(case, seconds, of, seconds))
        print(_row(lines[-1]))
    for table, run, why in unsaid:
        print(f"| {table} | {run.name} | {why} |")
    for table in dict.fromkeys(line.case.table for line in lines):
        print(summary(table, [line for line in lines if line.case.table == table], TARGETS.get(table)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--unseen"] and len(sys.argv) == 3:
        unseen(Path(sys.argv[2]))
    else:
        main()
