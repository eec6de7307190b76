"""The address is the state: it comes back as it went, and says in one line what is wrong with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.web.state import State, read

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30)


@given(
    st.builds(
        State, scale=WORDS, token=st.none() | st.integers(0, 10**11), text=WORDS, tensor=WORDS, rank=st.none() | st.integers(0, 10**6),
        set=st.lists(WORDS.filter(bool), max_size=4, unique=True).map(tuple), fail=st.lists(WORDS.filter(bool), max_size=3, unique=True).map(tuple),
    )
)  # fmt: skip
def test_an_address_says_the_state_again(state: State) -> None:
    assert read(state.query) == state


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?token=-1", "token '-1': must be a whole number"), ("?token=1e3", "must be a whole number"), ("?rank=" + "9" * 13, "whole number"),
        ("?tokn=7", "nearest that works: token"), ("?text=" + "a" * 2001, "2,001 characters"), ("?" + "a" * 8001, "8,002 characters"),
        ("?" + "&".join(f"set=a{i}=1" for i in range(33)), "33 times"), ("?" + "&".join("a=1" for _ in range(200)), "more than"),
    ],
)  # fmt: skip
def test_a_wrong_address_is_one_line(query: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as wrong:
        read(query)
    assert "\n" not in str(wrong.value)


def test_an_override_stays_in_its_place_and_goes_when_empty() -> None:
    state = State(set=("plan.dialect=ddp", "plan.tp=2"))
    assert state.changed("set:plan.dialect", "megatron").set == ("plan.dialect=megatron", "plan.tp=2")
    assert state.changed("set:plan.dialect", "").set == ("plan.tp=2",)
    assert state.changed("set:cluster.nodes", "4").set[-1] == "cluster.nodes=4"
