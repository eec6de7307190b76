"""One measurement: a row a step and pair of ranks, predicted and measured, and what is summed from it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenwire.measure.compare.frames import FRAME_HEADER

if TYPE_CHECKING:
    import polars as pl

PAYLOAD_AIM, FRAMES_AIM = 0.001, 0.01
"""Relative differences up to which payload and frames count as predicted."""


COLUMNS = (
    "payload_predicted", "payload_recorded", "payload_captured", "messages_predicted", "messages_recorded", "messages_captured",
    "stream_predicted", "stream_sockets", "stream_received", "stream_captured", "data_frames_predicted", "data_frames_captured",
    "acks_expected", "acks_most", "acks_captured", "frame_bytes_predicted", "frame_bytes_captured", "resent",
)  # fmt: skip
"""What a row has besides ``step, src, dst``."""


@dataclass(frozen=True)
class Timing:
    """Seconds that ranks communicate in a step: predicted from components, and by step as the profiler of torch saw it (``timing``)."""

    predicted: float
    by_step: tuple[float, ...]

    @property
    def measured(self) -> float:
        """Return the median over steps."""
        return statistics.median(self.by_step)

    @property
    def off(self) -> float:
        """Return by which share the prediction is above (or below) what was measured."""
        return self.predicted / self.measured - 1

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {"predicted_s": self.predicted, "measured_s": self.measured, "off": self.off, "by_step_s": list(self.by_step)}


@dataclass(frozen=True)
class Measurement:
    """``pairs`` has a row a step and direction between two ranks that spoke or should have.

    Columns: ``step, src, dst``; ``payload`` and ``messages`` ``_predicted``, ``_recorded`` (of the calls that torch made, last step
    alone) and ``_captured`` (by gloo's headers in the capture); ``stream_predicted``, ``stream_sockets`` (TCP_INFO of the sender),
    ``stream_received`` (of the receiver), ``stream_captured`` in bytes; ``data_frames_predicted``, ``data_frames_captured``; acknowledgements by themselves,
    ``acks_expected``, ``acks_most`` (see ``frames``) and ``acks_captured``; ``frame_bytes_predicted`` (with the acknowledgements that are
    expected), ``frame_bytes_captured``; ``resent`` bytes. ``steady`` is the first step that is compared: those before it set torch
    up. What was not captured is null. ``frames_cut``: captured frames are those of the wire, not sends that a card has yet to cut.
    ``three_ways``: see there.
    """

    mode: str
    said: str
    network: str
    prediction: str
    ranks: int
    steps: int
    steady: int
    losses: tuple[float, ...]
    pairs: pl.DataFrame
    three_ways: tuple[dict[str, Any], ...]
    setup_bytes: int
    store_bytes: int
    phases: tuple[dict[str, Any], ...]
    bursts: tuple[dict[str, Any], ...]
    frames_cut: bool = True
    dropped: int = 0
    timing: Timing | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())

    def compared(self) -> pl.DataFrame:
        """Return the rows of the steps that are compared."""
        return self.pairs.filter(self.pairs["step"] >= self.steady)

    def by_rank(self) -> list[dict[str, Any]]:
        """Return what each rank sent in the compared steps: payload, messages and stream, predicted and measured."""
        import polars as pl

        sums = [pl.col(name).sum() for name in self.pairs.columns if name not in ("step", "src", "dst")]
        rows = self.compared().group_by("src").agg(sums).sort("src").rename({"src": "rank"}).to_dicts()
        for row in rows:
            if not self.captured:
                row.update({key: None for key in row if key.endswith("_captured")})
        return rows

    @property
    def captured(self) -> bool:
        """Return whether there is a capture to compare with."""
        return bool(self.pairs["stream_captured"].null_count() < self.pairs.height)

    def total(self, name: str) -> int | None:
        """Return the sum of a column over the compared steps, None where nothing was counted."""
        column = self.compared()[name]
        return None if column.null_count() == len(column) else int(column.sum())

    def apart(self) -> dict[str, int] | None:
        """Return the largest difference between two of the three ways of counting a rank, in packets and bytes with their options; None where
        sockets count segments that a card has yet to cut."""
        if not self.three_ways or not self.frames_cut:
            return None
        out = {}
        for kind in ("packets", "bytes"):
            ways = [[row[f"{kind}_interface"], row[f"{kind}_sockets"] + (row["option_bytes"] or 0 if kind == "bytes" else 0),
                     *([row[f"{kind}_capture"]] if self.captured else [])] for row in self.three_ways]  # fmt: skip
            out[kind] = max(max(way) - min(way) for way in ways)
        return out

    def verdict(self) -> dict[str, Any]:
        """Return the largest relative difference of each kind, and whether each is within its aim.

        ``payload`` is of the worst rank (by sockets: stream bytes; by capture: bytes of tensors), ``pairs`` how many pairs differ
        at all, ``messages`` the total missed, ``data_frames`` of the frames with data of all ranks by number and ``data_frame_bytes`` by
        bytes (whether a small record rides in the frame before it is TCP's choice), ``frame_bytes`` of all frames, with one
        acknowledgement a message; the acknowledgements themselves are given beside.
        """
        rows = self.compared()
        worst = {}
        for kind, measured in (("stream", "stream_sockets"), ("payload", "payload_captured")):
            worst[kind] = None if rows[measured].null_count() else _worst(self.by_rank(), f"{kind}_predicted", measured)
        messages = None
        if self.captured:
            messages = int((rows["messages_captured"] - rows["messages_predicted"]).abs().sum())
        frames, with_data, all_frames = None, None, None
        if self.captured and self.frames_cut:
            counted = [self.total(f"data_frames_{how}") or 0 for how in ("predicted", "captured")]
            streams = [self.total(f"stream_{how}") or 0 for how in ("predicted", "captured")]
            frames = _off(*counted)
            with_data = _off(*(size + FRAME_HEADER * number for size, number in zip(streams, counted, strict=True)))
            all_frames = _off(self.total("frame_bytes_predicted") or 0, self.total("frame_bytes_captured") or 0)
        counts = None
        if self.captured:
            counts = int((rows["stream_captured"] - rows["stream_sockets"]).abs().sum())
        stream = worst["stream"] or 0.0
        payload = worst["payload"] if worst["payload"] is not None else stream
        return {
            "stream_worst_rank": worst["stream"], "payload_worst_rank": worst["payload"],
            "pairs_different": int((rows["stream_predicted"] != rows["stream_sockets"]).sum()), "pairs": rows.height,
            "messages_missed": messages, "data_frames_off": frames, "data_frame_bytes_off": with_data,
            "frame_bytes_off": all_frames,
            "acks": {key: self.total(f"acks_{key}") for key in ("expected", "most", "captured")},
            "capture_minus_sockets_bytes": counts, "three_ways_apart": self.apart(),
            "payload_within_aim": stream <= PAYLOAD_AIM and payload <= PAYLOAD_AIM,
            "messages_exact": None if messages is None else messages == 0,
            "frames_within_aim": None if with_data is None else with_data <= FRAMES_AIM,
            "loss_falls": len(self.losses) > 1 and self.losses[-1] < self.losses[0],
        }  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {
            "mode": self.mode, "said": self.said, "network": self.network, "prediction": self.prediction, "ranks": self.ranks,
            "steps": self.steps, "first_compared_step": self.steady, "losses": list(self.losses), "verdict": self.verdict(),
            "per_rank": self.by_rank(), "three_ways": list(self.three_ways), "setup_bytes": self.setup_bytes,
            "store_bytes": self.store_bytes, "phases": list(self.phases), "dropped_packets": self.dropped,
            "communication": self.timing.as_dict() if self.timing else None,
            "seconds": self.seconds, "notes": list(self.notes), "pairs": self.pairs.to_dicts(),
        }  # fmt: skip


def _worst(rows: list[dict[str, Any]], predicted: str, measured: str) -> float:
    return max((_off(row[predicted], row[measured]) for row in rows), default=0.0)


def _off(predicted: int, measured: int) -> float:
    return abs(measured - predicted) / max(predicted, 1) if predicted or measured else 0.0
