"""A text pipeline that exists already, used for another corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from nmtdeep import files
from nmtdeep.config.load import from_mapping
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import differences
from nmtdeep.config.text import OF_WORDS
from nmtdeep.data.index import COPY, INDEX_FILE, TEXT_DIRECTORY, read_index
from nmtdeep.preprocessing.summary import PreprocessingReport, SplitReport, report_of
from nmtdeep.tables import table
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import SentencePiece
from nmtdeep.units import percent


@dataclass(frozen=True)
class ReusedText:
    """The text pipeline of a run, checkpoint or data directory, or a SentencePiece model.

    Attributes:
        report: of the corpus that it was learned on; None: unknown, as a run has none.
    """

    path: Path
    pipeline: TextPipeline | SentencePiece
    report: PreprocessingReport | None = None

    @classmethod
    def of(cls, path: Path) -> ReusedText:
        """Read and verify it.

        Raises:
            UserError: if there is none, or it is damaged.
        """
        if path.is_file() or (path.suffix == ".model" and not path.exists()):
            return cls(path, SentencePiece.load(path))
        if (path / INDEX_FILE).is_file():
            index = read_index(path)
            files.verify(path, f"{TEXT_DIRECTORY}/", hint=COPY)
            return cls(path, TextPipeline.load(path / TEXT_DIRECTORY), report_of(path, index))
        from nmtdeep import checkpoint  # imports torch

        source = checkpoint.locate(path)
        files.verify(source, f"{checkpoint.TEXT}/", hint=checkpoint.HINT)
        return cls(path, TextPipeline.load(source / checkpoint.TEXT))

    def adopt(self, recipe: Recipe) -> tuple[Recipe, list[str]]:
        """The recipe with the settings of this pipeline, and the settings that changed.

        Those of a SentencePiece model are its kind, its size and whether it spells bytes.

        Raises:
            ConfigError: if the rest of the recipe does not go with this text.
        """
        values = recipe.model_dump(mode="json")
        if isinstance(self.pipeline, SentencePiece):
            own = values["text"]["tokenizer"]
            tokenizer = (own if own["type"] == "sentencepiece" else {}) | self.pipeline.settings
            text = recipe.text.model_dump(mode="json") | {"tokenizer": tokenizer}
            for (*section, key), neutral in OF_WORDS.items():
                (text[section[0]] if section else text)[key] = neutral
        else:
            text = self.pipeline.config.model_dump(mode="json")
        adopted = from_mapping(values | {"text": text}, f"text of {self.path}")
        return adopted, differences(values["text"], adopted.text.model_dump(mode="json"), "text")

    def compared(self, new: PreprocessingReport) -> Table:
        """Unknown subwords, and subwords for each word, of a new corpus and of the old one."""
        rows, note = [(name, *_cells(split)) for name, split in new.splits.items()], ""
        if self.report is not None:
            old = {name: self.report.splits[name] for name in self.report.training}
            rows += [(f"{name} of {self.path}", *_cells(split)) for name, split in old.items()]
        elif isinstance(self.pipeline, TextPipeline):
            note = f"{self.path} has no report of its corpus; pass the data directory to compare"
        columns = [f"{side} {what}" for side in new.languages for what in ("unknown", "per word")]
        title = f"Text pipeline of {self.path}: unknown subwords, subwords per word"
        return table(("split", *columns), rows, title=title, note=note)


def _cells(split: SplitReport) -> Iterator[str | None]:
    """Share of unknown subwords and subwords per word of source and target, in the pairs kept."""
    sides = zip(split.tokens, split.kept_words, split.unknown_rates, strict=True)
    for tokens, words, unknown in sides:
        yield percent(unknown, 3)
        # A data directory of an earlier version has no number of words.
        yield f"{tokens / words:.2f}" if words else None
