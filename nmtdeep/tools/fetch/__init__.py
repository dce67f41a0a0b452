"""Public corpora: downloaded, unpacked and prepared as the papers did."""

from typing import Literal

Corpus = Literal[
    "wmt14-en-de",
    "wmt16-en-de-google",
    "wmt14-en-fr",
    "wmt15-cs-en",
    "wmt18-en-fi",
    "wmt18-zh-en",
    "iwslt14-de-en",
    "multi30k-en-de",
]
