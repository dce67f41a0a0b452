"""Every published row has as many parameters as the paper prints, and as the formulas say."""

from functools import cache

import pytest
import torch

from nmtdeep.config.load import load_recipe
from nmtdeep.config.model import Model
from nmtdeep.config.names import list_recipes
from nmtdeep.config.recipe import Recipe
from nmtdeep.model.build import build
from tests.papers import li_2020, wang_2019, zhang_2019
from tests.papers.terms import BASE, BIG, decoder_layer, encoder_layer

PAPERS = (wang_2019, li_2020, zhang_2019)
VOCABULARIES = {folder: sizes for paper in PAPERS for folder, sizes in paper.VOCABULARIES.items()}
CONTRADICTED = {name: count for paper in PAPERS for name, count in paper.CONTRADICTED.items()}
COUNTS = {name: count for paper in PAPERS for name, count in paper.COUNTS.items()}

loaded = cache(load_recipe)


def built(recipe: Recipe, source: int, target: int) -> int:
    """Parameters of the model on the meta device, where weights take no memory."""
    with torch.device("meta"):
        model = build(recipe.model, source_types=source, target_types=target)
    return sum(parameter.numel() for parameter in model.parameters())


def rounded(count: int, printed: str) -> str:
    """A count in millions with as many digits as the paper prints."""
    digits = len(printed.removesuffix("M").partition(".")[2])
    return f"{count / 1e6:.{digits}f}M"


def test_every_published_count_is_checked():
    printed = {name for name in list_recipes() if loaded(name).reference.parameters}
    assert printed == set(COUNTS)


@pytest.mark.slow
def test_every_other_recipe_builds():
    others = {loaded(name).model.model_dump_json() for name in {*list_recipes()} - {*COUNTS}}
    for described in map(Model.model_validate_json, others):
        source, target = (1000, 1000) if described.embeddings.sharing == "all" else (1000, 904)
        with torch.device("meta"):
            made = build(described, source_types=source, target_types=target)
        assert len(made.encoder.layers) == described.encoder.depth
        assert len(made.decoder.layers) == described.decoder.depth


def test_the_count_is_the_formulas_and_the_papers():
    for name, expected in COUNTS.items():
        recipe = loaded(name)
        count = built(recipe, *VOCABULARIES[name.rpartition("/")[0]])
        assert count == expected, name
        printed = recipe.reference.parameters
        if name in CONTRADICTED:
            assert rounded(count, printed) == CONTRADICTED[name] != printed, name
            assert printed in recipe.reference.note, name
        else:
            assert rounded(count, printed) == printed, name


def test_a_big_encoder_before_a_base_decoder():
    """Six layers each, top norms, keys and values from 1,024 to 512 instead of 512 to 512."""
    recipe = load_recipe("wang-2019/wmt16-en-de/pre-base-big-encoder")
    encoder = 6 * encoder_layer(BIG) + 2 * BIG.d
    decoder = 6 * (decoder_layer(BASE) + 2 * (BIG.d - BASE.d) * BASE.d) + 2 * BASE.d
    assert built(recipe, 1000, 1000) == encoder + decoder + 1000 * (BIG.d + BASE.d)


@pytest.mark.parametrize(
    ("size", "encoder", "decoder"),
    [(BASE, 3_152_384, 4_204_032), (BIG, 12_596_224, 16_796_672)],
)
def test_one_more_layer(size, encoder, decoder):
    heads = {"heads": 8, "feed_forward": size.f}

    def count(*depths: int) -> int:
        encoder, decoder = ({**heads, "depth": depth} for depth in depths)
        model = {"width": size.d, "encoder": encoder, "decoder": decoder}
        return built(Recipe.model_validate({"model": model}), 100, 100)

    assert count(3, 2) - count(2, 2) == encoder == encoder_layer(size)
    assert count(2, 3) - count(2, 2) == decoder == decoder_layer(size)
