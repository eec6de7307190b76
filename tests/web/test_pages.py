"""Every page of many journeys, made without a browser: no failure inside, data for all that is shown, errors in one line."""

from __future__ import annotations

import csv
import io
import time
from typing import Any

import pytest
from dash._utils import to_json

from tokenwire.errors import InputError
from tokenwire.web import callbacks, making
from tokenwire.web.journeys import Journeys
from tokenwire.web.making import Pages
from tokenwire.web.rooms import ROOMS
from tokenwire.web.state import State, read
from tokenwire.web.work import MOST, Running, Work

JOURNEYS = {
    "walk": State(token=7, rank=3, op=5, link=20, packet=0, tensor="layers.0.attention.qkv.weight"),
    "one GPU": State(set=("cluster.gpus=1", "plan.tp=1", "plan.pp=1")),
    "ddp": State(set=("plan.dialect=ddp", "plan.tp=1", "plan.pp=1")),
    "torchtitan": State(set=("plan.dialect=torchtitan", "plan.tp=1", "plan.pp=2")),
    "deepspeed": State(set=("plan.dialect=deepspeed", "plan.tp=1", "plan.pp=1", "plan.stage=3")),
    "experts": State(set=("model.preset=mixtral-8x7b", "plan.ep=2"), rank=1),
    "virtual stages": State(set=("plan.vpp=2",)),
    "bytes and TCP": State(set=("tokenizer.kind=bytes", "wire.transport=tcp"), token=100),
}  # fmt: skip


@pytest.fixture(scope="module")
def pages() -> Pages:
    return Pages(Journeys())


@pytest.mark.parametrize("name", ROOMS)
@pytest.mark.parametrize("journey", JOURNEYS)
def test_every_page_of_every_journey(pages: Pages, journey: str, name: str) -> None:
    made = pages.page(name, JOURNEYS[journey], patience=120)
    assert making.INSIDE not in made.error
    assert made.error == ""
    text = to_json(made.parts).replace("\\u002f", "/").replace("\\u003c", "<")
    assert "NaN" not in text
    assert "Infinity" not in text
    assert made.tables or (journey, name) == ("one GPU", "packet"), "a page has data"
    for table in made.tables:
        assert f"/csv/{name}/{table}" in text
        assert len(list(csv.reader(io.StringIO(pages.csv(name, table, JOURNEYS[journey]))))) == len(made.tables[table]) + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ROOMS)
def test_every_page_of_16384_gpus_is_small_enough_to_send(pages: Pages, name: str) -> None:
    made = pages.page(name, State(scale="405b", rank=9000, token=7, op=3, link=70_000), patience=300)
    assert made.error == ""
    assert len(to_json(made.parts)) < 3_000_000


@pytest.mark.parametrize(
    ("page", "query", "said"),
    [
        ("plan", "?rank=8", "ranks 0 to 7"), ("step", "?op=999", "rows 0 to"), ("fabric", "?link=99999", "links 0 to"), ("packet", "?packet=99", "packets 0 to 31"),
        ("tokens", "?token=5000", "tokens 0 to 1,742"), ("tokens", "?find=zzzz", "is in no token"), ("words", "?verse=Inferno+V", "nearest that works"),
        ("model", "?tensor=layers.0.nothing", "nearest that works"), ("fabric", "?fail=leaf99", "leaf0 to leaf3"), ("flows", "?only=ep", "--only ep"),
        ("needs", "?exposed=2", "from 0.1 % to 99.9 %"), ("needs", "?mfu=x", "below 1"), ("collective", "?call=sum", "unknown collective"), ("timeline", "?zoom=b", "two times"),
        ("collective", "?call=all_reduce&ranks=99999999999", "whole number"), ("collective", "?call=all_reduce&ranks=8&bytes=12", "needs a unit"),
        ("compare", "?other=nothing", "unknown journey"), ("compare", "?with_set=plan.tp%3D3", "tp"), ("plan", "?set=plan.tp%3D3", "tp = 3"),
        ("plan", "?set=model.layers%3D999999999", "layers"), ("fabric", "?set=cluster.nodes%3D99999999", "at most"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(pages: Pages, page: str, query: str, said: str) -> None:
    made = pages.page(page, read(query), patience=60)
    assert said in made.error
    assert "\n" not in made.error
    shown = to_json(callbacks.answer(pages, f"/{page}", query, 60))
    assert "Traceback" not in shown


HOSTILE = ["<script>alert(1)</script>", "../../etc/passwd", "'; DROP TABLE", "\x00\x1b[31m", "𝕏" * 100, "=cmd|' /C calc'!A0", "%s%n{0}", "[" * 500, "1e309", "-0"]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("key", ["text", "find", "verse", "tensor", "group", "only", "fail", "call", "algorithm", "bytes", "ranks", "zoom", "exposed", "beside", "with_set", "other",
                                 "scale", "set:plan.tp", "set:tokenizer.kind", "set:cluster.preset", "override", "token"])  # fmt: skip
def test_any_text_in_any_field_is_taken_or_refused(pages: Pages, key: str, value: str) -> None:
    page = {"text": "tokens", "find": "tokens", "verse": "words", "tensor": "model", "group": "plan", "only": "flows", "fail": "fabric", "zoom": "timeline", "exposed": "needs",
            "beside": "tokens", "with_set": "compare", "other": "compare"}.get(key, "collective")  # fmt: skip
    query, error = callbacks.changed(pages, f"/{page}", "?token=1", key, value)
    assert making.INSIDE not in error
    assert (query is None) or read(query) is not None


def test_a_field_that_says_what_holds_changes_nothing(pages: Pages) -> None:
    assert callbacks.changed(pages, "/plan", "?rank=3", "rank", "3") == (None, "")
    assert callbacks.changed(pages, "/plan", "?rank=3", "rank", "") == ("", "")
    query, error = callbacks.changed(pages, "/plan", "?rank=3", "scale", "405b")
    assert (query, error) == ("?scale=405b", "")


def test_work_is_shared_waited_for_and_stopped() -> None:
    work, ran = Work(), []

    def long() -> str:
        ran.append(1)
        for _ in range(2000):
            time.sleep(0.005)
        return "done"

    assert isinstance(work.result("a", long, 0.05), Running)
    assert isinstance(work.result("a", long, 0.05), Running)
    assert len(ran) == 1  # the second visitor waits for the first one's
    thread = work._pieces["a"].thread
    work.stop("a")
    thread.join(2)
    assert not thread.is_alive()
    assert work.result("b", lambda: 3, 5) == 3
    with pytest.raises(InputError, match="no"):
        work.result("c", _raise, 5)


def _raise() -> Any:
    raise InputError("no")


def test_work_is_bounded() -> None:
    work = Work()
    for key in range(MOST):
        work.result(key, lambda: time.sleep(0.6), 0.01)
    with pytest.raises(InputError, match="busy"):
        work.result("one more", lambda: 1, 0.01)
    for key in range(MOST):
        work.stop(key)
    assert work.result("now", lambda: 1, 5) == 1


def test_a_failure_inside_is_not_told_to_the_browser(pages: Pages, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(name: str) -> Any:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(making, "page_of", broken)
    made = pages.page("words", State(verse="Inferno I 7-9"), patience=5)
    assert made.error == making.INSIDE
    assert "a secret of the inside" in capsys.readouterr().err
