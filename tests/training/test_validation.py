"""Validation: BLEU in the recipe's tokenization, and long lines, of which the loss takes a part."""

import pytest
import sacrebleu
import torch

from nmtdeep import checkpoint
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.recipe import Recipe
from nmtdeep.decoding.searcher import Searcher
from nmtdeep.decoding.translator import Translator
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.final_scores import score_split
from nmtdeep.training.setup import Setup
from nmtdeep.training.validation import corpus_loss, long_lines, translated, validate


def changed(recipe, *, most=400, **validation):
    """The recipe with other validations, which takes sides of at most so many subwords."""
    values = recipe.model_dump()
    values["decoding"]["max_source_tokens"] = most
    values["text"]["clean"]["max_length"] = most
    values["training"]["validation"] |= validation
    values["training"]["precision"] = "fp32"
    return Recipe.model_validate(values)


@pytest.mark.parametrize("tokenize", ["char", "zh", "13a"])
def test_bleu_is_of_the_tokens_of_the_recipe(tiny_run, tokenize):
    recipe = changed(tiny_run.recipe, tokenize=tokenize, beam=2)
    model = checkpoint.load_model(tiny_run.newer).model
    found = validate(model, Setup(recipe, tiny_run.data))
    options = DecodingOptions(beam=2).with_recipe(recipe)
    translator = Translator(Searcher([model], options), tiny_run.pipeline)
    lines = translated(translator, tiny_run.data, "valid")
    references = [tiny_run.data.references("valid")]
    expected = sacrebleu.corpus_bleu(lines, references, tokenize=tokenize, force=True)
    assert found.scores["bleu"].value == pytest.approx(expected.score)
    assert found.score("bleu") == pytest.approx(expected.score)
    assert f"|tok:{tokenize}|" in found.scores["bleu"].signature


@pytest.mark.parametrize("most", [5, 12, 1000])
def test_the_loss_takes_the_beginning_of_long_lines(tiny_run, most):
    model, corpus = (
        checkpoint.load_model(tiny_run.newer).model.eval(),
        tiny_run.data.corpus("valid"),
    )
    total, tokens, longer = 0.0, 0, 0
    for index in range(len(corpus)):
        source, target = corpus.source[index].tolist(), corpus.target[index].tolist()
        longer += max(len(source), len(target)) - 1 > most  # without EOS
        # Up to `most` subwords, and what follows them: the next one, or EOS.
        source, target = source[: most + 1], target[: most + 1]
        hidden = model(torch.tensor([source]), torch.tensor([[EOS, *target[:-1]]]))
        log_probs = model.output(hidden).log_softmax(-1)[0]
        total -= log_probs[torch.arange(len(target)), torch.tensor(target)].sum().item()
        tokens += len(target)
    recipe = changed(tiny_run.recipe, most=most)
    _, nll = corpus_loss(model, corpus, Setup(recipe, tiny_run.data))
    assert nll == pytest.approx(total / tokens, rel=1e-5)
    assert 0 < longer < len(corpus) or most != 12
    words = long_lines(corpus, recipe)
    assert words.startswith(f"{longer} of valid") if longer else words == ""


def test_final_scores_say_what_was_done_with_long_lines(tiny_run, monkeypatch):
    recipe, said = changed(tiny_run.recipe, most=5), []
    monkeypatch.setattr("nmtdeep.scoring.warnings.LONGEST_FOR_TER", 10)
    options = DecodingOptions(device="cpu", max_source_tokens=5)
    translator = Translator.load([tiny_run.newer], options)
    scores = score_split(translator, Setup(recipe, tiny_run.data), "valid", said.append)
    assert [score.metric for score in scores] == ["bleu", "chrf"]
    assert "lines of more than 5 subwords translated in pieces" in said[0]
    assert said[1].startswith("valid: TER is left out, for line ")
