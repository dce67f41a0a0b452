"""What bf16 and int8 cost in BLEU, and gain in time, against fp32 on a CPU.

    python benchmarks/quantization.py --model RUN --source FILE --reference FILE [--beam N]
        [--threads N] [--repeats N]

The contenders take turns on the whole text. A ratio is formed within each turn; the median and the
extremes are shown. Text processing is part of the time, reading the model is not.
"""

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

from machine import machine

from nmtdeep.checkpoint import load
from nmtdeep.decoding.settings import settings_of
from nmtdeep.decoding.translator import Translator
from nmtdeep.scoring.metrics import score_texts
from nmtdeep.text.files import read_lines

KINDS = {"fp32": {}, "bf16": {"precision": "bf16"}, "int8": {"quantize": "int8"}}


def main() -> None:
    parser = argparse.ArgumentParser(description="BLEU and speed of fp32, bf16 and int8")
    parser.add_argument("--model", type=Path, required=True, help="run or checkpoint")
    parser.add_argument("--source", type=Path, required=True, help="raw lines")
    parser.add_argument("--reference", type=Path, required=True, help="their translations")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    sources, references = (list(read_lines(path)) for path in (options.source, options.reference))
    print(f"{machine()}; beam {options.beam}, threads {options.threads or 'as torch chooses'}\n")
    translators = {}
    for name, how in KINDS.items():
        loaded = load(options.model)
        settings = replace(settings_of(loaded), beam=options.beam)
        translators[name] = Translator.of(
            [loaded], settings, device="cpu", threads=options.threads, **how
        )
    seconds: dict[str, list[float]] = {name: [] for name in KINDS}
    texts: dict[str, list[str]] = {}
    for _ in range(options.repeats):
        for name, translator in translators.items():
            began = time.perf_counter()
            texts[name] = [one.text for one in translator.translate(sources)]
            seconds[name].append(time.perf_counter() - began)
    scores = {name: score_texts(text, [references], ("bleu",))[0] for name, text in texts.items()}
    print(f"{scores['fp32'].signature}\n")
    for name in KINDS:
        ratios = [one / two for one, two in zip(seconds["fp32"], seconds[name], strict=True)]
        changed = sum(one != two for one, two in zip(texts["fp32"], texts[name], strict=True))
        print(
            f"{name}: BLEU {scores[name].value:.2f} "
            f"({scores[name].value - scores['fp32'].value:+.2f}), "
            f"{changed} of {len(sources)} lines differ, "
            f"{len(sources) / statistics.median(seconds[name]):.1f} lines/s, "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) times fp32"
        )


if __name__ == "__main__":
    main()
