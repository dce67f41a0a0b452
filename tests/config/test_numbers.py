"""Every numeric key of every variant, with numbers that break programs."""

import math
from typing import Annotated, get_args, get_origin

import pytest

from nmtdeep.config.load import from_mapping, resolve
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import dump
from nmtdeep.config.variant import tag_of, variants
from nmtdeep.errors import ConfigError

# As they are written in YAML; what each is as a number.
WRITTEN = {
    "1e400": math.inf,
    "-1e400": -math.inf,
    ".inf": math.inf,
    ".nan": math.nan,
    "-0": 0,
    "-0.0": 0.0,
    "1e-400": 0.0,
    "1e308": 1e308,
    "-1": -1,
    "9" * 30: int("9" * 30),
    "9" * 5000: None,
    "1e30": 1e30,
}


def numeric(section=Recipe, at=()):
    """Overrides that lead to each numeric field, the choice of its variant included."""
    for name, field in section.model_fields.items():
        path = (*at, name)
        inner = variants(field.annotation)
        for variant in inner:
            chosen = f"{'.'.join(path)}.type={tag_of(variant)}" if tag_of(variant) else ""
            for inner_path in numeric(variant, path):
                yield (*filter(None, (chosen,)), *inner_path)
        if not inner and {int, float} & set(_plain(field.annotation)):
            yield (".".join(path),)


def _plain(annotation):
    if get_origin(annotation) is Annotated or get_args(annotation):
        for part in get_args(annotation):
            yield from _plain(part)
    else:
        yield annotation


LISTS = ("model.decoder.sublayers", "training.stages")
FIELDS = [path for path in dict.fromkeys(numeric()) if not path[-1].startswith(LISTS)]


@pytest.fixture
def base(folder):
    (folder / "base.yaml").write_text("description: base\n")
    return "base.yaml"


@pytest.mark.parametrize("path", FIELDS, ids=" ".join)
def test_a_number_is_finite_or_rejected_by_name(base, path):
    *chosen, key = path
    for written, number in WRITTEN.items():
        try:
            recipe = resolve(base, [*chosen, f"{key}={written}"]).recipe
        except ConfigError as error:
            assert key.rpartition(".")[2] in str(error)
            assert max(map(len, str(error).split("\n"))) < 500
            continue
        assert number is not None and math.isfinite(number)
        assert from_mapping(recipe.model_dump(mode="json")) == recipe
        assert "inf" not in dump(recipe).split() and "nan" not in dump(recipe).split()


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ("model.encoder.depth=10001", "at most 10000"),
        ("training.seed=1000000000000001", "at most 1000000000000000"),
        ("decoding.beam=1001", "at most 1000"),
        ("training.clip_norm=1e400", "finite"),
        ("model.norm_epsilon=1e-400", "more than 0.0"),
        (f"model.decoder.sublayers=[cross_attention{', feed_forward' * 16}]", "at most 16"),
    ],
)
def test_limits_are_named(base, change, limit):
    with pytest.raises(ConfigError, match=rf"{change.partition('=')[0]}: must be .*{limit}"):
        resolve(base, [change])
