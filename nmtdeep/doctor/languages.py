"""Which of two languages a text is in, guessed from words that every sentence has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

# Words of one of these scripts are not set apart: each letter counts as a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]|[^\W\d_]+")
# A side counts as the other language if it has so many times more of the other one's words, and
# they are so large a part of it.
FACTOR, LEAST = 2.0, 0.02
# Frequent words of a split that are told from those of another.
FREQUENT = 1000
PROFILES = {
    "ar": "في من على إلى أن عن مع هذا هذه التي الذي لا ما كان و",
    "bg": "на и в да се за от не е с по са че това като",
    "cs": "a se v na je že to s z do o i pro jsou jako byl ale k od",
    "da": "og i at er en det af til på for med der den som ikke de et var",
    "de": "der die und das in den von zu mit ist auf für nicht ein eine im dem sich des auch",
    "el": "και το να του η της με που για την ο από τα στο είναι",
    "en": "the of and to in is that for it on with as are be this was by at not an from",
    "es": "de la que el en y los del se las por un para con no una su al es lo",
    "et": "ja on ei et ka see kui oli ning mis ta aga või oma",
    "fi": "ja on ei että se oli hän mutta myös kun tai joka ovat niin kuin sen",
    "fr": "de la le et les des en un du une que est dans pour qui au sur par pas ce",
    "he": "של את על לא כי זה הוא גם עם היא או אבל כל",
    "hi": "के में की है और से का को पर यह नहीं एक हैं कि",
    "hu": "a az és hogy nem is egy van meg de ez ha csak volt mint",
    "it": "di e che la il un per in una non è del con le si da dei sono al come",
    "ja": "の に は を た が で て と し れ さ い も",
    "lt": "ir kad į yra su tai iš bet ne kaip buvo už apie",
    "lv": "un ir ka ar no uz par tas bet kas arī to vai",
    "nl": "de van het een en in is dat op te zijn met voor niet die aan er om ook",
    "no": "og i det er som på en til å av for at med de ikke den har var",
    "pl": "i w na z się nie do to że jest o jak po co ale od za są",
    "pt": "de a que o e do da em um para com não uma os no se na por mais as",
    "ro": "de și în a la cu pe că nu din un o mai pentru este care sunt",
    "ru": "и в не на что с по как он это а но к из у за от так",
    "sk": "a sa v na je že to s z do o aj pre sú ako bol ale k od",
    "sl": "in je v na da se za ne so z ki pa to s kot tudi bi",
    "sv": "och i att det som en på är av för med till den har de inte om ett",
    "tr": "ve bir bu da de için ile olarak çok daha ne gibi var en olan",
    "uk": "і в на не що з до та як за це він від є у але",
    "zh": "的 一 是 不 了 在 人 有 我 他 这 中 大 来 和 为 们",
}


class Profile(NamedTuple):
    """Words that tell source and target of a pair of languages apart."""

    source: frozenset[str]
    target: frozenset[str]


def words(line: str) -> list[str]:
    """Words of a line in small letters, for counting."""
    return _WORD.findall(line.lower())


def known_profile(source: str, target: str) -> Profile | None:
    """What is known of two languages; None if one of them is not."""
    if source not in PROFILES or target not in PROFILES or source == target:
        return None
    return _apart(PROFILES[source].split(), PROFILES[target].split())


def profile_of(source: Counter[str], target: Counter[str]) -> Profile:
    """What one split tells of the languages of others: the frequent words of each side alone."""
    sides = ([word for word, _ in one.most_common(FREQUENT)] for one in (source, target))
    return _apart(*sides)


def _apart(source: Iterable[str], target: Iterable[str]) -> Profile:
    mine, theirs = frozenset(source), frozenset(target)
    return Profile(mine - theirs, theirs - mine)


def misplaced(source: Counter[str], target: Counter[str], profile: Profile) -> tuple[bool, bool]:
    """Whether the source looks like the target's language, and the target like the source's."""
    return (
        _looks_like(source, profile.target, profile.source),
        _looks_like(target, profile.source, profile.target),
    )


def _looks_like(found: Counter[str], other: frozenset[str], own: frozenset[str]) -> bool:
    total = max(found.total(), 1)
    shares = [sum(found[word] for word in known) / total for known in (other, own)]
    return shares[0] >= LEAST and shares[0] > FACTOR * shares[1]
