"""Finds plug-in pages by the words that people use: ``nan``, ``loss goes up``, ``learning rate``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from steadytrain.core.plugin_pages import Page, Pages

SAYS_NOTHING = """a an and are at be been by do does doesn't for from get gets go goes has have how i in is it its model
my network not of on or so that the this to too training was what when why with"""
STOP_WORDS = frozenset(SAYS_NOTHING.split())
SAME_MEANING: Mapping[str, tuple[str, ...]] = {
    "nan": ("nan", "nonfinite", "non-finite", "not finite"),
    "inf": ("inf", "infinite", "nonfinite", "non-finite", "not finite"),
    "infinity": ("inf", "infinite", "nonfinite", "non-finite", "not finite"),
    "lr": ("learning rate", "learning-rate", "rate"),
    "oom": ("out of memory", "out-of-memory"),
    "grad": ("gradient",),
    "grads": ("gradient",),
    "amp": ("fp16", "float16", "half precision", "half-precision", "loss scale", "autocast"),
    "fp16": ("fp16", "float16", "half precision", "half-precision", "loss scale"),
    "bf16": ("bf16", "bfloat16", "half precision", "half-precision"),
    "explode": ("explod", "exploding"),
    "explodes": ("explod", "exploding"),
    "vanish": ("vanish",),
    "overfit": ("overfit", "memoriz", "learnt by heart", "by heart"),
    "overfitting": ("overfit", "memoriz", "learnt by heart", "by heart"),
    "bn": ("batch norm", "batchnorm", "batch statistics"),
    "batchnorm": ("batch norm", "batchnorm", "batch statistics"),
    "ddp": ("rank", "replica"),
    "diverge": ("diverg",),
    "diverges": ("diverg",),
    "down": ("down", "fall", "falls", "fell", "drop"),
    "falls": ("fall", "fell", "drop"),
    "flat": ("flat", "stuck", "plateau", "no-learning"),
    "stuck": ("flat", "stuck", "plateau", "no-learning"),
    "learn": ("no-learning", "learns", "learned", "flat", "plateau"),
    "learning": ("learning", "learns", "learned"),
    "val": ("validation", "evaluation"),
    "validation": ("validation", "evaluation"),
    "rises": ("rise", "rose", "grow", "climb", "diverg"),
    "up": ("rise", "rose", "grow", "climb", "diverg"),
    "increases": ("rise", "rose", "grow", "climb", "diverg"),
    "seed": ("seed", "random"),
}
"""Short and colloquial words, with the words of the pages that mean the same."""

PHRASES: Mapping[str, str] = {"out of memory": "oom", "out-of-memory": "oom"}
"""Words that mean something only together."""

CAUSES = "causes"
"""The kind whose pages are also found by their meaning, and by the causes that look like one that was found."""

WORD_MIN, STEM_MIN = 2, 4
WHOLE_MAX = 4
"""Up to so many letters a word is matched whole, with an ending: ``nan`` is not the beginning of ``nanoGPT``."""

ENDINGS = r"(?:e?s|e?d|ing)?(?![a-z0-9])"
FEW = 4


@dataclass(frozen=True)
class Hit:
    """A page and its kind."""

    kind: Pages
    page: Page


def search(words: Iterable[str], kinds: Iterable[Pages], *, partly: bool = True) -> list[Hit]:
    """The pages that hold every word, those with more of them in the name first.

    A page counts by its name and first sentence, a cause also by its meaning and by the causes that it looks like.
    Where few pages have all of several words there, those follow that have them in their whole text; and if none has
    all of them, the pages with most, where that is more than half, and one of them in the name or first sentence.

    Args:
        words: as a user typed them; words that say nothing (``my``, ``is``) are left out.
        partly: whether a page without all of the words may be a hit.
    """
    asked = [word for word in _words(words) if len(word) >= WORD_MIN and word not in STOP_WORDS]
    if not asked:
        return []
    patterns = [_pattern(word) for word in asked]
    hits = [Hit(kind, page) for kind in kinds for page in kind.all()]
    found = _by_name([hit for hit in hits if _has_all(_head(hit.page), patterns)], patterns)
    if found:
        found += _causes(hits, found, patterns)
    if len(found) < FEW and len(patterns) > 1:
        rest = [hit for hit in hits if hit not in found]
        found += _by_name([hit for hit in rest if _has_all(_whole(hit.page), patterns)], patterns)
    if found or not partly:
        return found
    counts = {id(hit): sum(pattern.search(_whole(hit.page)) is not None for pattern in patterns) for hit in hits}
    most = max(counts.values(), default=0)
    most_of = [hit for hit in hits if counts[id(hit)] == most and _has_some(_head(hit.page), patterns)]
    return most_of if 2 * most > len(patterns) > 1 else []


def _causes(hits: Sequence[Hit], found: Sequence[Hit], patterns: Sequence[re.Pattern[str]]) -> list[Hit]:
    """The causes whose meaning has all words, then those that a found symptom names or a found cause looks like."""
    linked: set[str] = set()
    for hit in found:
        text = hit.page.sections.get("causes", "") if hit.kind.key != CAUSES else ""
        linked |= {*re.findall(r"[a-z]+(?:-[a-z0-9]+)+", text), *hit.page.traits.get("rivals", ())}
    rest = [hit for hit in hits if hit.kind.key == CAUSES and hit not in found]
    meant = [hit for hit in rest if _has_all(hit.page.sections.get("means", ""), patterns)]
    return [*meant, *(hit for hit in rest if hit.page.name in linked and hit not in meant)]


def _by_name(hits: Sequence[Hit], patterns: Sequence[re.Pattern[str]]) -> list[Hit]:
    return sorted(hits, key=lambda hit: -_in_name(hit.page, patterns))


def _has_all(text: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return all(pattern.search(text) for pattern in patterns)


def _has_some(text: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return any(pattern.search(text) for pattern in patterns)


def _words(texts: Iterable[str]) -> list[str]:
    asked = " ".join(" ".join(texts).lower().replace("_", "-").split())
    for phrase, word in PHRASES.items():
        asked = asked.replace(phrase, word)
    return re.findall(r"[\w']+", asked)


def _pattern(word: str) -> re.Pattern[str]:
    """Matches ``word``, or what means the same: short ones as whole words, others at the beginning of a word."""
    meant: Sequence[str] = SAME_MEANING.get(word, (_stem(word),))
    spelled = (re.escape(one) + (ENDINGS if len(one) <= WHOLE_MAX else "") for one in meant)
    return re.compile(rf"(?<![a-z0-9])(?:{'|'.join(spelled)})", re.IGNORECASE)


def _stem(word: str) -> str:
    """``detach`` of ``detached``, ``shuffl`` of ``shuffling``: pages are matched by the beginnings of their words."""
    for ending in ("ing", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= STEM_MIN:
            return word.removesuffix(ending)
    return word


def _head(page: Page) -> str:
    return f"{page.name}\n{page.summary}"


def _whole(page: Page) -> str:
    return "\n".join((page.name, page.summary, *page.sections.values()))


def _in_name(page: Page, patterns: Sequence[re.Pattern[str]]) -> int:
    return sum(pattern.search(page.name) is not None for pattern in patterns)
