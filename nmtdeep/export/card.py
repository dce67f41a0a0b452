"""The card of a model: README.md with the header that model hubs read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmtdeep import __version__
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import dump, to_yaml
from nmtdeep.decoding.settings import settings_of
from nmtdeep.export.instructions import forms, listed, steps
from nmtdeep.scoring.rendering import heading_of, label_of, signed_by
from nmtdeep.training.finish import StoredScores, stored_scores

CARD = """\
---
{header}# license: choose one, and say so here
---

# {title}

{description}

{facts}
{paper}
## Scores

{scores}

## How to use it

{use}

## How it was trained

By `nmtdeep train` {version} with this recipe (`nmtdeep recipes show` explains each value):

```yaml
{recipe}```
"""

MARIAN = """\
The weights are those of a MarianMT of Hugging Face's transformers. Its tokenizer takes **text that
is split into subwords already**: transformers has none that splits as this model learned it.
`text/` holds what splits text, which nmtdeep reads:

```python
from pathlib import Path

from nmtdeep.text.pipeline import TextPipeline
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

FOLDER = Path(".")
pipeline = TextPipeline.load(FOLDER / "text")
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER)


def translate(lines):
    split = [" ".join(pipeline.split_source(line{form})) for line in lines]
    batch = tokenizer(split, return_tensors="pt", padding=True)
    longest = batch.input_ids.shape[1]
    found = model.generate(**batch, max_new_tokens=int(longest * {factor}) + {constant})
    words = pipeline.target.vocabulary.words
    return [pipeline.join_target(words(ids[1:].tolist()){output_form}) for ids in found]
```

Without nmtdeep, what makes subwords of a line:

{steps}

The way back: join what ends in `@@` to what follows, then sacremoses'
`MosesDetokenizer(lang="{target}").detokenize(words, unescape=False)`.

Take care:

* The table of positions is part of the weights, because MarianMT's own has other wavelengths.
  `save_pretrained` leaves it out: what it saves is another model. Copy the files instead.
* The tokenizer reads a literal `</s>`, `<pad>` or `<unk>` in a text as the symbol itself; give
  `<unk>` in its place.
* One call has one limit on the length of a translation: give it lines of like length.
* Blank lines are not for the model: nmtdeep gives a blank line for them.{separate}{gnmt}
"""
SEPARATE = """
* The target has a vocabulary of its own; its tokenizer is in `target/`."""
GNMT = """
* The recipe asks for the length penalty ((5 + len) / 6)^A, which `generate` does not have: len^A
  stands in its place."""

CARD_ALONE = """\
The weights are not here, because transformers has no class for this model:

{reasons}

nmtdeep runs it. Put the checkpoint's directory beside this card, then:

```sh
nmtdeep translate -m {checkpoint} -i input.{source} -o output.{target}
```
"""


def model_card(loaded: Loaded, *, reasons: Sequence[str]) -> str:
    """The card of a model.

    Args:
        reasons: why it is no MarianMT; empty where it is one.
    """
    recipe, text = loaded.recipe, loaded.recipe.text
    scores = stored_scores(loaded.path.parent, loaded.path)
    header = _header(loaded, scores, library="nmtdeep" if reasons else "transformers")
    return CARD.format(
        header=to_yaml(header),
        title=_title(loaded),
        description=recipe.description or f"Translates {text.source} to {text.target}.",
        facts=_facts(loaded),
        paper=_paper(recipe),
        scores=_scores(scores),
        use=(_alone(loaded, reasons) if reasons else _marian(loaded)).rstrip(),
        version=__version__,
        recipe=dump(recipe),
    )


def _title(loaded: Loaded) -> str:
    text = loaded.recipe.text
    return f"{loaded.path.parent.name}: {text.source} to {text.target}"


def _header(loaded: Loaded, scores: StoredScores | None, *, library: str) -> dict[str, Any]:
    """What a hub shows and sorts by; the license is the user's to give."""
    text = loaded.recipe.text
    header: dict[str, Any] = {
        "language": [text.source, text.target],
        "library_name": library,
        "pipeline_tag": "translation",
        "tags": ["translation", "nmtdeep"],
    }
    if scores is None:
        return header
    results = [
        {
            "task": {"type": "translation"},
            "dataset": {
                "name": f"{split} set of the run",
                "type": f"{text.source}-{text.target}-{split}",
            },
            "metrics": [
                {
                    "type": one.metric,
                    "value": round(one.value, 2),
                    "name": f"{label_of(one.metric)} ({one.signature})",
                }
                for one in found
            ],
        }
        for split, found in scores.scores.items()
    ]
    names = dict.fromkeys(one.metric for found in scores.scores.values() for one in found)
    return {
        **header,
        "metrics": list(names),
        "model-index": [{"name": _title(loaded), "results": results}],
    }


def _facts(loaded: Loaded) -> str:
    model = loaded.recipe.model
    count = sum(parameter.numel() for parameter in loaded.model.parameters())
    facts = {
        "parameters": f"{count:,}",
        "layers": f"{model.encoder.depth} + {model.decoder.depth}",
        "width": f"{model.width}, {model.encoder.feed_forward} in feed-forward maps",
        "norms": f"{model.encoder.residual.type}, {model.decoder.residual.type}",
        "combination": f"{model.encoder.combination.type}, {model.decoder.combination.type}",
        "vocabulary": f"{len(loaded.pipeline.source.vocabulary):,} source types, "
        f"{len(loaded.pipeline.target.vocabulary):,} target types",
        "checkpoint": f"`{loaded.path.name}`",
    }
    rows = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    return f"| encoder, decoder | |\n|---|---|\n{rows}"


def _paper(recipe: Recipe) -> str:
    reference = recipe.reference
    if not reference.paper:
        return ""
    place = ", ".join(part for part in (reference.table, reference.row) if part)
    published = ", ".join(f"{name} {value:g}" for name, value in reference.scores.items())
    parts = [f"The recipe is that of {reference.paper}" + (f": {place}." if place else ".")]
    if published:
        parts.append(f"The paper's scores are {published}; those of this model are below.")
    if reference.note:
        parts.append(reference.note)
    return "\n## The paper\n\n" + " ".join(parts) + "\n"


def _scores(scores: StoredScores | None) -> str:
    if scores is None:
        return "None were stored with this checkpoint: `nmtdeep score` measures them."
    found = {(split, one.metric): one for split, some in scores.scores.items() for one in some}
    metrics = list(dict.fromkeys(metric for _, metric in found))
    lines = [["set", *map(heading_of, metrics)], ["---", *["---:"] * len(metrics)]]
    for split in scores.scores:
        cells = (found.get((split, metric)) for metric in metrics)
        lines.append([split, *(f"{one.value:.2f}" if one else "-" for one in cells)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    below = "\n".join(f"* {name}: `{signature}`" for name, signature in signed_by(found))
    return f"{table}\n\n{below}"


def _marian(loaded: Loaded) -> str:
    settings, text = settings_of(loaded), loaded.recipe.text
    return MARIAN.format(
        **forms(loaded),
        factor=settings.max_length_factor,
        constant=settings.max_length_constant,
        steps=listed(steps(text)),
        target=text.target,
        separate=SEPARATE if text.vocabulary.sharing == "separate" else "",
        gnmt=GNMT if settings.lenpen_form == "gnmt" else "",
    )


def _alone(loaded: Loaded, reasons: Sequence[str]) -> str:
    text = loaded.recipe.text
    return CARD_ALONE.format(
        reasons="\n".join(f"* `{reason}`" for reason in reasons),
        checkpoint=loaded.path.name,
        source=text.source,
        target=text.target,
    )
