"""The journey file: an empty one is the built-in walk, overrides are laid over, paths are relative to the file."""

from __future__ import annotations

import pytest

from tokenwire.errors import InputError
from tokenwire.journey import SCALES, Journey, read_config, scale
from tokenwire.journey.placement import placement_of


def test_an_empty_file_is_the_built_in_walk(tmp_path):
    (tmp_path / "empty.toml").write_text("")
    assert read_config(tmp_path / "empty.toml") == read_config(None)


def test_the_built_in_walk_is_consistent():
    journey = Journey.read()
    assert journey.model().architecture.vocabulary_size == journey.tokenizer().vocabulary_size == 1000
    assert (journey.plan().tp, journey.plan().pp, journey.plan().dp, journey.fabric().world) == (2, 2, 2, 8)
    # A few million parameters.
    assert 2_000_000 < journey.model().parameters.total < 10_000_000
    assert journey.notes() == ()


def test_a_section_that_is_there_has_its_own_defaults(tmp_path):
    (tmp_path / "j.toml").write_text('[plan]\ndialect = "megatron"\ntp = 4\n')
    plan = read_config(tmp_path / "j.toml").plan
    # The built-in walk has pp = 2; a file's section begins at the framework's defaults.
    assert (plan.tp, plan.pp) == (4, 1)
    assert read_config(tmp_path / "j.toml", ["plan.pp=2"]).plan.pp == 2


def test_paths_are_relative_to_the_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "verses.txt").write_text("Nel mezzo", "utf-8")
    (tmp_path / "in" / "j.toml").write_text('[text]\nsource = "verses.txt"\n')
    assert Journey.read(tmp_path / "in" / "j.toml").text().content == "Nel mezzo"


def test_another_dialect_begins_at_its_own_defaults():
    config = read_config(None, ["plan.dialect=torchtitan", "plan.tp=1", "plan.pp=1"])
    assert config.plan.dialect == "torchtitan"
    assert config.plan.tp == 1


def test_vocabularies_that_disagree_are_pointed_out():
    assert any("vocabularies differ" in note for note in Journey.read(None, ["model.preset=gpt2"]).notes())
    larger = Journey.read(None, ["model.preset=gpt2", "tokenizer.kind=bpe", "tokenizer.vocab_size=1000"])
    assert larger.tokenizer().vocabulary_size < larger.model().architecture.vocabulary_size


@pytest.mark.parametrize("name", [*SCALES, "8b", "llama-3.1-405b"])
def test_every_scale_has_a_plan_that_works(name):
    journey = scale(name)
    assert journey.plan().world == journey.fabric().world
    assert journey.step().height > 0


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        # s = 4, B = 8, b = 2, D = 2: a micro-step takes 4 sequences, replica 0 the first two of them.
        (0, (0, 0, 0, 0, 0, 0)),
        (7, (1, 3, 0, 0, 0, 1)),
        (8, (2, 0, 0, 0, 1, 0)),
        (16, (4, 0, 0, 1, 0, 0)),
        (32, (8, 0, 1, 0, 0, 0)),
    ],
)
def test_placement_worked_by_hand(token, expected):
    place = placement_of(token, s=4, B=8, b=2, D=2)
    found = (place.sequence, place.position, place.step, place.micro_batch, place.replica, place.slot)
    assert found == expected


def test_placement_is_that_of_the_batches():
    from tokenwire.tokens import batches

    dealt = batches(64, global_batch=16, micro_batch=2, replicas=4)
    for sequence in range(64):
        place = placement_of(sequence * 8 + 3, s=8, B=16, b=2, D=4)
        assert dealt[place.step, place.micro_batch, place.replica, place.slot] == sequence


@pytest.mark.parametrize("override", ["plan", "plan.tp", "=3", "plam.tp=2", "plan.=2"])
def test_overrides_that_are_none(override):
    with pytest.raises(InputError, match="--set"):
        read_config(None, [override])


def test_an_unknown_key_lists_only_some():
    with pytest.raises(InputError, match="more; nearest that works: tp") as caught:
        read_config(None, ["plan.tpp=2"])
    assert len(str(caught.value)) < 500


def test_a_byte_order_mark_is_not_part_of_the_file(tmp_path):
    (tmp_path / "j.toml").write_bytes(b"\xef\xbb\xbf[plan]\r\ntp = 4\r\n")
    assert read_config(tmp_path / "j.toml").plan.tp == 4


def test_fields_of_a_model_take_the_place_of_the_built_in_one(tmp_path):
    journey = Journey.read(None, ["model.hidden_size=128", "model.layers=4"])
    assert (journey.model().architecture.hidden_size, len(journey.model().architecture.layers)) == (128, 4)
    with pytest.raises(InputError, match="needs hidden_size"):
        read_config(None, ["model.layers=4"])
    # A preset that the user named is not dropped in silence.
    (tmp_path / "j.toml").write_text('[model]\npreset = "gpt2"\n')
    for path, overrides in ((tmp_path / "j.toml", []), (None, ["model.preset=gpt2"])):
        with pytest.raises(InputError, match="cannot stand beside preset"):
            read_config(path, [*overrides, "model.layers=4"])


@pytest.mark.parametrize("key", ["plan.tp", "training.global_batch", "tokenizer.vocab_size", "cluster.nodes"])
def test_true_is_no_number(key):
    with pytest.raises(InputError, match=f"{key.split('.')[1]} = True: must be a number, not true or false"):
        read_config(None, [f"{key}=true"])
