"""What the explorer's pages show, worked by hand on the built-in walk (2 nodes of 4 GPUs; tp 2, dp 2, pp 2)."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest

from tokenwire.errors import InputError
from tokenwire.journey import Journey, scale
from tokenwire.report.rooms import beside, blocks, fabric, over_time, ranks, rounds, schedule, typed, vectors
from tokenwire.report.rooms.time import timed
from tokenwire.report.scenes.following import following


@pytest.fixture(scope="module")
def walk() -> Journey:
    return Journey.read(None)


def test_any_token_is_followed_on_verses_that_hold_it(walk: Journey) -> None:
    last = len(walk.encoding()) - 1
    for token in (0, 9, 700, last):
        found = following(walk, token)
        # 9 is the line end after the first verse; the last line end of the text is in no verse.
        assert abs(found.followed - token) <= (token == last)
        assert found.followed in found.tokens_shown
    with pytest.raises(InputError, match="tokens 0 to"):
        following(walk, last + 1)


def test_a_typed_text_is_cut_as_the_text_is(walk: Journey) -> None:
    text = typed.text_of("Nel mezzo")
    (own, as_bytes) = typed.beside(walk, ["bytes"], text)
    assert "".join(piece.text for piece in own["pieces"]) == "Nel␣mezzo"
    assert as_bytes["shown"] == 9  # nine letters of one byte
    assert as_bytes["tokens"] == len(walk.text().data)
    assert typed.beside(walk, ["nothing", "file"], text)[1]["error"].startswith("[tokenizer] unknown kind")


def test_a_token_is_found_by_id_and_by_text(walk: Journey) -> None:
    id_ = int(walk.encoding().ids[7])
    assert 7 in typed.found(walk, str(id_))["token"].to_list()
    assert all("sel" in text for text in typed.found(walk, "sel")["text"])
    for wrong in ("999999", "zzzzzz"):
        with pytest.raises(InputError):
            typed.found(walk, wrong)


def test_rows_of_the_table_are_held_once(walk: Journey) -> None:
    held = vectors.holders(walk)
    # 1,000 rows padded to 1,008, which two tensor ranks share.
    assert held["rows"].to_list() == [504, 504]
    assert held["padding"].to_list() == [0, 8]
    numbers = vectors.numbers(walk, 7)
    assert len(numbers) == 256
    assert (numbers["sign"] + numbers["exponent"] + numbers["fraction"]).str.len_chars().unique().to_list() == [16]


def test_parameters_by_tensor_are_all_of_them(walk: Journey) -> None:
    arch = walk.model().architecture
    assert blocks.by_tensor(arch)["elements"].sum() == walk.model().parameters.total
    about, held = blocks.holders(walk, "layers.0.attention.qkv.weight")
    # 3·256 rows by outputs over two tensor ranks.
    assert held["held"].unique().to_list() == ["384×256"]
    assert about["stage"] == 0
    with pytest.raises(InputError, match=r"nearest that works: layers\.0\.attention\.qkv\.weight"):
        blocks.holders(walk, "layers.0.attention.qkv.weigh")


def test_groups_span_nodes_and_rails(walk: Journey) -> None:
    found = {row["group"]: row for row in ranks.spans(walk, 5).to_dicts()}
    # Rank 5 is t1 d0 p1 on node 1: its pipeline partner 1 is on node 0, on the same rail.
    assert (found["pp"]["members"], found["pp"]["nodes"], found["pp"]["rails"]) == ("1 5", 2, 1)
    assert (found["tp"]["members"], found["tp"]["nodes"], found["tp"]["rails"]) == ("4 5", 1, 2)
    number = ranks.numbers(walk, "tp")
    assert number[4] == number[5] != number[6]


def test_the_pipeline_is_a_schedule(walk: Journey) -> None:
    about, frame = schedule.actions(walk)
    # 1F1B: (p - 1) of (m + p - 1) slots idle: 1/5 for two stages and four micro-batches.
    assert about["bubble"] == pytest.approx(0.2)
    assert len(frame) == 2 * 4 * 2
    for (_,), mine in frame.group_by("stage"):
        spans = mine.sort("start").select("start", "end").rows()
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(spans))


def test_a_long_schedule_is_cut(walk: Journey) -> None:
    about, frame = schedule.actions(scale("405b"))
    assert about["shown"] <= about["micro_batches"]
    assert len(frame) <= 4 * schedule.MOST_ACTIONS


def test_a_call_of_the_step_has_its_members_and_its_link(walk: Journey) -> None:
    row = walk.step().with_row_index("row").filter((pl.col("op") == "send") & (pl.col("stage") == 0)).row(0, named=True)
    call = rounds.call_of_step(walk, row["row"], 1)
    assert (call.members, call.network, call.rate) == ((1, 5), True, 50e9)
    gather = walk.step().with_row_index("row").filter((pl.col("op") == "all_gather") & (pl.col("group") == "tp")).row(0, named=True)
    inside = rounds.call_of_step(walk, gather["row"])
    assert (inside.members, inside.network, inside.rate) == ((0, 1), False, 450e9)


def test_rounds_move_what_the_costs_say(walk: Journey) -> None:
    call = rounds.own_call(walk, "all_reduce", "4", "400 B")
    n, moved = rounds.rounds(call, "ring")
    # A ring of 4: 2·3 rounds, each rank sends 100 B in each.
    assert (n, moved["step"].n_unique(), moved["bytes"].sum()) == (4, 6, 4 * 6 * 100)
    assert rounds.costs(call).filter(pl.col("algorithm") == "ring")["sent_bytes"].to_list() == [600]
    pairs = rounds.pairs(call, "ring")
    assert pairs is not None
    assert pairs["bytes"].to_list() == [600] * 4


@pytest.mark.parametrize(("op", "n", "size"), [("all_reduce", "x", "1 B"), ("all_reduce", "0", "1 B"), ("send", "3", "1 B"), ("sum", "4", "1 B"), ("all_reduce", "4", "4")])
def test_a_call_that_cannot_be_is_one_line(walk: Journey, op: str, n: str, size: str) -> None:
    with pytest.raises(InputError):
        rounds.own_call(walk, op, n, size)


def test_the_load_of_a_link_is_that_of_its_kinds(walk: Journey) -> None:
    traffic = fabric.loaded(walk, ())
    link = int(fabric.links(traffic)["link"][0])
    about, by = fabric.link_facts(traffic, link)
    assert by["bytes"].sum() == about["bytes"] == int(traffic.link_bytes[link]) > 0
    with pytest.raises(InputError, match="links 0 to"):
        fabric.link_facts(traffic, 10**6)


def test_a_drawing_has_all_bytes_of_a_small_fabric(walk: Journey) -> None:
    traffic = fabric.loaded(walk, ())
    drawing = fabric.drawing(traffic, 0, None)
    assert drawing["whole"]
    assert sum(wire["bytes"] for wire in drawing["wires"]) == int(traffic.link_bytes.sum())
    assert len({(device["x"], device["y"]) for device in drawing["devices"]}) == len(drawing["devices"])


def test_failed_devices_carry_nothing(walk: Journey) -> None:
    traffic = fabric.loaded(walk, ("leaf1",))
    drawing = fabric.drawing(traffic, 0, None)
    assert [device["name"] for device in drawing["devices"] if device["failed"]] == ["leaf1"]
    assert sum(wire["bytes"] for wire in drawing["wires"] if "leaf1" in (wire["a"], wire["b"])) == 0


def test_a_large_fabric_is_drawn_around_a_rank() -> None:
    drawing = fabric.drawing(fabric.loaded(scale("405b"), ()), 9000, None)
    names = {device["name"] for device in drawing["devices"]}
    assert not drawing["whole"]
    assert len(names) <= fabric.AROUND
    assert {"gpu9000", "nic9000"} < names


def test_summed_time_is_the_time_of_the_events(walk: Journey) -> None:
    events = over_time.frame(timed(walk, whole=True))
    end = float(events["end"].max())
    whole = over_time.summed(events, 0.0, end)
    spent = (events["end"] - events["start"]).sum()
    assert (whole["share"] * (whole["end"] - whole["start"])).sum() == pytest.approx(spent, rel=1e-6)
    half = over_time.inside(events, end / 2, end)
    assert 0 < len(half) < len(events)


def test_the_nic_sends_what_the_traffic_says(walk: Journey) -> None:
    events = over_time.frame(timed(walk, whole=True))
    sent = over_time.nic(walk, events, 0, 0.0, float(events["end"].max()))
    transfers = walk.traffic().transfers.filter((pl.col("src") == 0) & (pl.col("dst") >= 4))
    assert sent["bytes"].sum() == pytest.approx(transfers["bytes"].sum(), rel=1e-6)


@pytest.mark.parametrize("zoom", ["1", "a-b", "2-1", "-1-2", "nan-inf", "0-1e99"])
def test_a_window_that_cannot_be_is_one_line(zoom: str) -> None:
    with pytest.raises(InputError):
        over_time.window(zoom, 1.0)


def test_what_differs_stands_first(walk: Journey) -> None:
    other = Journey.read(None, ["plan.tp=4", "plan.pp=1"])
    asked = beside.compared(walk, other, beside.configuration)
    assert set(asked.filter(pl.col("differs"))["what"]) == {"tp", "pp"}
    assert asked["differs"].to_list() == sorted(asked["differs"].to_list(), reverse=True)
    figures = {row["what"]: row for row in beside.compared(walk, other, beside.figures).to_dicts()}
    assert figures["tp"]["ratio"] == 2.0
    assert not figures["parameters"]["differs"]
    assert not beside.compared(walk, walk, beside.figures)["differs"].any()
