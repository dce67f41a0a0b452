"""Alignments: a link for each word of a translation, by the weights of cross-attention."""

import json

import numpy as np
import pytest
import torch

from nmtdeep.analysis.attention import attention_maps
from nmtdeep.checkpoint import load_model
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding import streams
from nmtdeep.decoding.alignment import align, links, pharaoh, word_numbers
from nmtdeep.decoding.translator import Translator
from nmtdeep.text.vocabulary import EOS


def test_a_word_has_the_weight_of_all_its_subwords():
    # Words of the source: 0 0 1; of the target: 0 1 1.
    weights = np.array([[0.3, 0.3, 0.4], [0.1, 0.1, 0.8], [0.4, 0.5, 0.1]])
    assert links(weights, [0, 0, 1], [0, 1, 1]) == [(0, 0), (0, 1)]
    assert links(weights, [0, 1, 2], [0, 1, 2]) == [(2, 0), (2, 1), (1, 2)]
    assert pharaoh([(0, 0), (2, 1)]) == "0-0 2-1"


def test_words_end_where_no_subword_goes_on(tiny_run):
    side = tiny_run.pipeline.source
    assert word_numbers(side, ["a@@", "b", "c", "d@@", "e@@", "f"]) == [0, 0, 1, 2, 2, 2]


def test_translations_are_written_with_the_links_of_their_attention(tiny_run, tmp_path):
    path = tmp_path / "in"
    path.write_text("".join(f"{line}\n" for line in [*tiny_run.sources[:3], ""]), encoding="utf-8")
    written, aligned = [], []
    options = DecodingOptions(device="cpu")
    with Translator.load([tiny_run.path], options) as translator:
        into = streams.Destination(written.append, "json", aligned.append)
        streams.translate(translator, str(path), into)
    records = [json.loads(line) for line in "".join(written).splitlines()]
    lines = "".join(aligned).split("\n")[:-1]
    assert len(lines) == 4 and lines[3] == ""
    loaded = load_model(tiny_run.path)
    source, target = tiny_run.pipeline.source, tiny_run.pipeline.target
    for line, record in zip(lines[:3], records, strict=False):
        best = record["translations"][0]
        assert line == pharaoh(best["alignment"])
        words = source.split(record["source"]), best["subwords"]
        ids = [source.vocabulary.ids(words[0]), target.vocabulary.ids(words[1])]
        maps = attention_maps(
            loaded.model, torch.tensor([*ids[0], EOS]), torch.tensor([EOS, *ids[1]]), "cross"
        )
        weights = maps[-(-2 * len(maps) // 3) - 1].mean(0)[:-1, :-1].numpy()
        numbers = word_numbers(source, words[0]), word_numbers(target, words[1])
        assert [tuple(link) for link in best["alignment"]] == links(weights, *numbers)
        assert numbers[1][-1] == len(best["tokenized"].split()) - 1


@pytest.mark.parametrize("how", ["split", "truncate"])
def test_parts_of_a_long_line_are_aligned_each_by_itself(tiny_run, how):
    line, side = " ".join(tiny_run.sources[:3]), tiny_run.pipeline.source
    tag, words = side.vocabulary.tokens[5], side.split(line)
    limit = len(words) // 2 - 1
    options = {"max_source_tokens": limit, "long_lines": how, "source_tag": tag, "device": "cpu"}
    with Translator.load([tiny_run.path], DecodingOptions(**options)) as translator:
        (whole,) = align(translator, list(translator.translate([line])))
    alone = DecodingOptions(device="cpu", source_tag=tag, input_is="bpe")
    numbers, expected, first, written = word_numbers(side, words), [], 0, 0
    with Translator.load([tiny_run.path], alone) as translator:
        for length in whole.parts:
            piece = words[first : first + length]
            (part,) = align(translator, list(translator.translate([" ".join(piece)])))
            best = part.candidates[0]
            expected += [(i + numbers[first], j + written) for i, j in best.alignment]
            first, written = first + length, written + len(best.tokenized.split())
    assert len(whole.parts) == (3 if how == "split" else 1)
    assert list(whole.candidates[0].alignment) == expected
