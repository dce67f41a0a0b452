"""What Moses would tear apart comes back as it was, inside the word that it belongs to."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nmtdeep.config.load import read_config, resolve
from nmtdeep.config.text import Text
from nmtdeep.text.pipeline import TextPipeline, words_of
from nmtdeep.text.protection import LETTER, Protected
from nmtdeep.text.tokenization import moses
from nmtdeep.text.vocabulary import Vocabulary

ORIGINAL = {"type": "moses_bpe", "rules": "original"}


def back(language, line):
    tokenizer = Protected(moses(language))
    return tokenizer.detokenize(tokenizer.tokenize(line))


# A language, a line, and what must be one word, or inside one, where that is not all of them.
WHOLE = [
    ("fa", "می\u200cخواهم بروم؟", "می\u200cخواهم"),
    ("ar", "مُحَمَّدٌ رَسُولٌ، نَعَمْ؟", "مُحَمَّدٌ"),
    ("he", "שלום!\u200f \u200e(abc)\u200f \u200e[x]\u200f.", None),
    ("hi", "नमस्ते दुनिया, क्षत्रिय कर\u094d\u200dता।", "कर\u094d\u200dता"),
    ("th", 'ผู้ใช้ไม่ได้ตั้งค่า "ก่" (ก่)', "ผู้ใช้ไม่ได้ตั้งค่า"),
    ("km", "អ្នក\u200bប្រើ មិន\u200bបាន។", "អ្នក\u200bប្រើ"),
    ("vi", "Tiếng Việt ở đây.", "Việt"),
    ("de", "Donau\u00addampfschiff", "Donau\u00addampfschiff"),
    ("en", "a\u200bb\ufeffc \ufeffd \u2060", "a\u200bb\ufeffc"),
    ("en", "q\u0308x \u0301 a\u20dd", "q\u0308x"),
    ("de", "Meine 👩\u200d👩\u200d👧 hier", "👩\u200d👩\u200d👧"),
    ("de", "🇩🇪 und 🇩🇪🇫🇷!", "🇩🇪🇫🇷"),
    ("en", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f won", None),
    ("en", "good 👍🏽 (👍🏽), 👨🏽\u200d💻!!! Wow!👍🏽", "👨🏽\u200d💻"),
    (
        "en",
        "1\ufe0f\u20e3 #\ufe0f\u20e3 *\ufe0f\u20e3 ❤\ufe0f\u200d🔥 🙂\u200d↔\ufe0f",
        "#\ufe0f\u20e3",
    ),
    ("de", "葛\U000e0100 45°C ©2024", "45°C"),
    ("en", "Use %(name)s's file, %s and {0}, ${x}: {{ name }}.", "%(name)s"),
    ("de", '%d/%d, {0}:{1} "{a}","{b}" #%d <%s> *{x}* %-5.2f%% %1$s%2$@ %1%', "%1$s%2$@"),
    ("de", "%{name} %n #{x} {} {user.name} {n:>10} %<a>s %@", "{user.name}"),
    ("en", "<b>bold</b>, <br/> <0>link</0> &amp; &#39;x&#x27; &nbsp;", "<b>bold</b>"),
    ("fr", "l'{0} <a href=\"http://a/b?c=d&e=f\" class='x y' disabled>x</a> !", "</a>"),
    (
        "en",
        "See http://a/b?c=d. Or (https://x.org/A_(b)), www.foo.de/x; mqtt://y!",
        "http://a/b?c=d",
    ),
    (
        "en",
        "Mail joe.x+y@foo-bar.co.uk, <a@b.de>; @user #tag my_var __init__",
        "joe.x+y@foo-bar.co.uk",
    ),
    ("zh", "见http://x.y。", "http://x.y"),
    ("en", f"{LETTER} {{0}} {LETTER}{LETTER}a", None),
]


@pytest.mark.parametrize(("language", "line", "word"), WHOLE)
def test_it_comes_back_as_it_was(language, line, word):
    assert unicodedata.is_normalized("NFC", line)
    assert back(language, line) == line
    if word is not None:
        assert any(word in each for each in Protected(moses(language)).tokenize(line))


@pytest.mark.parametrize("line", ["a < b and c > d", "5 % of 10 & more", "{ a, b }", "a @ b # c"])
def test_other_signs_are_words(line):
    expected = moses("en").tokenize(line)
    assert Protected(moses("en")).tokenize(line) == expected
    assert len(expected) >= 4


def test_punctuation_beside_a_part_is_a_word():
    words = Protected(moses("en")).tokenize('See ("http://a.b/c"), {0}; %s: "%d".')
    assert " ".join(words) == 'See ( " http://a.b/c " ) , {0} ; %s : " %d " .'


def test_normalizing_leaves_parts_alone():
    tokenizer = Protected(moses("de"))
    assert tokenizer.normalize("„%(a)s“ (http://x/(y)z) »a«") == '"%(a)s" (http://x/(y)z) "a"'


@pytest.mark.parametrize("language", ["de", "fr", "en"])
def test_a_number_keeps_its_value(language):
    line = "10\u00a0000\u00a0000 x 030\u00a0123"
    original = moses(language).normalize(line)
    assert "10.000" in original or "10,000" in original
    assert words_of(line, Text(), language, "raw") == ["10", "000", "000", "x", "030", "123"]
    assert Protected(moses(language)).normalize(line).split() == line.split()


pieces = st.sampled_from(
    "< > </ /> % { } ( ) [ ] \" ' & ; . , : ! ? - _ @ # / = \\ $ a b. s 1 é \u0301 \u200d \u200b "
    f"\ufeff 👍 🏽 🇩 ™ 猫 ก ่ <b> %s {{0}} http:// www. &amp; a@b.de {LETTER} \u00a0 … „ “ »".split(
        " "
    )
)


@settings(max_examples=50)
@given(st.lists(pieces | st.just(" ")).map("".join) | st.text())
@example("<a b='c d'")
@pytest.mark.parametrize("language", ["en", "fr", "cs"])
def test_no_character_is_lost_and_order_stays(language, line):
    def visible(text):
        return "".join(each for each in text if not each.isspace() and each >= " ")

    tokenizer = Protected(moses(language))
    words = tokenizer.tokenize(line)
    assert all(word.split() == [word] for word in words)
    if "DOTMULTI" not in line:
        assert visible("".join(words)) == visible(line) == visible(tokenizer.detokenize(words))


@pytest.mark.parametrize("line", ["Türen öffnen", "Tiếng Việt ở đây", "Příliš žluťoučký kůň", "각"])
def test_decomposed_letters_are_composed(line):
    torn = unicodedata.normalize("NFD", line)
    assert torn != line
    for more in ({}, {"normalize": False}, {"lowercase": True}):
        config = Text(**more)
        for language in ("en", "de", "vi", "ko"):
            words = words_of(line, config, language, "raw")
            assert words_of(torn, config, language, "raw") == words
        types = Vocabulary.build({}, config.vocabulary)
        side = TextPipeline.of(config, (None, None), (types, types)).target
        assert side.reference(torn) == (line.lower() if config.lowercase else line)
    assert words_of(torn, Text(tokenizer=ORIGINAL), "de", "raw") != line.split()


@pytest.mark.parametrize(
    "tokenizer", ["", "  tokenizer: moses_bpe\n", "  tokenizer:\n    type: moses_bpe\n"]
)
def test_a_stored_recipe_keeps_its_rules(tmp_path, tokenizer):
    (tmp_path / "config.yaml").write_text(f"text:\n  source: en\n{tokenizer}")
    assert read_config(tmp_path).text.tokenizer.rules == "original"
    # A training takes them from its data, unless an override says otherwise.
    path = str(tmp_path / "config.yaml")
    made = Text(tokenizer=ORIGINAL).model_dump(mode="json")
    for name in (path, "multi30k-en-de-deep"):
        assert resolve(name, text=made).recipe.text.tokenizer.rules == "original"
    more = ["text.tokenizer.rules=protected"]
    assert resolve(path, more, text=made).recipe.text.tokenizer.rules == "protected"
