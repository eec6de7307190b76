"""No address reads a file of the machine, opens what is too large, or changes what another address shows."""

import pytest

from tokenwire.errors import InputError
from tokenwire.web.journeys import KEPT, Journeys, Kept
from tokenwire.web.state import State


@pytest.fixture(scope="module")
def journeys() -> Journeys:
    return Journeys()


@pytest.mark.parametrize(
    "override",
    ["text.source=/etc/passwd", 'text.source="/etc/hostname"', " text.source = /etc/passwd", "text.encoding=cp037", "tokenizer.file=/etc/passwd",
     "model.config=/etc/passwd", "cluster.file=/etc/passwd", "tokenizer.pattern=(a+)+$", "text.source=-"],
)  # fmt: skip
def test_no_override_names_a_file(journeys: Journeys, override: str) -> None:
    with pytest.raises(InputError, match="is given when the explorer starts"):
        journeys.of(State(set=(override,)))


def test_the_file_of_the_start_stays_readable(tmp_path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("una selva oscura\n")
    journeys = Journeys(None, [f'text.source="{own}"'])
    assert journeys.of(State(set=("plan.tp=4",))).text().content.strip() == "una selva oscura"


def test_too_many_gpus_are_refused(journeys: Journeys) -> None:
    with pytest.raises(InputError, match="at most 131,072"):
        journeys.of(State(set=("cluster.nodes=100000",)))


def test_addresses_share_a_journey_and_overrides_part_them(journeys: Journeys) -> None:
    assert journeys.of(State(token=1)) is journeys.of(State(token=2))
    assert journeys.of(State()).plan().tp == 2
    assert journeys.of(State(set=("plan.tp=4", "plan.pp=1"))).plan().tp == 4
    assert journeys.of(State()).plan().tp == 2


def test_what_is_kept_is_bounded() -> None:
    kept: Kept[int] = Kept(KEPT)
    for number in range(3 * KEPT):
        kept.put(number, number)
        kept.get(2 * KEPT)  # asked for again and again, so not forgotten
    assert [kept.get(number) is not None for number in (0, 2 * KEPT, 3 * KEPT - 1)] == [False, True, True]


def test_standard_input_cannot_be_read_twice() -> None:
    with pytest.raises(InputError, match="needs a file"):
        Journeys("-")
