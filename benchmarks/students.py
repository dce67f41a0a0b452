"""Words per second and BLEU of students in fxtranslate, beside their teacher in nmtdeep.

    python benchmarks/students.py fx-6 fx-12 --teacher run --source test.en --reference test.de \
        --csv docs/images/students.csv --plot docs/images/students.svg

Students are directories of `nmtdeep export --to firefox`; several --teacher are an ensemble. All
take turns on one thread; a turn translates the whole text, and the median counts.
"""

import argparse
import csv
from functools import partial
from pathlib import Path

import fxtranslate
import matplotlib.pyplot as plt
import torch
from machine import machine
from turns import take_turns

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translator import Translator
from nmtdeep.files import replace_file
from nmtdeep.scoring.metrics import score_texts

FIELDS = ("program", "model", "bleu", "words_per_second", "sentences_per_second")


def student(folder: Path, lines: list[str]) -> list[str]:
    shared = (folder / "vocab.spm").exists()
    names = ["vocab.spm"] * 2 if shared else ["srcvocab.spm", "trgvocab.spm"]
    files = ((folder / name).read_bytes() for name in ("model.bin", *names))
    engine = fxtranslate.Translator(*files)
    return [engine.translate(line) for line in lines]


def teacher(translator: Translator, lines: list[str]) -> list[str]:
    translator.restart()
    return [each.text for each in translator.translate(lines)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("students", type=Path, nargs="+")
    parser.add_argument("--teacher", type=Path, action="append", default=[])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines, reference = (
        path.read_text(encoding="utf-8").splitlines() for path in (args.source, args.reference)
    )
    contenders = {("fxtranslate", path.name): partial(student, path) for path in args.students}
    for beam, numbers in ((1, "fp32"), (4, "fp32"), (4, "int8")) if args.teacher else ():
        quantize = None if numbers == "fp32" else "int8"
        options = DecodingOptions(device="cpu", threads=1, beam=beam, quantize=quantize)
        name = f"{' + '.join(path.name for path in args.teacher)}, beam {beam}, {numbers}"
        contenders["nmtdeep", name] = partial(teacher, Translator.load(args.teacher, options))
    print(machine())
    found = {name: translate(lines) for name, translate in contenders.items()}
    jobs = {" ".join(name): partial(run, lines) for name, run in contenders.items()}
    turns = take_turns(jobs, repeats=args.repeats)
    words = sum(len(line.split()) for line in lines)
    rows = []
    for name, translations in found.items():
        seconds = turns.median(" ".join(name))
        (score,) = score_texts(translations, [reference], ["bleu"])
        speeds = round(words / seconds), round(len(lines) / seconds)
        rows.append((*name, round(score.value, 2), *speeds))
        print(*rows[-1])
    with replace_file(args.csv) as partial_file, partial_file.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([FIELDS, *rows])
    if args.plot:
        draw(rows, args.plot)


def draw(rows: list[tuple[str, str, float, int, int]], path: Path) -> None:
    """BLEU against words per second."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for marker, wanted in (("o", "fxtranslate"), ("s", "nmtdeep")):
        chosen = [row for row in rows if row[0] == wanted]
        axes.plot([row[3] for row in chosen], [row[2] for row in chosen], marker, label=wanted)
        for _, model, bleu, words, _ in chosen:
            place = (6, -12) if "fp32" in model else (6, 4)
            axes.annotate(model, (words, bleu), xytext=place, textcoords="offset points")
    axes.set(
        xlabel="source words per second, one thread",
        ylabel="BLEU",
        xlim=(0, 1.4 * max(row[3] for row in rows)),
    )
    axes.margins(y=0.15)
    axes.legend(title="program", loc="lower left")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
