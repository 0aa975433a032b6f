"""Words that look drawn at random, and replacing what has the shape of a secret."""

from __future__ import annotations

import functools
import itertools
import re
from hashlib import sha256

from steadytrain.storage.secret_shapes import PRIVATE_KEY, SHAPES

REDACTED = "[redacted: "
"""How every replacement begins: ``[redacted: github-token, 40 characters]``."""

REPLACEMENT = re.compile(r"\[redacted: [a-z0-9-]{1,40}, (\d{1,9}) characters?(?:, #[0-9a-f]{8})?\]")


_WORDS = re.compile(r"(?<![A-Za-z0-9_+/=-])[A-Za-z0-9_+/=-]{20,400}(?![A-Za-z0-9_+/=-])")
_HASH = re.compile(r"(?<![A-Za-z0-9])[0-9a-f]{32,64}(?![A-Za-z0-9])")
_DIGEST = re.compile(r"(?:sha\d{1,3}|md5|blake\w{1,4})[-:=]", re.IGNORECASE)


MARK_DIGITS = 8
"""Of the SHA-256 of a random word. It tells two such words apart, as in the names of two layers, and says less about
one than a quarter of its random bits."""

RANDOM_MIN = 20
"""Letters and digits. 20 of them hold 119 random bits; shorter words collide with names too often."""
LONG_MIN = 32
_CAMEL = re.compile(r"[A-Z][a-z]{3,}")
CAMEL_MAX = 0.4
"""Share of letters in words of camel case: about 0.15 at random, more than half in the name of a class."""
DISTINCT_MIN = 12
SEPARATORS_MAX = 0.12


def redacted(kind: str, secret: str) -> str:
    """What stands in the place of ``secret``: its kind and its length in characters."""
    # A part of it may have been taken out before.
    size = len(REPLACEMENT.sub("", secret)) + sum(int(taken[1]) for taken in REPLACEMENT.finditer(secret))
    return f"{REDACTED}{kind}, {size} character{'' if size == 1 else 's'}]"


def redact_private_keys(text: str) -> str:
    if "-----BEGIN" not in text and "PuTTY" not in text:
        return text
    return PRIVATE_KEY.sub(lambda found: redacted("private-key", found[0]), text)


def kind_of_value(value: str) -> str | None:
    """The kind of a value that is a secret by its shape alone."""
    for shape in SHAPES:
        if shape.found(value) and (found := shape.pattern.search(value)) and len(found[0]) >= len(value) - 2:
            return shape.kind
    return None


def redact_shapes(text: str) -> str:
    for shape in SHAPES:
        if shape.found(text):
            replaced = functools.partial(_shaped, kind=shape.kind, loose=shape.loose)
            text = shape.pattern.sub(replaced, text)
    return _WORDS.sub(_random, text)


_NO_WORDS = re.compile(r"[A-Z0-9]|[a-z]{20}")
"""In a secret, but not in small words that are joined by signs."""


def _shaped(found: re.Match[str], kind: str, *, loose: bool) -> str:
    whole = found[0]
    if found.re.groups and found[1].startswith(REDACTED.strip()):
        return whole
    if (loose and not _loosely_random(whole)) or not _NO_WORDS.search(whole[4:]):
        return whole
    if found.re.groups == 0:
        return redacted(kind, whole)
    start, end = found.start(1) - found.start(), found.end(1) - found.start()
    return whole[:start] + redacted(kind, found[1]) + whole[end:]


def _loosely_random(word: str) -> bool:
    body = re.sub(r"^[a-z0-9]{1,6}[-_.]", "", word)
    return sum(char.isdigit() for char in body) >= 3 and not re.search(r"[-_./]\w{1,9}[-_./]\w{1,9}[-_./]", body)


def _random(found: re.Match[str]) -> str:
    word = found[0]
    if not is_random(_HASH.sub("", word)) or _DIGEST.match(word):
        return word
    return f"{redacted('random-word', word)[:-1]}, #{sha256(word.encode()).hexdigest()[:MARK_DIGITS]}]"


def is_random(word: str) -> bool:
    """Whether ``word`` looks drawn at random from letters and digits. Hexadecimal digests and names do not.

    A random word changes between capitals, small letters and digits at about 0.6 of its places, a name in camel case at
    about 0.3; fewer of its letters are vowels. These bounds find 90 % of random words of 20 letters and digits, 99 % of
    32, 99.7 % of 40, and take 43 of 70,675 long words in the sources of torch, transformers, numpy and steadytrain for
    random (20 of them are addresses of documents).
    """
    letters = [char for char in word if char.isalnum()]
    size = len(letters)
    if size < RANDOM_MIN or len(word) - size > SEPARATORS_MAX * len(word):
        return False
    kinds = [0 if char.isdigit() else 1 if char.islower() else 2 for char in letters]
    digits, small, capital = (kinds.count(kind) for kind in range(3))
    changes = sum(one != other for one, other in itertools.pairwise(kinds)) / (size - 1)
    if all(char in "0123456789abcdefABCDEF" for char in letters) or len(set(letters)) < DISTINCT_MIN:
        return False
    if small and capital:
        named = sum(len(part) for part in _CAMEL.findall(word)) / size
        vowels = sum(char in "aeiouAEIOU" for char in letters) / (small + capital)
        return min(small, capital) > 1 and (
            (digits > 1 and changes >= (0.42 if size < LONG_MIN else 0.36) and named <= CAMEL_MAX)
            or (digits > 0 and changes >= 0.35 and named <= CAMEL_MAX and vowels <= 0.27)
            or (size >= LONG_MIN and changes >= 0.25 and named <= 0.5 and vowels <= 0.3)
        )
    return size >= LONG_MIN and digits >= 4 and changes >= 0.27
