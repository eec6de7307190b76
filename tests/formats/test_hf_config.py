"""Reading config.json: right files, hostile files, and the verb that shows them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.formats.hf_config import model_of, parse, read_config
from tokenwire.formats.model_source import journey_overrides
from tokenwire.model import ModelConfig, presets

TINY = {"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
# layer: q and out 64·64 each, k and v 32·64 each, three of 64·96, two norms; embedding and head 100·64; last norm
TINY_PARAMETERS = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96 + 128) + 2 * 100 * 64 + 64


@pytest.fixture
def config(tmp_path):
    def written(content):
        path = tmp_path / "config.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return str(path)

    return written


def test_a_file_a_folder_and_a_byte_order_mark(config, tmp_path):
    path = config(TINY)
    assert model_of(ModelConfig(config=path)).parameters.total == TINY_PARAMETERS
    assert read_config(tmp_path).layers == read_config(path).layers
    assert read_config(config(b"\xef\xbb\xbf" + json.dumps(TINY).encode())).hidden_size == 64


def test_names(config, tmp_path):
    assert read_config(config({**TINY, "_name_or_path": "meta-llama/Tiny"})).name == "Tiny"
    assert read_config(config(TINY)).name == tmp_path.name
    assert model_of(ModelConfig(config=config(TINY), name="mine")).architecture.name == "mine"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[1]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"\xff\xfe{}", "is not UTF-8 .byte 0xff at offset 0"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}", "number that is too long"),
        (b'{"model_type": "llama", "hidden_size": NaN}', "hidden_size = nan"),
        (b'{"model_type": "llama", "hidden_size": Infinity}', "hidden_size = inf"),
        (b'{"model_type": "llama", "hidden_size": -1}', "hidden_size = -1"),
        (b'{"model_type": "llama", "hidden_size": "4096"}', "hidden_size = '4096'"),
        (b'{"model_type": "llama", "hidden_size": true}', "hidden_size = True"),
        (b'{"model_type": "llama", "num_hidden_layers": 1000000000}', "num_hidden_layers = 1000000000"),
        (
            b'{"model_type": "llama", "tie_word_embeddings": 1}',
            "tie_word_embeddings = 1: must be true or false",
        ),
        (b'{"model_type": 7}', "model_type = 7"),
        (b'{"model_type": "\\ud800"}', "unknown model_type"),
        (b"{}", "model_type is missing"),
        (b"x" * (2**22 + 1), "larger than the limit"),
    ],
)
def test_hostile_files_are_one_line(config, content, said):
    with pytest.raises(InputError, match=said) as error:
        read_config(config(content))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "none.json")
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_config("a\0b")


@given(st.binary(max_size=200))
def test_any_bytes_give_an_object_or_one_line(data):
    said = ""
    try:
        assert isinstance(parse(data, "config.json"), dict)
    except InputError as error:
        said = str(error)
    assert "\n" not in said


def test_what_a_model_is_called():
    assert journey_overrides(None) == (None, [])
    assert journey_overrides("-") == ("-", [])
    assert journey_overrides("some/where.toml") == ("some/where.toml", [])
    assert journey_overrides("some/where") == (None, ['model.config="some/where"'])
    assert journey_overrides("GPT2") == (None, ['model.preset="gpt2"'])
    with pytest.raises(InputError, match="nearest that works: gpt2"):
        journey_overrides("gpt-2")


# The verb ------------------------------------------------------------------------------------------------------------


def _model(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tokenwire", "model", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_json_has_its_fields(config):
    facts = json.loads(_model("llama-3.1-405b", "--json").stdout)
    assert facts["parameters"] == facts["active_parameters"] == 405_853_388_800
    assert (facts["embedding_parameters"], facts["layers"]) == (128_256 * 16_384, 126)
    mine = json.loads(_model(config(TINY), "--json", "--sequence-length", "128").stdout)
    assert mine["parameters"] == TINY_PARAMETERS
    assert mine["sequence_length"] == 128


def test_the_picture_fits_eighty_columns():
    for name in ("deepseek-v3", "nemotron-h-8b"):
        shown = _model(name)
        assert shown.returncode == 0
        assert max(len(line) for line in shown.stdout.splitlines()) <= 80
    assert "671,026,404,352" in _model("deepseek-v3").stdout


def test_tensors_as_a_table(tmp_path):
    import polars as pl

    lines = _model("gpt2", "--csv", "-").stdout.splitlines()
    assert lines[0] == "name,part,layer,shape,elements,split,split_dim"
    assert len(lines) == 1 + 2 + 12 * 12 + 2
    assert _model("gpt2", "--parquet", str(tmp_path / "t.parquet")).returncode == 0
    assert pl.read_parquet(tmp_path / "t.parquet")["elements"].sum() == 124_439_808
    assert "layers.11.attention.qkv.weight" in _model("gpt2", "--tensors").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gpt-9",), "unknown model preset"),
        (("/no/where/config.json",), "no such file"),
        (("gpt2", "--set", "model.preset=nothing"), "unknown model preset 'nothing'"),
        (("a\nb",), "unknown model preset"),
    ],
)
def test_wrong_models_are_one_line_and_status_1(arguments, said):
    done = _model(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_preset_is_shown():
    from tokenwire.report.rooms.model import facts, picture

    for name in presets():
        from tokenwire.model import Model, preset

        found = facts(Model.of(preset(name, 1000)), tensors=True)
        assert found["parameters"] > 0
        assert len(found["tensors"]) > 0
        assert list(picture({k: v for k, v in found.items() if k != "tensors"}))
