"""Models in the formats of other programs."""

from typing import Literal

# Number formats of weights, by CTranslate2's names.
Quantization = Literal[
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
    "float16",
    "bfloat16",
    "float32",
]
