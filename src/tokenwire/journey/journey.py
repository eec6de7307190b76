"""A journey: a text, a tokenizer, a model, a plan and a cluster, and what each room says of them.

Each method is a room; its result is computed when first asked for and kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.figures import Figure
from tokenwire.journey.config import JourneyConfig, read_config

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.fabric import Fabric
    from tokenwire.flows import Traffic
    from tokenwire.journey.carried import Carried
    from tokenwire.journey.placement import Placement
    from tokenwire.model import Model
    from tokenwire.plan import Plan
    from tokenwire.step import Operation
    from tokenwire.text import Text
    from tokenwire.tokens import Encoding, Tokenizer, TokenStatistics


class Journey:
    """The pipeline from words to bits for one configuration.

    >>> journey = Journey.read(None, overrides=["plan.tp=4", "plan.pp=1"])
    >>> journey.plan().tp, journey.plan().dp
    (4, 2)
    """

    def __init__(self, config: JourneyConfig) -> None:
        self.config = config

    @classmethod
    def read(cls, path: str | Path | None = None, overrides: Iterable[str] = (), base: str = "dante") -> Journey:
        """Return the journey of a TOML file (``-``: standard input; None: the built-in one), with overrides.

        Raises ``InputError`` for anything that is wrong with the file, a key or a value.
        """
        return cls(read_config(path, overrides, base))

    # text, tokens -----------------------------------------------------------------------------------------------

    def text(self) -> Text:
        """Return the text that is trained on."""
        return self._text

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer: trained on the text, or read from its file."""
        return self._tokenizer

    def encoding(self) -> Encoding:
        """Return the tokens of the whole text with their byte spans."""
        return self._encoding

    def tokens(self) -> TokenStatistics:
        """Return what tokenization did: tokens, vocabulary, fertility, bytes a token."""
        return self._tokens

    # model, plan, step ------------------------------------------------------------------------------------------

    def model(self) -> Model:
        """Return the model: its architecture, tensors, parameters and FLOPs."""
        return self._model

    def plan(self) -> Plan:
        """Return the parallel plan, checked: sizes, rank grid, groups, stages."""
        return self._plan

    def calls(self) -> tuple[Operation, ...]:
        """Return what is said in one training step, an entry a kind of call by a rank of a stage."""
        return self._calls

    def step(self) -> pl.DataFrame:
        """Return the same as a table (columns: ``tokenwire.step``)."""
        return self._step

    # fabric, flows, wire, needs ---------------------------------------------------------------------------------

    def fabric(self) -> Fabric:
        """Return the cluster: devices, links, routes."""
        return self._fabric

    def traffic(self) -> Traffic:
        """Return who sends how much to whom in a step, and the load on every link."""
        return self._traffic

    def placement(self, token: int) -> Placement:
        """Return where token ``token`` of the text is worked on: step, replica, micro-batch, slot, position."""
        from tokenwire.journey.placement import placement

        return placement(self, token)

    def carried(self, token: int) -> Carried | None:
        """Return the first message that carries the vector of a token of the text to another GPU (None: nothing is sent)."""
        from tokenwire.journey.carried import carried

        return carried(self, token)

    def needs(self, *, exposed: float = 0.1, mfu: float | None = None) -> tuple[Figure, ...]:
        """Return what the network must offer, each figure with its derivation.

        ``exposed`` is the share of a step that may wait for the network, ``mfu`` the share of a GPU's peak that computing
        reaches (None: the room's own assumption).
        """
        from tokenwire.needs import requirements

        return requirements(
            self.step(), plan=self.plan(), architecture=self.model().architecture, traffic=self.traffic(),
            fabric=self.fabric(), wire=self.config.wire, exposed=exposed, mfu=mfu,
        )  # fmt: skip

    def notes(self) -> tuple[str, ...]:
        """Return what a careful reader should know: vocabularies that disagree, sequences longer than positions."""
        return tuple(_notes(self))

    @cached_property
    def _text(self) -> Text:
        from tokenwire.text import read_text

        return read_text(self.config.text)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenwire.tokens import build_tokenizer

        return build_tokenizer(self.config.tokenizer, self.text().content)

    @cached_property
    def _encoding(self) -> Encoding:
        return self.tokenizer().encode(self.text().content)

    @cached_property
    def _tokens(self) -> TokenStatistics:
        from tokenwire.tokens import statistics

        return statistics(self.text(), self.tokenizer(), self.encoding())

    @cached_property
    def _model(self) -> Model:
        from tokenwire.formats.hf_config import model_of

        needs_vocabulary = self.config.model.takes_vocabulary
        return model_of(self.config.model, self.tokenizer().vocabulary_size if needs_vocabulary else None)

    @cached_property
    def _plan(self) -> Plan:
        from tokenwire.plan import resolve

        return resolve(self.config.plan, self.config.training, self.model().architecture, self.config.cluster.world)

    @cached_property
    def _calls(self) -> tuple[Operation, ...]:
        from tokenwire.step import calls_of

        return calls_of(self.model().architecture, self.plan())

    @cached_property
    def _step(self) -> pl.DataFrame:
        from tokenwire.step.operation import frame

        return frame(self.calls())

    @cached_property
    def _fabric(self) -> Fabric:
        from tokenwire.fabric import build

        return build(self.config.cluster)

    @cached_property
    def _traffic(self) -> Traffic:
        from tokenwire.flows import traffic

        return traffic(self.step(), self.plan(), self.fabric())


def _notes(journey: Journey) -> Iterable[str]:
    architecture = journey.model().architecture
    tokenizer = journey.tokenizer()
    if tokenizer.vocabulary_size > architecture.vocabulary_size:
        yield (
            f"the tokenizer has {tokenizer.vocabulary_size:,} ids, the model only {architecture.vocabulary_size:,} "
            "rows in its embedding: such a model cannot be trained on these tokens"
        )
    elif tokenizer.vocabulary_size < architecture.vocabulary_size:
        yield (
            f"the tokenizer has {tokenizer.vocabulary_size:,} ids, the model {architecture.vocabulary_size:,} rows: "
            "the vocabularies differ, and the volumes below are those of the model's"
        )
    sequence, positions = journey.config.training.sequence_length, architecture.max_positions
    if architecture.positions == "learned" and positions and sequence > positions:
        yield f"the sequence of {sequence:,} tokens is longer than the model's {positions:,} learned positions"


def require_vocabulary(journey: Journey) -> None:
    """Raise where a token has an id for which the model has no row."""
    architecture = journey.model().architecture
    highest = int(journey.encoding().ids.max(initial=0))
    if highest >= architecture.vocabulary_size:
        raise InputError(
            f"token id {highest:,}", where="[tokenizer]",
            rule=f"the model's embedding has only {architecture.vocabulary_size:,} rows",
            nearest=f"vocab_size = {architecture.vocabulary_size}",
        )  # fmt: skip
