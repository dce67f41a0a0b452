"""MarianMT models and their conversions: the same n-best lists and scores?

    python benchmarks/converted.py [DIR ...] [--data FOLDER] [--shapes NAME ...] [--keep FOLDER]

Transformers' `generate`, and nmtdeep after `nmtdeep convert marian`, translate the same English
sentences in fp32. DIR is a model as `save_pretrained` writes it; without one, transformers trains a
small model of each shape first, on the raw text in FOLDER (default: the corpus that ships with
nmtdeep). --keep leaves these models.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from machine import machine
from rich.console import Console
from rich.table import Table
from run import find_corpus
from torch import Tensor, nn
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

from nmtdeep import checkpoint
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.text import SentencePiece
from nmtdeep.decoding.translator import Translator
from nmtdeep.text import sentencepiece
from nmtdeep.text.lines import read_lines
from nmtdeep.tools.convert.marian import convert

SIDES = ("source", "target")
BEAM, LONGEST, SENTENCES = 6, 128, 96
# Settings over those of OPUS-MT; `start` is a piece, `layers` are those of encoder and decoder.
SHAPES: dict[str, dict[str, Any]] = {
    "small": {"layers": (3, 2)},
    "separate": {"layers": (3, 2), "separate": True, "activation_function": "relu"},
    "unscaled": {"layers": (2, 2), "scale_embedding": False, "activation_function": "gelu"},
    "from the end": {"layers": (2, 2), "start": "</s>"},
    "opus": {"layers": (6, 6)},
}
Ids = list[int]
# The pieces of each translation of a sentence, and its score.
Listed = list[tuple[list[str], float]]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Converted models beside transformers")
    parser.add_argument("models", nargs="*", type=Path, metavar="DIR", help="MarianMT models")
    parser.add_argument("--data", type=Path, help="folder of raw text (default: ships with us)")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=[*SHAPES][:-1])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--pieces", type=int, default=2000, help="of each SentencePiece model")
    parser.add_argument("--updates", type=int, default=150, help="of 96 sentence pairs")
    parser.add_argument("--lines", type=int, default=300, help="sentences that are translated")
    parser.add_argument("--keep", type=Path, help="folder for the models that are trained")
    return parser.parse_args(words)


def make_tokenizer(
    folder: Path, texts: Sequence[Sequence[str]], *, pieces: int, separate: bool
) -> MarianTokenizer:
    """SentencePiece models and vocabularies as of OPUS-MT, in which `<pad>` has the last id."""
    folder.mkdir(parents=True)
    types: list[tuple[str, ...]] = []
    for side, lines in zip(SIDES, texts, strict=True):
        model = sentencepiece.learn(lines, SentencePiece(size=pieces), normalize=True)
        (folder / f"{side}.spm").write_bytes(model.content)
        types.append(model.pieces)
    if not separate:
        types = [tuple(dict.fromkeys(types[0] + types[1]))]
    count = max(map(len, types))
    paths = [folder / name for name in ("vocab.json", "target_vocab.json")][: len(types)]
    for path, each in zip(paths, types, strict=True):
        # The special ids of both sides are the same, so that fillers make both as long.
        fillers = [f"<filler{number}>" for number in range(count - len(each))]
        names = ["</s>", "<unk>", *each, *fillers, "<pad>"]
        path.write_text(json.dumps({name: id for id, name in enumerate(names)}), encoding="utf-8")
    tokenizer = MarianTokenizer(
        *(str(folder / f"{side}.spm") for side in SIDES),
        *map(str, paths),
        separate_vocabs=separate,
        source_lang="en",
        target_lang="de",
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_model(tokenizer: MarianTokenizer, shape: dict[str, Any], width: int) -> MarianMTModel:
    """A model with random weights."""
    settings = {"activation_function": "swish", "scale_embedding": True, "start": "<pad>", **shape}
    pad, start = (
        tokenizer.convert_tokens_to_ids(each) for each in ("<pad>", settings.pop("start"))
    )
    ids = {"pad_token_id": pad, "decoder_start_token_id": start, "eos_token_id": 0}
    ids["forced_eos_token_id"] = 0
    for side, depth in zip(("encoder", "decoder"), settings.pop("layers"), strict=True):
        settings |= {f"{side}_layers": depth, f"{side}_attention_heads": max(1, width // 32)}
        settings[f"{side}_ffn_dim"] = 4 * width
    config = MarianConfig(
        vocab_size=pad + 1,
        decoder_vocab_size=pad + 1,
        d_model=width,
        max_position_embeddings=LONGEST,
        share_encoder_decoder_embeddings=not settings.pop("separate", False),
        init_std=width**-0.5,
        **settings,
        **ids,
    )
    model = MarianMTModel(config)
    for matrix in matrices(model).values():
        nn.init.xavier_uniform_(matrix)
    model.generation_config = GenerationConfig(
        num_beams=BEAM, max_length=LONGEST, bad_words_ids=[[pad]], **ids
    )
    return model


def matrices(model: MarianMTModel) -> dict[str, nn.Parameter]:
    named = model.named_parameters()
    return {name: each for name, each in named if each.dim() == 2 and ".layers." in name}


def batches(pairs: Sequence[tuple[Ids, Ids]]) -> Iterator[list[tuple[Ids, Ids]]]:
    """Pairs of similar lengths, in random order, epoch after epoch."""
    draw = random.Random(1)
    while True:
        ordered = sorted(pairs, key=lambda pair: len(pair[1]) + draw.random())
        groups = [ordered[first : first + SENTENCES] for first in range(0, len(pairs), SENTENCES)]
        draw.shuffle(groups)
        yield from groups


def padded(rows: Sequence[Ids], filling: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filling] * (longest - len(row))] for row in rows])


def train(model: MarianMTModel, pairs: Sequence[tuple[Ids, Ids]], updates: int) -> None:
    """Train with Muon and Adam and a linear schedule."""
    pad, start = model.config.pad_token_id, model.config.decoder_start_token_id
    matrix = matrices(model)
    named = model.named_parameters()
    rest = [each for name, each in named if each.requires_grad and name not in matrix]
    bias = model.final_logits_bias.requires_grad_()  # a buffer
    optimizers = (
        torch.optim.Muon(matrix.values(), adjust_lr_fn="match_rms_adamw", weight_decay=0.0),
        torch.optim.Adam([*rest, bias], betas=(0.9, 0.98)),
    )
    model.train()
    for number, batch in enumerate(islice(batches(pairs), updates)):
        done = number / updates
        for group in (group for each in optimizers for group in each.param_groups):
            group["lr"] = 4e-3 * min(1.0, 10 * (done + 1e-3), (1 - done) / 0.8)
        source, target = (padded(rows, pad) for rows in zip(*batch, strict=True))
        inputs = torch.cat((torch.full_like(target[:, :1], start), target[:, :-1]), dim=1)
        out = model(input_ids=source, attention_mask=source != pad, decoder_input_ids=inputs)
        loss = nn.functional.cross_entropy(
            out.logits.flatten(0, 1), target.flatten(), ignore_index=pad, label_smoothing=0.1
        )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for each in optimizers:
            each.step()
            each.zero_grad()
        if number % 50 == 49:
            print(f"update {number + 1}: loss {loss.item():.2f}", file=sys.stderr, flush=True)
    bias.requires_grad_(False)


@torch.inference_mode()
def theirs(folder: Path, lines: Sequence[str]) -> list[Listed]:
    """The n-best lists of `generate`, in which no translation is empty, as in ours."""
    model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = MarianTokenizer.from_pretrained(folder)
    results: list[Listed] = [[]] * len(lines)
    order = sorted(range(len(lines)), key=lambda index: len(lines[index]))
    for first in range(0, len(order), 25):
        chosen = order[first : first + 25]
        out = model.generate(
            **tokenizer([lines[index] for index in chosen], return_tensors="pt", padding=True),
            num_beams=BEAM,
            num_return_sequences=BEAM,
            min_new_tokens=1,
            return_dict_in_generate=True,
            output_scores=True,
        )
        # The first id may be that of the end.
        end = tokenizer.eos_token_id
        rows = [row[1 : [*row, end].index(end, 1)] for row in out.sequences.tolist()]
        pieces = [[tokenizer.decoder[id] for id in row] for row in rows]
        listed = list(zip(pieces, out.sequences_scores.tolist(), strict=True))
        for place, index in enumerate(chosen):
            results[index] = listed[BEAM * place : BEAM * (place + 1)]
    return results


def ours(folder: Path, lines: Sequence[str]) -> tuple[list[Listed], int]:
    """The n-best lists of nmtdeep, in which `<unk>` may be, and the length limit."""
    with TemporaryDirectory(prefix="converted-") as place:
        recipe, _ = convert(folder, Path(place) / "model")
        loaded = checkpoint.load(Path(place) / "model")
    how = DecodingOptions(device="cpu", beam=BEAM, n_best=BEAM, allow_unk=True)
    with Translator.of([loaded], how) as translator:
        translated = [
            [(list(each.subwords), each.score) for each in line.candidates]
            for line in translator.translate(lines)
        ]
    return translated, recipe.decoding.max_length_constant


def compare(folder: Path, lines: Sequence[str]) -> list[str]:
    """Cells of a row: equal lists, equal best, lists with one cut off, others that differ."""
    mine, limit = ours(folder, lines)
    pairs = list(zip(mine, theirs(folder, lines), strict=True))
    equal = [[pieces for pieces, _ in a] == [pieces for pieces, _ in b] for a, b in pairs]
    # `generate` scores the end that it forces at the limit with 0, nmtdeep as any other.
    cut = [any(len(pieces) >= limit - 1 for pieces, _ in [*a, *b]) for a, b in pairs]
    scores = [
        abs(one[1] - other[1])
        for (a, b), same, ended in zip(pairs, equal, cut, strict=True)
        if same and not ended
        for one, other in zip(a, b, strict=True)
    ]
    others = sum(not same and not ended for same, ended in zip(equal, cut, strict=True))
    best = sum(a[0][0] == b[0][0] for a, b in pairs)
    counts = [f"{sum(equal)} of {len(pairs)}", best, sum(cut), others]
    return [*map(str, counts), f"{max(scores, default=0.0):.1e}"]


def read(prefix: Path, language: str) -> list[str]:
    plain = Path(f"{prefix}.{language}")
    return list(read_lines(plain if plain.exists() else Path(f"{plain}.gz")))


def trained(options: argparse.Namespace, corpus: Path, place: Path) -> Iterator[Path]:
    """Models of the chosen shapes."""
    texts = [read(corpus, language) for language in ("en", "de")]
    for name in options.shapes:
        torch.manual_seed(1)
        shape = SHAPES[name]
        tokenizer = make_tokenizer(
            place / name, texts, pieces=options.pieces, separate=shape.get("separate", False)
        )
        model = make_model(tokenizer, shape, options.width)
        sides = (tokenizer(texts[0]).input_ids, tokenizer(text_target=texts[1]).input_ids)
        pairs = [pair for pair in zip(*sides, strict=True) if max(map(len, pair)) < LONGEST]
        train(model, pairs, options.updates)
        model.save_pretrained(place / name)
        yield place / name


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    table = Table("model", "equal lists", "equal best", "with one cut off", "others that differ")
    table.add_column("largest difference of scores")
    with ExitStack() as stack:
        shipped = stack.enter_context(as_file(files("nmtdeep.tools.demo") / "corpus"))
        place = options.keep or Path(stack.enter_context(TemporaryDirectory(prefix="marian-")))
        corpus, _, test = find_corpus(options.data or shipped, "en")
        lines = read(test, "en")[: options.lines]
        for folder in options.models or trained(options, corpus, place):
            cells = [folder.name, *compare(folder, lines)]
            table.add_row(*cells)
            print(*cells, sep=" | ", file=sys.stderr, flush=True)
    console = Console(highlight=False, width=110)
    console.print(machine(torch.device("cpu")))
    console.print(table)


if __name__ == "__main__":
    main()
