"""The shipped demo corpus is the described one."""

import gzip
import hashlib
import json
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[1] / "nmtdeep" / "demo" / "corpus"
FILES = ["train.en.gz", "train.de.gz", "dev.en", "dev.de", "test.en", "test.de"]


def test_files_are_the_described_ones():
    described = json.loads((CORPUS / "corpus.json").read_text("utf-8"))
    assert sorted(described["files"]) == sorted(FILES)
    for name, entry in described["files"].items():
        data = (CORPUS / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode("utf-8")
        assert text.endswith("\n")
        assert text.count("\n") == entry["lines"] == described["pairs"][name.partition(".")[0]]
    assert "Apache License, Version 2.0" in (CORPUS / "NOTICE").read_text("utf-8")
