"""What users of fairseq, Hugging Face, Marian, JoeyNMT and Eole type, and the answers."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest
import typer.main

from nmtdeep.cli.command import usage_error
from nmtdeep.cli.main import app
from nmtdeep.config.load import load_recipe
from nmtdeep.errors import UserError
from nmtdeep.scoring.metrics import metric_named

APP: Any = typer.main.get_command(app)
FILE = files("nmtdeep.config") / "other_toolkits.tsv"
ROWS = [line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()]


def said(line: str) -> str:
    """The error of a command line that is wrong before the command runs."""
    try:
        context = APP.make_context("nmtdeep", line.split())
        name, command, words = APP.resolve_command(context, line.split())
        command.make_context(name, words, parent=context)
    except UserError as error:
        return str(error)
    except typer.TyperException as error:
        return str(usage_error(error))
    raise AssertionError("no error")


OPTIONS = {
    # fairseq
    "train --save-dir r": "write --out DIR",
    "train --max-epoch 3": "write --max-epochs N",
    "train --max-update 3": "write --max-updates N",
    "train --fp16": "write --precision fp16",
    "train --arch transformer": "the recipe is the first argument, without an option; "
    "nmtdeep recipes list prints names",
    "train --restore-file x": "not needed: the same command resumes; --from RUN starts from the "
    "weights of another run",
    "train --update-freq 8": "not needed: --tokens-per-update is a whole update, and --max-tokens "
    "what fits at once",
    "train --encoder-layers 12": "write model.encoder.depth=VALUE, without dashes",
    "train --encoder-embed-dim 512": "write model.width=VALUE, without dashes",
    "train --share-all-embeddings": "write model.embeddings.sharing=VALUE, without dashes",
    "train --finetune-from-model x": "write --from RUN",
    "preprocess --trainpref x": "write --train PREFIX",
    "preprocess --destdir x": "write --out DIR",
    "translate --remove-bpe": "not needed: translations are plain text; --output-is bpe keeps "
    "subwords",
    "translate --max-len-b 9": "write --max-length-constant N",
    "translate --print-alignment": "not supported; nmtdeep analyze attention prints the attention "
    "of one pair",
    # Hugging Face
    "train --output_dir r": "write --out DIR",
    "train --num_train_epochs 3": "write --max-epochs N",
    "train --per_device_train_batch_size 8": "write --tokens-per-update N",
    "train --learning_rate 1": "write --lr NUMBER",
    "train --resume_from_checkpoint x": "not needed: the same command resumes; --from RUN starts "
    "from the weights of another run",
    "train --save_total_limit 3": "write training.checkpoints.keep_last=VALUE, without dashes",
    "train --lora-r 8": "there are no adapters here: training.frozen keeps parts of the model "
    "fixed",
    "translate --num_beams 4": "write --beam N",
    "translate --load_in_8bit": "write --quantize int8",
    # Marian
    "train --enc-depth 6": "write model.encoder.depth=VALUE, without dashes",
    "train --early-stopping 5": "write --patience N",
    "train --valid-freq 500": "write training.validation.every=VALUE, without dashes",
    "train --guided-alignment x": "guided alignment does not exist here",
    "train --devices 0": "write --device cuda, and --processes N for N GPUs",
    "translate --models m": "write --model RUN",
    "translate --normalize 0.6": "write --lenpen NUMBER",
    # JoeyNMT, Eole
    "train --config x.yaml": "the recipe is the first argument, without an option: a name or "
    "FILE.yaml",
    "train -config x.yaml": "the recipe is the first argument, without an option: a name or "
    "FILE.yaml",
    "train --train_steps 9": "write --max-updates N",
    "translate --src x": "write --input FILE",
    "translate --gpu 0": "write --device cuda",
    # all of them
    "train --resume": "not needed: the same command resumes; --from RUN starts from the weights of "
    "another run",
    "train --epochs 3": "write --max-epochs N",
    "train --model.encoder.depth=3": "write model.encoder.depth=VALUE, without dashes",
    "score r -i h": "hypotheses are the first argument, without an option: nmtdeep score HYP REF",
    "train --cpu": "write --device cpu",
    "train --find-lr": "now a command of its own: nmtdeep analyze learning-rate",
}


@pytest.mark.parametrize("line", OPTIONS)
def test_an_option_of_another_toolkit_is_answered_with_the_cure(line: str) -> None:
    name = next(word for word in line.split() if word[0] == "-").partition("=")[0]
    shown = "-c" if name == "-config" else name
    assert said(line) == f"no such option: {shown}: {OPTIONS[line]}"


COMMANDS = {
    "interactive": "use nmtdeep translate",
    "generate": "use nmtdeep translate",
    "evaluate": "use nmtdeep score",
    "build_vocab": "use nmtdeep preprocess",
    "average": "use nmtdeep average-checkpoints",
    "finetune": "use nmtdeep train --from RUN",
    "release_model": "use nmtdeep export",
    "server": "use nmtdeep serve",
    "resume": "use nmtdeep train: the same command resumes",
    "trian": "did you mean train?",
    "doctor": "use nmtdeep inspect DATA (preprocess prints the same warnings about text)",
    "xyz": "see `nmtdeep --help`",
}


@pytest.mark.parametrize("word", COMMANDS)
def test_a_command_of_another_toolkit_is_answered_with_the_cure(word: str) -> None:
    assert said(word) == f"no such command: {word}: {COMMANDS[word]}"


KEYS = {
    "model.encoder.layers": "did you mean model.encoder.depth?",
    "model.decoder.num_layers": "did you mean model.decoder.depth?",
    "model.enc_depth": "did you mean model.encoder.depth?",
    "model.d_model": "did you mean model.width?",
    "model.hidden_size": "did you mean model.width?",
    "model.encoder.ff_size": "did you mean model.encoder.feed_forward?",
    "model.decoder.num_heads": "did you mean model.decoder.heads?",
    "model.encoder.kv_heads": "does not exist: each head has its own keys and values",
    "model.head_dim": "does not exist: a head has width / heads features",
    "model.tied_softmax": "did you mean model.embeddings.sharing?",
    "model.encoder.dropout": "did you mean model.dropout.residual?",
    "model.encoder.layer_norm": "set residual: pre_norm or post_norm, in model.encoder and "
    "model.decoder",
    "training.epochs": "did you mean training.max_epochs?",
    "training.max_steps": "did you mean training.max_updates?",
    "training.learning_rate": "did you mean training.schedule.lr?",
    "training.lr": "did you mean training.schedule.lr?",
    "training.batch_size": "did you mean training.batches.tokens_per_update?",
    "training.fp16": "did you mean training.precision?",
    "training.early_stopping_metric": "did you mean training.validation.best_by?",
    "training.keep_best_ckpts": "did you mean training.checkpoints.keep_best?",
    "training.use_cuda": "not part of a recipe: nmtdeep train takes --device and --processes",
    "training.model_dir": "not part of a recipe: nmtdeep train takes --out",
    "text.src_vocab_size": "did you mean text.bpe.merges?",
    "decoding.beam_size": "did you mean decoding.beam?",
    "data.train": "not part of a recipe: nmtdeep preprocess takes --train, --valid and --test",
    "lora_r": "there are no adapters here: training.frozen keeps parts of the model fixed",
}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_another_toolkit_is_answered_with_the_cure(key: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe("deep-small", [f"{key}=1"])
    assert str(caught.value).endswith(f": unknown key: {KEYS[key]}")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("sacrebleu", "(did you mean bleu?)"),
        ("multi-bleu", "(did you mean bleu-tok?)"),
        ("chrF2", "(did you mean chrf?)"),
        ("wmt22-comet-da", "(did you mean comet?)"),
        ("rouge", "not computed here: score the translations with the program that has it"),
    ],
)
def test_a_metric_of_another_name(name: str, answer: str) -> None:
    with pytest.raises(UserError) as caught:
        metric_named(name)
    assert answer in str(caught.value)


def options(command: Any) -> set[str]:
    below = getattr(command, "commands", {}).values()
    own = {name for each in command.params for name in each.opts if name[0] == "-"}
    return own.union(*map(options, below))


def known_keys() -> set[str]:
    """All keys of the reference of recipes, docs/config.md."""
    text = (files("nmtdeep") / ".." / "docs" / "config.md").read_text(encoding="utf-8")
    keys, section = set(), ""
    for line in text.splitlines():
        if found := re.match(r"## `(.+)`", line):
            section = f"{found[1]}."
        if found := re.match(r" *- `(\w+)` ", line):
            keys |= {f"{section}{found[1]}", found[1]}
        keys.add(section[:-1])
    return keys


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1].split()[0]}")
def test_a_cure_names_what_exists(row: list[str]) -> None:
    places, names, cure = row
    assert all(name == name.lower() and "-" not in name for name in names.split())
    for place in places.split():
        if place == "key" and " " not in cure:
            assert cure in known_keys()
        if place == "metric" and " " not in cure:
            metric_named(cure)
        if place == "command":
            words = [each.strip(":") for each in cure.split()]
            assert words[0] == "nmtdeep" and words[1] in APP.commands
        if place in APP.commands:
            mentioned = re.findall(r"--[\w-]+", cure)
            about = re.search(r"nmtdeep (\w+)", cure)
            assert {*mentioned} <= options(APP.commands[place]) or about
            own = {option.strip("-").replace("-", "_") for option in options(APP.commands[place])}
            assert not own & {*names.split()}
