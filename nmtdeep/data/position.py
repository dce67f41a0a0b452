"""Positions in the data, from which a training is resumed exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import Field, NonNegativeInt

from nmtdeep.errors import UserError


class DataPosition(NamedTuple):
    """A position in one corpus.

    Attributes:
        epoch: epochs done.
        next_in_epoch: updates of the current epoch that are done.
        window: windows of the current epoch that are done.
        before_window: updates of the current epoch in those windows.
    """

    epoch: NonNegativeInt = 0
    next_in_epoch: NonNegativeInt = 0
    window: NonNegativeInt = 0
    before_window: NonNegativeInt = 0

    def epochs_of(self, corpus: str | None) -> int:
        """Epochs done; there is only one corpus."""
        return self.epoch

    def epochs_begun(self, corpus: str | None) -> int:
        """Epochs done, and one more inside an epoch."""
        return self.epoch + (self.next_in_epoch > 0)

    def in_new_epoch(self) -> DataPosition:
        """The start of the next epoch, if this is not the start of one."""
        return DataPosition(self.epoch + 1) if self.next_in_epoch else self

    def to_json(self) -> dict[str, int]:
        """For `state.json`."""
        return self._asdict()


class MixedPosition(NamedTuple):
    """A position in several corpora.

    Attributes:
        corpora: the position in each corpus by its name; `next_in_epoch` and `before_window` count
            groups instead of updates.
    """

    drawn: NonNegativeInt
    corpora: Annotated[dict[str, DataPosition], Field(min_length=1)]

    @property
    def epoch(self) -> int:
        """Epochs of the first corpus that are done."""
        return self.epochs_of(None)

    @property
    def next_in_epoch(self) -> int:
        """Groups of the current epoch of the first corpus that are done."""
        return next(iter(self.corpora.values())).next_in_epoch

    def epochs_of(self, corpus: str | None) -> int:
        """Epochs of a corpus that are done; None: of the first one."""
        return self.corpora[corpus or next(iter(self.corpora))].epoch

    def epochs_begun(self, corpus: str | None) -> int:
        """Epochs of a corpus that are done, and one more inside an epoch."""
        return self.corpora[corpus or next(iter(self.corpora))].epochs_begun(corpus)

    def in_new_epoch(self) -> MixedPosition:
        """The position at the start of an epoch of each corpus; what is left of others is lost."""
        corpora = {name: each.in_new_epoch() for name, each in self.corpora.items()}
        return self._replace(corpora=corpora)

    def to_json(self) -> dict[str, object]:
        """For `state.json`."""
        corpora = {name: each.to_json() for name, each in self.corpora.items()}
        return {"drawn": self.drawn, "corpora": corpora}


Position = DataPosition | MixedPosition


def by_corpus(position: Position, names: Sequence[str]) -> dict[str, DataPosition]:
    """The position in each corpus.

    Raises:
        UserError: if the position is in other corpora.
    """
    if isinstance(position, MixedPosition) and [*position.corpora] == [*names]:
        return position.corpora
    if isinstance(position, DataPosition) and (len(names) == 1 or position == DataPosition()):
        return dict.fromkeys(names, position)
    before = [*position.corpora] if isinstance(position, MixedPosition) else ["one corpus"]
    raise UserError(
        f"trained on {', '.join(before)} so far, which cannot be continued on {', '.join(names)}",
        where="--data",
        hint="pass the corpora that the run was started with, or choose another --out",
    )
