"""Chinese by jieba: its own words, and lines that come back."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtdeep.config.text import Text
from nmtdeep.text import chinese
from nmtdeep.text.bpe import Bpe, learn
from nmtdeep.text.bpe import join as bpe_join
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import shared_or_separate

pytest.importorskip("jieba")


def split(line):
    return chinese.jieba().tokenize(line)


def join(words):
    return chinese.jieba().detokenize(words)


def test_chinese_is_split_by_jieba_and_the_rest_by_moses():
    # The first example of jieba's own README, in its accurate mode.
    assert split("我来到北京清华大学") == ["我", "来到", "北京", "清华大学"]
    words = split("他说：“I don't know”，然后看了3.5小时NLP。")
    assert words[words.index("don") : words.index("don") + 2] == ["don", "'t"]
    assert {"3.5", "NLP", "，", "。"} <= set(words)


@pytest.mark.parametrize(
    "line",
    [
        "“你好，”他说，“世界！”……《红楼梦》（第1版）——完。",
        "列夫·托尔斯泰说：‘it’s’",
        "我用NLP工具，在2018年买了iPhone。",
        "増加了3.5%，共１２３个。",
        "𠀀𠀁㐀〇",
        "Hello, world! It's me.",
        "New York很大",
    ],
)
def test_lines_come_back_as_they_were(line):
    assert join(split(line)) == line
    spaced = "我 爱　你 and you too 吗"  # spaces between Chinese words are lost
    assert join(split(spaced)) == "我爱你and you too吗"


@settings(max_examples=200)
@given(st.text("我们在北京大学学习，。！？“”（）、０１ａ", max_size=40))
def test_chinese_text_comes_back_without_new_spaces(line):
    words = split(line)
    assert join(words) == "".join(words) == line


def test_a_pipeline_goes_from_raw_chinese_to_raw_chinese(tmp_path):
    config = Text(source="zh", target="zh", chinese="jieba")
    line = "我来到北京清华大学"
    bpe = Bpe(learn(dict.fromkeys(split(line), 2), 1))
    counts = bpe.count(dict.fromkeys(split(line), 1))
    vocabularies = shared_or_separate(counts, counts, config.vocabulary)
    TextPipeline.of(config, (bpe, bpe), vocabularies).save(tmp_path)
    loaded = TextPipeline.load(tmp_path)
    pieces = loaded.source.split(line)
    assert len(pieces) > len(split(line)) == 4
    assert loaded.target.join(pieces) == line
    assert bpe_join(loaded.source.split("我来 到北京", "tokenized")) == ["我来", "到北京"]


def test_no_cache_is_read_or_written(tmp_path):
    (tmp_path / "jieba.cache").write_bytes(b"not a cache")
    code = "from nmtdeep.text.chinese import Jieba; assert Jieba().tokenize('北京')"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["jieba.cache"]
    assert (tmp_path / "jieba.cache").read_bytes() == b"not a cache"
