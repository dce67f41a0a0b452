"""An exported model in CTranslate2, for measurements."""

from collections.abc import Sequence
from pathlib import Path

import ctranslate2
import torch

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.text.vocabulary import Vocabulary
from nmtdeep.tools.export.to_ctranslate2 import search_options


def open_translator(
    folder: Path, *, device: torch.device, compute: str, threads: int, at_once: int = 1
) -> ctranslate2.Translator:
    """The converted model in `folder`, `at_once` batches at a time on `threads` threads in all."""
    everything = torch.get_num_threads()
    translator = ctranslate2.Translator(
        str(folder),
        device=device.type,
        device_index=device.index or 0,
        compute_type=compute,
        inter_threads=at_once,
        intra_threads=max(1, threads // at_once),
    )
    # It sets the number of OpenMP threads of the whole process, torch's too.
    torch.set_num_threads(everything)
    return translator


def translate(
    translator: ctranslate2.Translator,
    sources: Sequence[Sequence[str]],
    settings: DecodingOptions,
    target: Vocabulary,
    *,
    batch: int,
) -> list[list[str]]:
    """Tokens of the best translations, without the end; it sorts by length itself.

    Our rules in its words; its length limit is one for all, that of the longest source.
    """
    longest = max(map(len, sources))
    results = translator.translate_batch(
        list(sources), max_batch_size=batch, **search_options(settings, target, longest)
    )
    return [result.hypotheses[0] for result in results]
