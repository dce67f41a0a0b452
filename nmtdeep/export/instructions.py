"""How to use an exported model: the README.md beside it."""

from __future__ import annotations

from collections.abc import Sequence

from nmtdeep import __version__
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.text import Text
from nmtdeep.decoding.settings import settings_of
from nmtdeep.export.comparison import options

CTRANSLATE2 = """\
# {source} to {target}, for CTranslate2

Exported by nmtdeep {version} from `{checkpoint}`, weights as {numbers}. The model reads and writes
subwords; `text/` holds what makes them of raw text and back.

## Raw text in, raw text out

Run this in this folder, with `pip install ctranslate2` and nmtdeep, of which it needs the text
pipeline only:

```python
from pathlib import Path

import ctranslate2
from nmtdeep.text.pipeline import TextPipeline

FOLDER = Path(".")
pipeline = TextPipeline.load(FOLDER / "text")
translator = ctranslate2.Translator(str(FOLDER))


def translate(lines):
    tokens = pipeline.source.vocabulary.tokens
    sources = [[tokens[id] for id in pipeline.encode_source(line{form})] for line in lines]
    found = translator.translate_batch(
        sources,
        max_batch_size={batch},
        batch_type="tokens",
        beam_size={beam_size},
        length_penalty={length_penalty},
        min_decoding_length={min_decoding_length},
        max_decoding_length=int(max(map(len, sources)) * {factor}) + {most},
        max_input_length={max_input_length},
        suppress_sequences={suppress_sequences},
    )
    texts = [pipeline.join_target(one.hypotheses[0]{output_form}) for one in found]
    return [text if len(source) > 1 else "" for text, source in zip(texts, sources)]
```

CTranslate2's own defaults are others: a beam of 2 and a length penalty of 1. Each source ends in
`</s>`, which `encode_source` adds and CTranslate2 does not. Lines of more than {longest} tokens,
which nmtdeep translates in pieces, go through whole, up to the {rows} positions of the model.
One call has one limit on the length of a translation: give it lines of like length.{gnmt}

## Without nmtdeep

What makes subwords of a line, as `text/text.yaml` says it:

{steps}

Give `<unk>` in the place of subwords that the vocabulary does not have, and of `<pad>` and `</s>`
in a text; end each source with `</s>`. The way back: join what ends in `@@` to what follows, then
sacremoses' `MosesDetokenizer(lang="{target}").detokenize(words, unescape=False)`.
"""

GNMT = """

The recipe asks for the length penalty ((5 + len) / 6)^A, which CTranslate2 does not have: len^A
stands above in its place."""


def for_ctranslate2(loaded: Loaded, quantization: str | None, rows: int) -> str:
    """README.md of a model in CTranslate2's format."""
    settings = settings_of(loaded)
    text = loaded.recipe.text
    words = options(settings, 0)
    return CTRANSLATE2.format(
        source=text.source,
        target=text.target,
        version=__version__,
        checkpoint=f"{loaded.path.parent.name}/{loaded.path.name}",
        numbers=quantization or "float32",
        **forms(loaded),
        batch=settings.batch_tokens // settings.beam,
        factor=settings.max_length_factor,
        most=settings.max_length_constant - 1,
        longest=settings.max_source_tokens,
        rows=rows,
        gnmt=GNMT if settings.lenpen_form == "gnmt" else "",
        steps=listed(steps(text)),
        **words,
    )


def forms(loaded: Loaded) -> dict[str, str]:
    """How the pipeline is told of text that is not raw, going in and coming out."""
    form, back = loaded.recipe.text.input, loaded.pipeline.reference_form
    return {
        "form": "" if form == "raw" else f', "{form}"',
        "output_form": "" if back == "raw" else f', "{back}"',
    }


def steps(text: Text) -> list[str]:
    """What makes subwords of a source line, in the words of sacremoses and subword-nmt."""
    found = ["lower-case it: `line.lower()`"] if text.lowercase else []
    language = f'lang="{text.source}"'
    if text.input == "raw":
        if text.normalize:
            normalize = f'MosesPunctNormalizer({language}).normalize(line + "\\n").strip()'
            found.append(f"sacremoses: `{normalize}`")
        hyphens = ", aggressive_dash_splits=True" if text.aggressive_hyphens else ""
        tokenize = f"MosesTokenizer({language}).tokenize(line, escape=False{hyphens})"
        found.append(f"sacremoses: `{tokenize}`")
    if text.bpe.type != "none":
        codes = "bpe.codes" if text.bpe.type == "joint" else f"bpe.{text.source}.codes"
        only = f", with the subwords of `text/bpe.{text.source}.allowed` and no others"
        found.append(
            f"subword-nmt: `subword-nmt apply-bpe -c text/{codes}`"
            + (only if text.bpe.vocabulary_threshold else "")
        )
    return found or ["nothing: give subwords"]


def listed(items: Sequence[str]) -> str:
    """A numbered list."""
    return "\n".join(f"{number}. {item}" for number, item in enumerate(items, 1))
