"""Values of options that several commands have."""

from __future__ import annotations

from enum import StrEnum


class Device(StrEnum):
    """Where the model runs."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Precision(StrEnum):
    """In what numbers the model runs."""

    AUTO = "auto"
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class InputForm(StrEnum):
    """What the lines given to a model are."""

    RAW = "raw"
    TOKENISED = "tokenised"
    BPE = "bpe"
