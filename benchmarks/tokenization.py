"""Hold our normalize-tokenize-lower-case against Multi30k's own lc.norm.tok files.

    python benchmarks/tokenization.py MULTI30K

MULTI30K is a folder with train.en, train.de, val.*, test_2016_flickr.* and tok/, which holds
SPLIT.lc.norm.tok.LANGUAGE (or .gz). Prints, per split and language, the share of lines reproduced
exactly, by order of steps, and every line that differs in the order we use.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from sacremoses import MosesPunctNormalizer, MosesTokenizer

from nmtdeep.text.files import find_side, read_lines
from nmtdeep.text.tokenization import moses

SPLITS = ("train", "val", "test_2016_flickr")
Tokenize = Callable[[str], str]


def orders(language: str) -> dict[str, Tokenize]:
    ours = moses(language)
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)

    def plain(line: str) -> str:
        line = normalizer.normalize(line.lower())
        return str(tokenizer.tokenize(line, escape=False, return_str=True))

    def perl(line: str) -> str:
        parity = MosesPunctNormalizer(language, perl_parity=True)
        line = parity.normalize(line.lower() + "\n")
        return str(tokenizer.tokenize(line, escape=False, return_str=True))

    return {
        "ours: lower-case, normalize with newline, tokenize": lambda line: " ".join(
            ours.tokenize(ours.normalize(line.lower()))
        ),
        "lower-case last": lambda line: " ".join(ours.tokenize(ours.normalize(line))).lower(),
        "sacremoses' defaults (no newline)": plain,
        "sacremoses' perl_parity, with newline": perl,
    }


def unescape(line: str) -> str:
    return line.replace("&apos;", "'").replace("&quot;", '"').replace("&amp;", "&")


def compare(folder: Path, split: str, language: str) -> None:
    raw = list(read_lines(find_side(folder / split, language)))
    theirs = [
        unescape(line)
        for line in read_lines(find_side(folder / "tok" / f"{split}.lc.norm.tok", language))
    ]
    for name, tokenize in orders(language).items():
        start = time.perf_counter()
        made = [tokenize(line) for line in raw]
        seconds = time.perf_counter() - start
        wrong = [index for index in range(len(raw)) if made[index].split() != theirs[index].split()]
        share = 100 - 100 * len(wrong) / len(raw)
        print(
            f"{split:17} {language}  {len(raw):6,} lines  {share:7.3f} % exact  {len(wrong):3} "
            f"differ  {len(raw) / seconds:7,.0f} lines/s  {name}"
        )
        if name.startswith("ours"):
            for index in wrong:
                print(f"    {index + 1}: {made[index]}\n    theirs: {theirs[index]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Our tokenization against Multi30k's own")
    parser.add_argument("multi30k", type=Path)
    folder = parser.parse_args().multi30k
    for split in SPLITS:
        for language in ("en", "de"):
            compare(folder, split, language)
