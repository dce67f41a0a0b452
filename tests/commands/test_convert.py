"""`nmtdeep convert` on the command line."""

import torch
from tools.convert.fairseq_like import FairseqLike
from tools.convert.marian_like import MarianLike


def test_a_converted_checkpoint_translates_and_is_replaced_only_on_request(nmtdeep, tmp_path):
    torch.save(FairseqLike(history="dlcl").file(), tmp_path / "dlcl.pt")
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("".join(f"w{number} 1\n" for number in range(7)))
    words = ["convert", "fairseq", tmp_path / "dlcl.pt", dictionary, "-o", tmp_path / "out"]
    done = nmtdeep(*words)
    assert done.code == 0, done.err
    assert "3+2 layers, width 8, 11 and 11 types, en to de, bpe text" in done.out
    translated = nmtdeep("translate", "-m", tmp_path / "out", stdin=b"w1 w2\n\nw3\n")
    assert translated.code == 0, translated.err
    assert translated.out.count("\n") == 3
    assert "dlcl" in nmtdeep("inspect", tmp_path / "out").out
    assert nmtdeep(*words).code == 2
    assert nmtdeep(*words, "--overwrite").code == 0
    (tmp_path / "mine").mkdir()
    assert nmtdeep(*words[:-1], tmp_path / "mine", "--overwrite").code == 2


def test_a_converted_marian_model_translates_grows_and_is_exported(nmtdeep, tmp_path):
    theirs, out = MarianLike().write(tmp_path / "opus-mt"), tmp_path / "out"
    done = nmtdeep("convert", "marian", theirs, "-o", out)
    assert done.code == 0, done.err
    assert "3+2 layers, width 8, 42 and 42 types, en to de, raw text" in done.out
    lines = b"a line of text\n\nsome words\n"
    translated = nmtdeep("translate", "-m", out, stdin=lines)
    assert translated.out.count("\n") == 3, translated.err
    for words in (
        ("grow", out, "--layers", "6", "--out", tmp_path / "grown"),
        ("inspect", tmp_path / "grown"),
        ("export", out, "--to", "huggingface", "-o", tmp_path / "exported"),
    ):
        done = nmtdeep(*words)
        assert done.code == 0, done.err
    unconverted = nmtdeep("translate", "-m", theirs, stdin=lines)
    assert unconverted.code == 2
    assert f"nmtdeep convert marian {theirs}" in unconverted.err
