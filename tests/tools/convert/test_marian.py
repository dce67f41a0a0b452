"""Converted MarianMT models compute what transformers computes; others are refused by name."""

import json
from typing import Any

import pytest
import torch
from untrusted.strangers import Payload

from nmtdeep import checkpoint
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.model.layers.positions import sinusoids
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.text.vocabulary import EOS, PAD, SPECIALS
from nmtdeep.tools.convert.marian import convert
from nmtdeep.tools.export.exporter import export_huggingface

from .marian_like import MarianLike

CHOICES: dict[str, dict[str, Any]] = {
    "OPUS-MT": {},
    "separate vocabularies": {"separate": True, "activation_function": "silu"},
    "gelu, embeddings not scaled": {"activation_function": "gelu", "scale_embedding": False},
    "own output": {"tie_word_embeddings": False, "activation_function": "relu"},
    "separate, own output": {"separate": True, "tie_word_embeddings": False},
    "one vocabulary, two tables": {"share_encoder_decoder_embeddings": False},
    "starts with </s>": {"decoder_start_token_id": 0},
}


def our_ids(like: MarianLike, side: int, tokens: tuple[str, ...]) -> dict[int, int]:
    """Our id of each of theirs, by the pieces' spelling."""
    names = {"</s>": EOS, "<unk>": 2, "<pad>": PAD}
    place = {token: id for id, token in enumerate(tokens)}
    return {
        id: names.get(name, place.get(name, -1)) for name, id in like.vocabularies[side].items()
    }


@pytest.mark.parametrize("name", CHOICES)
def test_logits_are_those_of_transformers(name, tmp_path):
    """Of two sentences in float64, after each token."""
    transformers = pytest.importorskip("transformers")
    like = MarianLike(**CHOICES[name])
    folder = like.write(tmp_path / "theirs")
    convert(folder, tmp_path / "out")
    theirs = transformers.MarianMTModel.from_pretrained(folder).double()
    loaded = checkpoint.load_model(tmp_path / "out")
    rows = [
        our_ids(like, min(number, len(like.vocabularies) - 1), side.vocabulary.tokens)
        for number, side in enumerate((loaded.pipeline.source, loaded.pipeline.target))
    ]
    pad, start = like.settings["pad_token_id"], like.settings["decoder_start_token_id"]
    source = torch.tensor([[7, 5, 9, 4, 0], [10, 3, 0, pad, pad]])
    target = torch.tensor([[start, 4, 8], [start, 6, 3]])
    mine = source.clone().apply_(rows[0].__getitem__), target.clone().apply_(rows[1].__getitem__)
    mine[1][:, 0] = EOS
    model = loaded.model.double()
    with torch.inference_mode():
        expected = theirs(
            input_ids=source, attention_mask=source != pad, decoder_input_ids=target
        ).logits
        found = model.output(model(*mine))
    columns = sorted(rows[1])
    picked = found[:, :, [rows[1][id] for id in columns]]
    torch.testing.assert_close(picked, expected[:, :, columns], rtol=1e-6, atol=1e-6)
    assert found.shape == expected.shape, "ids without a piece have logits too"


def test_older_files_have_half_precision_all_tables_and_positions(tmp_path):
    like = MarianLike()
    shared = like.state["model.shared.weight"] = like.state["model.shared.weight"].half()
    for side in ("encoder", "decoder"):
        like.state[f"model.{side}.embed_tokens.weight"] = shared
        table = sinusoids(0, 64, 8, "paper").half()
        like.state[f"model.{side}.embed_positions.weight"] = table
    like.state["lm_head.weight"] = shared
    like.state = {name: tensor.half() for name, tensor in like.state.items()}
    recipe, _ = convert(like.write(tmp_path / "bin", pickled=True), tmp_path / "out")
    assert (recipe.model.embeddings.sharing, recipe.model.positions.rates) == ("all", "paper")
    loaded = checkpoint.load_model(tmp_path / "out")
    table = loaded.model.output.weight
    assert torch.equal(table[EOS], shared[0].float())
    assert torch.equal(table[PAD], shared[like.settings["pad_token_id"]].float())


def test_the_recipe_has_the_search_and_the_text(tmp_path):
    like = MarianLike(dropout=0.2, length_penalty=0.8)
    recipe, pipeline = convert(like.write(tmp_path / "theirs"), tmp_path / "out", target="pt-BR")
    assert (recipe.text.source, recipe.text.target) == ("en", "pt-BR")
    decoding = recipe.decoding
    assert (decoding.beam, decoding.lenpen, decoding.lenpen_form) == (6, 0.8, "length")
    assert (decoding.stop, decoding.max_length_constant, decoding.max_source_tokens) == (
        "bound",
        63,
        63,
    )
    assert recipe.model.dropout.residual == recipe.model.dropout.embedding == 0.2
    assert pipeline.source.vocabulary.tokens[:3] == SPECIALS
    line = "a line of text"
    assert pipeline.target.join(pipeline.source.split(line)) == line
    state = json.loads((tmp_path / "out" / "state.json").read_text())
    assert set(state["of"]["sha256"]) == {"model.safetensors", "source.spm", "target.spm"}


