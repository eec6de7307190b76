"""The walk: every scene on every kind of plan, readable at 80 columns, the same facts as JSON, and a packet that is real."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest

from tests.house.running import run
from tokenwire.journey import Journey
from tokenwire.report.scenes import SCENES, Walk, facts
from tokenwire.report.scenes.packet import packet_of
from tokenwire.wire.capture.writing import records, write_capture

PLANS = {
    "as built in": [],
    "tensor alone": ["plan.pp=1", "plan.tp=8"],
    "data alone": ["plan.pp=1", "plan.tp=1"],
    "one GPU": ["plan.pp=1", "plan.tp=1", "cluster.nodes=1", "cluster.gpus_per_node=1"],
    "FSDP": ["plan.dialect=torchtitan", "plan.tp=1", "plan.pp=1"],
    "bytes over TCP": ["tokenizer.kind=bytes", "wire.transport=tcp", "wire.mtu=1500"],
    "Llama": ["model.preset=llama-3.1-8b", "training.sequence_length=1024"],
    "experts": ["model.preset=mixtral-8x7b", "plan.ep=2"],
}


@pytest.fixture(scope="module")
def told():
    return facts(Walk(Journey.read(), token=7), list(SCENES))["scenes"]


def test_the_scenes_are_in_order_and_fit_80_columns():
    shown = run(["walk", "--token", "7"])
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.decode().splitlines()
    assert max(map(len, lines)) <= 80
    titles = [line.split("─")[0].strip() for line in lines if line.endswith("──")]
    assert [title for title in titles if title[:1].isdigit()] == [
        f"{number}. {title}" for number, title in enumerate(SCENES.values(), start=1)
    ]
    assert "\x1b" not in shown.stdout.decode()


@pytest.mark.parametrize("overrides", PLANS.values(), ids=PLANS)
def test_every_scene_on_every_kind_of_plan(overrides):
    sets = [part for override in overrides for part in ("--set", override)]
    shown, told = run(["walk", *sets]), run(["walk", "--json", *sets])
    assert (shown.returncode, told.returncode) == (0, 0), shown.stderr + told.stderr
    assert max(map(len, shown.stdout.decode().splitlines())) <= 80
    assert list(json.loads(told.stdout)["scenes"]) == list(SCENES)


def test_tokens_are_those_of_the_verse(told):
    tokens = told["tokens"]["tokens"]
    assert "".join(token["text"] for token in tokens).replace("␣", " ").replace("↵", "\n") == (
        "Nel mezzo del cammin di nostra vita\nmi ritrovai per una selva oscura,\nché la diritta via era smarrita."
    )
    assert [token["token"] for token in tokens if token["followed"]] == [7]


def test_one_token_is_followed_through_all_scenes(told):
    token = told["tokens"]["tokens"][7]
    vector, packet = told["vector"], told["packet"]
    assert vector["id"] == token["id"]
    assert packet["token"] == token["text"]
    row = vector["journeys"][0]
    # 1,000 ids padded to 1,008 rows over two tensor ranks: 504 each.
    assert (row["tensor_rank"], row["local_row"]) == divmod(token["id"], 504)
    message = packet["message"]
    # Position 7, two sequences a micro-batch, 256 numbers of 2 bytes: (7·2 + 0)·512.
    assert message["offset"] == 7 * 2 * 512
    assert packet["packet"]["index"] == message["offset"] // 4096
    assert packet["packet"]["in_payload"] == message["offset"] % 4096
    data = bytes.fromhex(packet["packet"]["data"])
    at = packet["packet"]["in_frame"]
    assert data[at : at + 2].hex(" ") == packet["numbers"][0]["wire"]
    assert f"{int.from_bytes(data[at : at + 2], 'little'):016b}" == packet["numbers"][0]["bits"]


def test_bytes_are_conserved(told):
    traffic, links = told["traffic"]["journeys"][0], told["links"]["journeys"][0]
    assert traffic["totals"]["sent_bytes"] == traffic["totals"]["received_bytes"] == sum(map(sum, traffic["matrix"]))
    assert sum(size["nvlink"] + size["network"] for size in traffic["by"].values()) == traffic["totals"]["sent_bytes"]
    assert sum(tier["bytes"] for tier in links["tiers"]) == links["link_bytes"]


def test_packets_of_the_message_are_its_bytes():
    from tokenwire.wire import packets

    journey = Journey.read()
    message = journey.carried(7)
    whole = message.around(0, message.message_bytes)
    assert len(whole) == message.message_bytes
    made = list(packets(whole, journey.config.wire))
    assert b"".join(packet.payload for packet in made) == whole
    assert packet_of(journey, message).payload == made[message.offset // 4096].payload


def test_scales_stand_side_by_side():
    walk = Walk(Journey.read(), (("gpt2", Journey.read(None, base="gpt2")),))
    told = facts(walk, ["model", "vector"])
    assert [one["parameters"] for one in told["scenes"]["model"]["journeys"]][1] == 124_439_808
    first, second = (one["numbers"] for one in told["scenes"]["vector"]["journeys"])
    assert not np.array_equal(first, second)
    assert any("gpt2: the tokenizer has 1,000 ids, the model 50,257 rows" in note for note in told["notes"])


def test_the_end_of_the_whole_work(shared):
    text = str(shared / "commedia" / "commedia.it.txt") if (shared / "commedia").exists() else str(shared / "data/commedia/commedia.it.txt")
    told = run(["walk", "--text", text, "--verse", "Paradiso XXXIII 142-145", "--token", "3", "--json"])
    assert told.returncode == 0, told.stderr
    scenes = json.loads(told.stdout)["scenes"]
    assert scenes["verse"]["verses"][-1]["text"] == "l’amor che move il sole e l’altre stelle."
    assert scenes["tokens"]["tokens"][3]["followed"]
    assert scenes["plan"]["placement"]["step"] > 10


def test_the_capture_has_the_packet_of_the_scene(tmp_path):
    shown = run(["walk", "--token", "7", "--pcap", "token.pcap", "--scene", "packet", "--json"], folder=tmp_path)
    assert shown.returncode == 0, shown.stderr
    frame = bytes.fromhex(json.loads(shown.stdout)["scenes"]["packet"]["packet"]["data"])
    # Captures leave out the frame check sequence.
    assert frame[:-4] in (tmp_path / "token.pcap").read_bytes()


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
def test_tshark_reads_the_packet_as_rocev2_without_complaint(tmp_path):
    journey = Journey.read()
    message = journey.carried(journey.placement(7).token)
    packet = packet_of(journey, message)
    write_capture(tmp_path / "walk.pcap", records([(0, packet)]))
    out = subprocess.run(
        ["tshark", "-r", str(tmp_path / "walk.pcap"), "-V", "-o", "ip.check_checksum:TRUE"], capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    assert "InfiniBand" in out
    assert "RC RDMA WRITE Middle" in out or "RDMA WRITE Middle" in out
    assert "Malformed" not in out
    assert "Expert Info" not in out
    assert "[Header checksum status: Good]" in out


def test_a_text_cannot_steer_the_terminal(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"uno \x1b[31mdue\x1b[0m \x1b]0;tre\x07\n")
    for verb in (["walk", "--text", "t.txt", "--scene", "verse,words,tokens"], ["tokens", "--text", "t.txt"], ["text", "t.txt"]):
        told = run(verb, folder=tmp_path)
        assert told.returncode == 0, told.stderr
        assert not set(told.stdout) & ({*range(0x20)} - {0x0A})
        assert "␛" in told.stdout.decode()


def test_a_verse_without_end_is_shown_in_part(tmp_path):
    (tmp_path / "t.txt").write_text("parola " * 20_000)
    told = run(["walk", "--text", "t.txt", "--scene", "verse,words,tokens"], folder=tmp_path)
    assert told.returncode == 0, told.stderr
    assert len(told.stdout) < 10_000


def test_settings_hold_for_the_scales_too():
    # GPT-2 at its own scale has 8 replicas: what is set holds for it as for the walk, and is never passed over.
    shown = run(["walk", "--scene", "plan", "--scale", "gpt2", "--set", "plan.tp=4", "--set", "plan.pp=1", "--json"])
    assert shown.returncode == 0, shown.stderr
    plans = json.loads(shown.stdout)["scenes"]["plan"]["journeys"]
    assert [(one["tp"], one["pp"]) for one in plans] == [(4, 1), (4, 1)]
