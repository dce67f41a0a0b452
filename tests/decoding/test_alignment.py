"""Alignments: a link for each word of a translation, by the weights of cross-attention."""

import json

import numpy as np
import torch

from nmtdeep.analysis.attention import attention_maps
from nmtdeep.checkpoint import load_model
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding import streams
from nmtdeep.decoding.alignment import links, pharaoh, word_numbers
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