def test_all_problems_are_reported_at_once(tmp_path):
    like = MarianLike(activation_function="gelu_new", static_position_embeddings=False)
    like.settings |= {"normalize_before": True, "no_repeat_ngram_size": 3}
    del like.tokenizer["source_lang"]
    del like.state["model.decoder.layers.1.fc2.weight"]
    like.state["model.encoder.embed_positions.weight"] = torch.ones(64, 8)
    like.state["model.encoder.layers.0.fc1.bias"][3] = float("nan")
    like.state["model.encoder.layers.0.adapter.weight"] = torch.ones(2, 2)
    with pytest.raises(CheckpointError) as caught:
        convert(like.write(tmp_path / "theirs"), tmp_path / "out")
    assert sorted(problem.what.split(":")[0] for problem in caught.value.problems) == [
        "activation_function is 'gelu_new'",
        "embed_positions.weight is not a table of sinusoids",
        "missing weights",
        "no_repeat_ngram_size is 3, which is not supported",
        "normalize_before is True, which is not supported",
        "static_position_embeddings is False, which is not supported",
        "the source language is missing",
        "unknown weights",
        "weights that are not finite",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "config.json: missing"),
        ("vocab.json", b'{"a": 1, "b": 1}', "vocab.json: not a vocabulary"),
        ("model.safetensors", b"no tensors", "not a whole safetensors file"),
        ("source.spm", b"no model", "source.spm: not a SentencePiece model"),
    ],
)
def test_damaged_directories_are_refused(file, content, message, tmp_path):
    folder = MarianLike().write(tmp_path / "theirs")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(UserError, match=message):
        convert(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_code_in_a_pickle_is_run(tmp_path):
    like = MarianLike()
    like.state["more"] = Payload(tmp_path / "made")
    folder = like.write(tmp_path / "theirs", pickled=True)
    with pytest.raises(CheckpointError, match=r"without running code.*posix.*safetensors"):
        convert(folder, tmp_path / "out")
    assert not (tmp_path / "made").exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "made").exists()  # so the exploit works


def test_a_line_may_begin_with_the_code_of_a_target_language(tmp_path):
    like = MarianLike()
    # Ids that had no piece.
    like.vocabularies[0] |= {">>fra<<": like.settings["vocab_size"] - 1}
    _, pipeline = convert(like.write(tmp_path / "theirs"), tmp_path / "out")
    split = pipeline.source.split
    assert split(">>fra<< a line") == [">>fra<<", *split("a line")]
    assert split(">>deu<< a line")[0] != ">>deu<<"
    for language, line in zip(("en", "de"), (">>fra<< a line", "eine Zeile"), strict=True):
        (tmp_path / f"train.{language}").write_text(f"{line}\n", encoding="utf-8")
    recipe = Recipe.model_validate({"text": pipeline.config.model_dump()})
    corpus = CorpusFiles(tmp_path / "train", tmp_path / "train")
    Preprocessing(recipe, corpus, pipeline=pipeline, out=tmp_path / "data").run()
    (stored,) = DataDirectory.open(tmp_path / "data").corpus("train").source
    assert stored.tolist() == pipeline.source.encode(">>fra<< a line")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path / "theirs")
    assert theirs.tokenize(">>fra<< a line") == split(">>fra<< a line")


@pytest.mark.parametrize("name", CHOICES)
def test_an_export_is_converted_to_the_same_checkpoint(name, tmp_path):
    recipe, pipeline = convert(
        MarianLike(**CHOICES[name]).write(tmp_path / "theirs"), tmp_path / "out"
    )
    export_huggingface(tmp_path / "out", tmp_path / "exported")
    again, text = convert(tmp_path / "exported", tmp_path / "again")
    assert (again.model, text.fingerprint()) == (recipe.model, pipeline.fingerprint())
    assert again.decoding.model_dump(exclude={"max_source_tokens"}) == recipe.decoding.model_dump(
        exclude={"max_source_tokens"}
    )
    first, second = (
        checkpoint.load_model(tmp_path / name).model.state_dict() for name in ("out", "again")
    )
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("settings", CHOICES.values())
def test_the_tokenizer_of_an_export_reads_raw_text(settings, tmp_path):
    transformers = pytest.importorskip("transformers")
    like = MarianLike(**settings)
    _, pipeline = convert(like.write(tmp_path / "theirs"), tmp_path / "out")
    export_huggingface(tmp_path / "out", tmp_path / "exported")
    before = transformers.MarianTokenizer.from_pretrained(tmp_path / "theirs")
    after = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    line = "a line of unknown text, some 7 words"
    assert after.tokenize(line) == before.tokenize(line)
    assert after(line).input_ids == pipeline.source.encode(line)
    assert after(text_target=line).input_ids == pipeline.target.encode(line)
    ids = after(text_target="some words").input_ids
    assert after.batch_decode([ids], skip_special_tokens=True) == ["some words"]
