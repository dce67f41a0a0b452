"""Every published row has as many parameters as the paper prints, and as the formulas say."""

from __future__ import annotations

import pytest
import torch

from nmtdeep.config import Recipe
from nmtdeep.config.load import list_recipes, load_recipe
from nmtdeep.model.build import build

# Vocabulary sizes (source, target) that the printed counts of each table imply; the papers do not
# print them. Wang et al. 2019 say "44k + 33k" of NIST; 78.5k in all agrees with every row.
VOCABULARIES = {
    "wang-2019/wmt16-en-de": (33_950, 33_950),
    "wang-2019/nist-zh-en": (44_900, 33_600),
    "wang-2019/wmt18-zh-en": (60_000, 53_285),
    "li-2020/wmt16-en-de": (33_300, 33_300),
    "li-2020/wmt14-en-fr": (44_500, 44_500),
    "zhang-2019/wmt14-en-de": (30_000, 25_022),
}
# Printed as 63M, but the table's other rows fix the vocabulary, and with it 61M.
CONTRADICTED = {"li-2020/wmt16-en-de/pre-base": "61M"}
BASE, BIG = (512, 2048), (1024, 4096)
# What each row of the tables is: sizes and depths of encoder and decoder.
ROWS = {
    "wang-2019/wmt16-en-de/post-base": (*BASE, 6, 6),
    "wang-2019/wmt16-en-de/pre-base": (*BASE, 6, 6),
    "wang-2019/wmt16-en-de/post-big": (*BIG, 6, 6),
    "wang-2019/wmt16-en-de/pre-big": (*BIG, 6, 6),
    "wang-2019/wmt16-en-de/post-20": (*BASE, 20, 6),
    "wang-2019/wmt16-en-de/pre-20": (*BASE, 20, 6),
    "wang-2019/nist-zh-en/pre-base": (*BASE, 6, 6),
    "wang-2019/nist-zh-en/pre-big": (*BIG, 6, 6),
    "wang-2019/nist-zh-en/pre-25": (*BASE, 25, 6),
    "wang-2019/wmt18-zh-en/post-base": (*BASE, 6, 6),
    "wang-2019/wmt18-zh-en/pre-base": (*BASE, 6, 6),
    "wang-2019/wmt18-zh-en/pre-big": (*BIG, 6, 6),
    "li-2020/wmt16-en-de/pre-base": (*BASE, 6, 6),
    "li-2020/wmt16-en-de/pre-big": (*BIG, 6, 6),
    "li-2020/wmt16-en-de/deep-24": (*BASE, 24, 6),
    "li-2020/wmt16-en-de/deep-48": (*BASE, 48, 6),
    "li-2020/wmt14-en-fr/pre-base": (*BASE, 6, 6),
    "li-2020/wmt14-en-fr/pre-big": (*BIG, 6, 6),
    "li-2020/wmt14-en-fr/deep-24": (*BASE, 24, 6),
    "li-2020/wmt14-en-fr/deep-48": (*BASE, 48, 6),
    "zhang-2019/wmt14-en-de/post-base": (*BASE, 6, 6),
    "zhang-2019/wmt14-en-de/pre-base": (*BASE, 6, 6),
    "zhang-2019/wmt14-en-de/pre-12": (*BASE, 12, 12),
    "zhang-2019/wmt14-en-de/pre-20": (*BASE, 20, 20),
}


def formula(name: str) -> int:
    """Layers, top norms and embeddings, term by term."""
    d, f, encoder_depth, decoder_depth = ROWS[name]
    attention = 4 * (d * d + d)
    feed_forward = d * f + f + f * d + d
    norm = 2 * d
    encoder = encoder_depth * (attention + feed_forward + 2 * norm)
    decoder = decoder_depth * (2 * attention + feed_forward + 3 * norm)
    top = 0 if "/post-" in name else 2 * norm
    source, target = VOCABULARIES[name.rpartition("/")[0]]
    shared = source == target
    tables = target * d if shared else (source + target) * d
    bias = d if name.startswith("zhang-2019") else 0
    return encoder + decoder + top + tables + bias


def built(recipe: Recipe, source: int, target: int) -> int:
    """Parameters of the model on the meta device, where weights take no memory."""
    with torch.device("meta"):
        model = build(recipe.model, source_types=source, target_types=target)
    return sum(parameter.numel() for parameter in model.parameters())


def rounded(count: int, printed: str) -> str:
    """A count in millions with as many digits as the paper prints."""
    digits = len(printed.removesuffix("M").partition(".")[2])
    return f"{count / 1e6:.{digits}f}M"


def test_every_published_count_is_checked() -> None:
    printed = {
        entry.name for entry in list_recipes() if load_recipe(entry.name).reference.parameters
    }
    assert printed == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_the_count_is_the_formulas_and_the_papers(name: str) -> None:
    recipe = load_recipe(name)
    count = built(recipe, *VOCABULARIES[name.rpartition("/")[0]])
    assert count == formula(name)
    printed = recipe.reference.parameters
    if name in CONTRADICTED:
        assert rounded(count, printed) == CONTRADICTED[name] != printed
        assert printed in recipe.reference.note
    else:
        assert rounded(count, printed) == printed


@pytest.mark.parametrize(
    ("size", "encoder", "decoder"),
    [(BASE, 3_152_384, 4_204_032), (BIG, 12_596_224, 16_796_672)],
)
def test_one_more_layer(size: tuple[int, int], encoder: int, decoder: int) -> None:
    heads = {"heads": 8, "feed_forward": size[1]}

    def count(*depths: int) -> int:
        encoder, decoder = ({**heads, "depth": depth} for depth in depths)
        model = {"width": size[0], "encoder": encoder, "decoder": decoder}
        return built(Recipe.model_validate({"model": model}), 100, 100)

    assert count(3, 2) - count(2, 2) == encoder
    assert count(2, 3) - count(2, 2) == decoder
