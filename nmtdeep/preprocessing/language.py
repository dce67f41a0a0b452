"""Languages of lines by py3langid, whose model is in its package, so that nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

from nmtdeep.config.text import MosesBpe, Text
from nmtdeep.errors import UserError
from nmtdeep.text.tokenization import is_known, primary


def without_rules(text: Text) -> Iterator[str]:
    """A sentence for each language that Moses tokenizes without knowing it."""
    for language in (text.source, text.target):
        if text.input == "raw" and isinstance(text.tokenizer, MosesBpe) and not is_known(language):
            yield (
                f"Moses has no rules for {language}: its general rules and the abbreviations of "
                "English are used (text.tokenizer: sentencepiece needs no rules)"
            )


def check_languages(text: Text) -> None:
    """Check that the languages of a recipe can be identified, if it asks for that.

    Raises:
        UserError: if one of them is unknown.
        ModuleNotFoundError: if py3langid is not installed.
    """
    if text.clean.language_id is None:
        return
    known = _identifier().nb_classes
    for language in (text.source, text.target):
        if primary(language) not in known:
            what, where = f"py3langid does not know {language}", "text.clean.language_id"
            raise UserError(what, where=where, hint="set it to null")


def unchecked(languages: tuple[str, str]) -> str:
    """Why text in these languages is not checked for swapped sides; empty if it is."""
    if find_spec("py3langid") is None:
        return 'languages were not checked: pip install "nmtdeep[language-id]"'
    known, tags = _identifier().nb_classes, [*map(primary, languages)]
    unknown = [tag for tag in tags if tag not in known or tags.count(tag) > 1]
    return f"languages were not checked: py3langid does not tell {unknown[0]}" if unknown else ""


def language_of(line: str) -> str:
    """The language that a line looks like."""
    return str(_identifier().classify(line)[0])


def other_language(pair: tuple[str, str], text: Text) -> str:
    """Which side of a pair is in another language than the recipe says; empty if none is."""
    limit = text.clean.language_id
    if limit is None:
        return ""
    sides = (("source", text.source, pair[0]), ("target", text.target, pair[1]))
    for side, language, line in sides:
        found, probability = _identifier().classify(line)
        if found != primary(language) and probability >= limit:
            return f"{side} is in another language"
    return ""


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
