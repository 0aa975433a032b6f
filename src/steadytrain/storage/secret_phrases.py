"""Headers, logins in addresses, and secrets that stand behind a word instead of a sign: ``machine x password y``."""

from __future__ import annotations

import re

from steadytrain.storage.secret_words import redacted

_AUTHORIZATION = re.compile(
    r"(\b(?:proxy-)?authorization\\{0,3}['\"]?\s{0,9}(?:[:=]\s{0,9}\\{0,3}['\"]?|,\s{0,9}\\{0,3}['\"])|"
    r"\b(?:bearer|basic|negotiate|apikey)[ \t]{1,9}(?=[^\s'\",]{16})(?=[^\s'\",]{0,400}\d))"
    r"((?!\[redacted)(?:[A-Za-z][A-Za-z0-9-]{1,20}[ \t]{1,9})?(?!\[redacted)[^\s'\"\\]{6,}"
    r"(?:,[ \t]{0,9}[^\s'\"\\]{1,999}){0,9})",
    re.IGNORECASE,
)
_COOKIES = re.compile(r"(\b(?:set-)?cookie:[ \t]{0,9})((?![ \t]|\[redacted)[^\n'\"]{4,4000})", re.IGNORECASE)
_ADDRESS_LOGIN = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)([^/\s'\"]{1,1000})@", re.IGNORECASE)
_NO_MORE = r"(?!\[redacted)"
_NAMED = r"(?:password|passwd|passphrase|secret|token|api[ _-]?key|access[ _-]?key)"
_WITH_DIGIT = r"(?=[^\s'\"`]{0,99}\d)[^\s'\"`\[]{6,400}"
_PASSWORD = r"(?:password|passwd|passphrase|api[ _-]?key|access[ _-]?key)"
_FOREIGN = (
    r"(?:contrase\u00f1a|\u5bc6(?:\u7801|\u78bc)|\u30d1\u30b9\u30ef\u30fc\u30c9|\u043f\u0430\u0440\u043e\u043b\u044c)"
)
"""``password`` in Spanish, Chinese, Japanese and Russian; ``secret_names`` has the names in ASCII."""
_SPOKEN = tuple(
    re.compile(f"({before})({_NO_MORE}{secret})")
    for before, secret in (
        (
            r"(?i:\bmachine\s{1,9}\S{1,200}\s{1,9}(?:login\s{1,9}\S{1,200}\s{1,9})?"
            r"(?:account\s{1,9}\S{1,99}\s{1,9})?password\s{1,9})",
            r"\S{1,400}",
        ),
        (r"(?i:\blogin\s{1,9}\S{1,200}\s{1,9}password\s{1,9})", r"\S{1,400}"),
        (r"(?i:\b(?:identified by|password)\s{1,9}')", r"[^'\n]{1,400}(?=')"),
        (rf"(?i:\b{_NAMED}s?\s{{1,3}}(?:is|was|of)\s{{1,3}}['\"`]?)", _WITH_DIGIT),
        (rf"(?i:\b{_NAMED}\b[a-z ]{{1,24}}[:=]\s{{0,3}}['\"`]?)", _WITH_DIGIT),
        (r"\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =]?['\"]?[^\s:'\"]{1,99}:", r"[^\s'\"]{1,400}"),
        (r"\b(?:mysql|mysqldump|mariadb|sshpass|docker login)\b[^\n]{0,200}?\s-p\s?['\"]?", r"[^\s'\"]{4,400}"),
        (rf"(?i:(?<![\w-]){_PASSWORD}(?:\t{{1,9}}| {{0,3}}-> {{0,3}}|%3D)['\"`]?)", _WITH_DIGIT),
        (rf"(?i:{_FOREIGN}\s{{0,3}}[:=\uff1a]\s{{0,3}}['\"`]?)", r"[^\s'\"`\[]{4,400}"),
        (rf"(?i:\b{_NAMED}[\"']?\s{{1,9}}value\s{{0,3}}=\s{{0,3}}[\"'])", r"[^\"'\n\[]{1,400}"),
        (r"\bsetenv\s{1,9}\w{0,60}(?:PASS|PASSWORD|PW|SECRET|TOKEN|KEY)\s{1,9}['\"]?", r"[^\s'\"\[]{4,400}"),
        (
            r"\.login\(\s{0,9}(?:user(?:name)?=)?[\"'][^\"'\n]{1,200}[\"'],\s{0,9}(?:password=)?[\"']",
            r"[^\"'\n\[]{1,400}",
        ),
        (r"(?<![\w.:/-])[\w.-]{1,99}\.[\w-]{1,60}:\d{2,5}:[\w*.-]{1,60}:[\w.-]{1,60}:", _WITH_DIGIT),
        (r"\bwandb\s{1,9}login\s{1,9}(?:--?[a-z]{1,20}\s{1,9}){0,4}", r"[^\s'\"-][^\s'\"]{15,400}"),
    )
)


def redact_phrases(text: str) -> str:
    """Headers, logins in addresses, and what stands behind a word instead of a sign."""
    text = _AUTHORIZATION.sub(lambda found: found[1] + redacted("authorization", found[2]), text)
    text = _COOKIES.sub(lambda found: found[1] + redacted("cookie", found[2]), text)
    text = _ADDRESS_LOGIN.sub(_login, text)
    for spoken in _SPOKEN:
        text = spoken.sub(lambda found: found[1] + redacted("password", found[2]), text)
    return text


def _login(found: re.Match[str]) -> str:
    return f"{found[1]}{redacted('login', found[2])}@" if not found[2].startswith("{") else found[0]
