"""``--plot`` of the verbs: what is drawn is what the verb says, with its units, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from tokenwire.cli import app
from tokenwire.errors import InputError
from tokenwire.journey import Journey
from tokenwire.needs.bandwidth import rate_with_overlap, rate_without_overlap
from tokenwire.report.charts import axis, flows, needs, tokens, wire, words
from tokenwire.text import read_text, statistics, types
from tokenwire.wire import WireConfig, framing
from tokenwire.wire.efficiency import common_configs

WALK = Journey.read(None)
NS = "{http://www.w3.org/2000/svg}"


def test_zipf_and_heaps_are_of_the_text() -> None:
    text = read_text()
    zipf, heaps = words.charts(text)
    counts = [count for _, count in types(text.content).most_common()]
    counted = {int(x): y for x, y in zip(zipf.x_values, zipf.series[0].values, strict=True)}
    assert counted[1] == counts[0]
    assert counted[len(counts)] == 1
    assert all(counts[rank - 1] == times for rank, times in counted.items())
    # After all 945 words all types have come; after the first word one.
    assert (heaps.series[0].values[0], heaps.series[0].values[-1]) == (1, statistics(text).types)
    assert heaps.x_values[-1] == 945


def test_a_long_curve_has_few_points_and_its_ends() -> None:
    at = axis.sampled(1_000_000)
    assert len(at) < 160
    assert (at[0], at[-1]) == (1, 1_000_000)
    assert {10**power for power in range(7)} <= set(at)


def test_shares_of_tokens_and_words_are_all_of_them() -> None:
    lengths, pieces = tokens.charts(WALK)
    for chart in (lengths, pieces):
        assert sum(value or 0 for value in chart.series[0].values) == pytest.approx(100)
    # The mean of the lengths is the bytes a token that the verb prints.
    mean = sum(int(place) * (value or 0) / 100 for place, value in zip(lengths.places, lengths.series[0].values, strict=True))
    assert mean == pytest.approx(WALK.tokens().bytes_per_token)


def test_pieces_of_words_are_counted_in_bytes() -> None:
    # "così è" is c o s ì(2 bytes) space è(2 bytes): tokens "co", "sì", " ", "è" as two bytes of one token each.
    starts, ends = np.array([0, 2, 5, 6, 7]), np.array([2, 5, 6, 7, 8])
    assert tokens.pieces_of_words("così è", starts, ends).tolist() == [2, 2]


def test_efficiency_is_that_of_framing() -> None:
    config = WireConfig(mtu=1024)
    chart = wire.efficiency([config])
    at = chart.x_values.index(4096.0)
    assert chart.series[0].values[at] == pytest.approx(4096 / framing(4096, config).wire_bytes * 100)
    assert len(wire.efficiency(common_configs()).series) <= wire.MOST


def test_rates_are_those_of_the_needs() -> None:
    chart = needs.by_share(WALK, None)
    values = {one.name: dict(zip(chart.x_values, one.values, strict=True)) for one in chart.series}
    for x in (0.02, 0.5):
        said = {one.formula: one.value * 8 / 1e9 for one in WALK.needs(exposed=x) if one.unit == "B/s"}
        assert values["if nothing overlaps"][x] == pytest.approx(said["B(1-x)/(x·t)"])
        assert values["if everything overlaps"][x] == pytest.approx(said["B(1-x)/t"])
    assert rate_without_overlap(1, 1, 0.5) / rate_with_overlap(1, 1, 0.5) == 2
    assert values["its NIC has"][0.1] == 400


def test_use_over_time_is_drawn_for_the_longest_kinds() -> None:
    def kind(name: str, seconds: float) -> dict[str, object]:
        use = [{"tier": "leaf", "start": 0.0, "seconds": seconds, "bytes": 1.0, "utilisation": 0.5}]
        return {"op": name, "group": "dp", "phase": "gradients", "seconds": seconds, "utilisation": use}

    charts = flows.over_time([kind(f"op{n}", n * 1e-3) for n in range(1, 9)])
    assert [chart.title.split()[4] for chart in charts] == [f"op{n}" for n in range(3, 9)]
    assert charts[0].x_title == "time, ms"
    assert charts[0].series[0].values == (50.0,)
    with pytest.raises(InputError, match="nothing is sent"):
        flows.over_time([])


VERBS = [
    (["text"], "times that it occurs in the text"),
    (["tokens"], "share of the tokens, %"),
    (["traffic"], "bytes / rate"),
    (["flows"], "time, us"),
    (["flows", "--fail", "leaf0"], "without leaf0"),
    (["flows", "--over-time", "--only", "dp"], "use of the links that carry it, %"),
    (["flows", "--late", "3=1 ms", "--only", "dp"], "time, ms"),
    (["wire"], "payload, % of all bytes on the wire"),
    (["needs"], "rate of a NIC, Gb/s"),
    (["needs", "--efficiency", "90%"], "efficiency, %"),
    (["collective", "all_reduce", "--topology", "dgx-h100-superpod", "--ranks", "64", "--sizes", "8B-8GiB"], "busbw, GB/s"),
    (["memory"], "GiB"),
    (["time"], "stage 0"),
]


@pytest.mark.parametrize(("verb", "said"), VERBS, ids=[" ".join(verb[:2]) for verb, _ in VERBS])
def test_a_verb_draws(verb: list[str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    done = CliRunner().invoke(app, [*verb, "--plot", str(path)])
    assert done.exit_code == 0, done.output
    assert ElementTree.parse(path).getroot().tag == f"{NS}svg"
    drawn = path.read_text()
    assert said in "".join(ElementTree.fromstring(drawn).itertext())
    assert "nan" not in drawn.lower().replace("nanosecond", "")
    assert [one.name for one in tmp_path.iterdir()] == ["a.svg"]


@pytest.mark.parametrize("verb", [["text"], ["tokens"], ["traffic"], ["flows"], ["wire"], ["needs"], ["measure"], ["time"]], ids=lambda verb: verb[0])
def test_an_ending_that_cannot_be_drawn_is_said_before_anything_is_done(verb: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*verb, "--plot", str(tmp_path / "a.gif")])
    assert isinstance(done.exception, InputError)
    assert ".svg, .html or .png" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [["needs", "--largest"], ["wire", "--bytes", "1KiB"]], ids=" ".join)
def test_a_plot_of_an_answer_without_one_is_refused(verb: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*verb, "--plot", str(tmp_path / "a.svg")])
    assert isinstance(done.exception, InputError)
    assert list(tmp_path.iterdir()) == []
