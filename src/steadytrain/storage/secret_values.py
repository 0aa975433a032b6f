"""Values that stand under the name of a secret in text: ``name = value``, ``"name": value``, ``--name value``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadytrain.storage.secret_names import is_secret_name, is_sure_name, kind_of_name
from steadytrain.storage.secret_words import REPLACEMENT, kind_of_value, redacted

# The text may be a diff of a megabyte, so every repetition below is bounded, or starts and ends at a word.
_QUOTE = r"(?P<quote>\\{0,3}['\"]?)"
_NAME = rf"{_QUOTE}(?<![A-Za-z0-9_.-])-{{0,2}}(?P<name>[A-Za-z_][A-Za-z0-9_.-]{{0,99}})(?P=quote)"
_ANNOTATION = r"[A-Za-z_][\w.]{0,60}(?:\[[\w.\[\], |]{0,99}\])?(?: ?\| ?[\w.\[\]]{1,60}){0,4}"
_GIVEN = (
    # name = value, name: value, "name": value, name: str | None = value, os.environ["NAME"] = value
    re.compile(
        rf"{_NAME}\]?[ \t]{{0,99}}(?P<sign>:\s{{0,9}}{_ANNOTATION} {{0,9}}=(?!=)|:?=(?!=)|=>|:(?!:))"
        r"[ \t]{0,99}(?:\\\n[ \t]{0,99})?"
    ),
    re.compile(
        r"""(?P<quote>\\{0,3}['"])-{0,2}(?P<name>[A-Za-z_][\w.-]{0,99})(?P=quote)(?P<sign>\s{0,99},)\s{0,99}"""
        r"""(?=[rbfuRBFU]{0,2}\\{0,3}['"])"""
    ),
    re.compile(r"(?<![\w-])--?(?P<name>[A-Za-z][\w.-]{0,99})(?P<sign>[ \t]{1,9})(?!-)"),
    re.compile(r"<(?P<name>[A-Za-z_][\w.-]{0,99})(?P<sign>>)(?=[^<\s])"),
)
_BARE = r"[^\s,;)}\]]{1,400}(?:[,;)}\]]{1,9}(?![\w.-]{1,99}[ \t]?[=:])[^\s,;)}\]]{1,400}){0,9}"
_STRING = (
    r"[rbfuRBFU]{0,2}(?P<mark>'''|\"\"\"|\\{0,3}[\"'])"
    r"(?P<inside>(?:(?!(?P=mark))(?:\\.|[^\\\n]|(?<=[\"']{3})\n))*)(?P=mark)"
)
_QUOTED = re.compile(_STRING)
_LONG_QUOTED = re.compile(r"[rbfuRBFU]{0,2}(?P<mark>'''|\"\"\")(?P<inside>.{0,20000}?)(?:(?P=mark)|\Z)", re.DOTALL)
BARE_MAX = 400
_BARE_VALUE = re.compile(_BARE)
_ADDRESS_VALUE = re.compile(r"[^&\s'\"#<>]{1,4000}")
_ELEMENT_VALUE = re.compile(r"[^<\n]{1,4000}")
_BARE_REST = re.compile(r"[^\s,;)}\]'\"]*")
_LINE_REST = re.compile(r"[^\n]{0,4000}")
_GOES_ON = re.compile(r"[ \t]{0,9}(?:\\\n[ \t]{0,99})?(?:\+[ \t]{0,9})?(?=[rbfuRBFU]{0,2}[\"'])")
_LIST_GOES_ON = re.compile(r"\s{0,99}(?:[+,]\s{0,99})?(?=[rbfuRBFU]{0,2}[\"'])")
_OPENS = re.compile(r"[(\[{][ \t]{0,9}(?:\n[ \t]{0,99})?(?=[rbfuRBFU]{0,2}[\"'])")
_CODE = re.compile(
    r"(?:[a-z_][a-z0-9_]{0,40}(?:\.[A-Za-z_]\w{0,40}){1,6}[(\[]|"  # os.environ["NAME"], self.key(x), nn.Conv2d(
    r"(?:self|args|cfg|config|opt|opts|options|params|hparams|settings|conf|flags|FLAGS)(?:\.[A-Za-z_]\w{0,40}){1,6}"
    r"(?=[\s,;)}\]]|\Z)|[a-zA-Z_][a-zA-Z0-9_]{0,40}\([^()\n]{0,200}\))"
)
_LOOKED_UP = re.compile(r"(?:environ|getenv|secrets|get|pop|getpass|input|prompt|get_secret)[\[(]\s{0,9}$|\[$")
_PLAIN_VALUE = re.compile(
    r"None|''|\"\"|True|False|null|true|false|nil|~|\||>|[|>]-|\.\.\.|\$\{?\w{1,99}\}?|\$\{[\w.]{1,40}:\w{1,99}\}?|\$\(.*|%\(?\w{1,99}\)?s?|"
    r"\{\{?.{0,99}|<\w.{0,99}|(?:builtins\.)?(?:str|int|bytes|bool|float|Any|object|Path|SecretStr|Tensor|torch\.Tensor|"
    r"(?:Optional|list|dict|tuple|List|Dict|Union|Sequence|Mapping|Callable|type)\b.{0,99})"
)


def redact_values(text: str) -> str:
    """Replace what stands under the names of secrets."""
    for given in _GIVEN:
        text = _redact_values(text, given)
    return text


def _redact_values(text: str, given: re.Pattern[str]) -> str:
    """Replace the values of secret names. An innocent name is skipped without its value: ``cfg: token=x`` has two
    names.
    """
    kept, position, start = [], 0, 0
    while head := given.search(text, start):
        start = head.end("name")
        kind = kind_of_name(head["name"])
        if kind is None:
            continue
        for first, last, kind_found in _secrets_after(text, head, kind):
            if last - first >= BARE_MAX:
                rest = _BARE_REST.match(text, last)
                last = rest.end() if rest else last
            kept += [text[position:first], redacted(kind_found, text[first:last])]
            position = start = last
    return "".join([*kept, text[position:]])


def _secrets_after(text: str, head: re.Match[str], kind: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and kind of what stands after the name of a secret."""
    at = head.end()
    name = head["name"]
    if head.start() and text[head.start() - 1] in "/\\" and head["sign"] == ":" and _SAID_OF_A_FILE.match(text, at):
        return
    if text[head.start() - 1 : head.start()] in ("?", "&") and (found := _ADDRESS_VALUE.match(text, at)):
        weak = kind in ("key", "keys", "pass") and is_plain(name, found[0], quoted=True)
        if not weak and not found[0].startswith("[redacted"):
            yield found.start(), found.end(), kind_of_value(found[0]) or kind
        return
    if head["sign"] == ">":
        found = _ELEMENT_VALUE.match(text, at)
        yield from _one(found, name, kind, 0) if found else ()
        return
    goes_on = _GOES_ON
    if opens := _OPENS.match(text, at):
        at, goes_on = opens.end(), _LIST_GOES_ON
    strings = list(_strings_from(text, at, goes_on))
    if strings and head["sign"].endswith(","):
        if is_sure_name(name) or re.search(r"\d", strings[0]["inside"]):
            yield from _one(strings[0], name, kind, "inside", quoted=True)
    elif strings:
        for found in strings:
            yield from _one(found, name, kind, "inside", quoted=True)
    elif _is_code(text, head, at):
        if is_sure_name(name):
            yield from _strings_of_code(text, at, kind)
    elif (found := _rest_of_line(text, head, at)) or (found := _BARE_VALUE.match(text, at)):
        yield from _one(found, name, kind, 0)


_SAID_OF_A_FILE = re.compile(
    r"(?:no|not|a|an|this|it|is|the|has|holds|cannot|must|line|empty|too)[ ;][a-z\d(]|"
    r"(?:Permission denied|No such file or directory|Is a directory|Not a directory|File exists)(?:[\s:;.)]|\Z)"
)
"""How a sentence about ``/etc/passwd`` goes on after its colon. No password is one such word before another."""


def _is_code(text: str, head: re.Match[str], at: int) -> bool:
    if not _CODE.match(text, at) or _DRAWN.match(text, at):
        return False
    return " " in head["sign"] or " " in text[head.end("name") : at] or _closes(text, at)


_DRAWN = re.compile(r"(?=[A-Za-z]*\d+[A-Za-z]+\d+[A-Za-z]|[A-Za-z0-9]*\d(?!bit|dim)[a-z]{2,40}\d)[A-Za-z0-9]{8,40}\(")
"""No function is called so: ``x7Kd93bQ(``, ``Qlk7bx62(``. A module that has a secret for its name prints like that."""


def _closes(text: str, at: int) -> bool:
    found = _CODE.match(text, at)
    return found is not None and (found[0][-1:] == ")" or "." in found[0])


def _strings_from(text: str, at: int, goes_on: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """The string at ``at``, and those that continue it: side by side, added, or listed."""
    for _ in range(STRINGS_MAX):
        found = _LONG_QUOTED.match(text, at) or _QUOTED.match(text, at)
        if found is None:
            return
        yield found
        more = goes_on.match(text, found.end())
        if more is None or _NEXT_NAME.match(text, more.end()):
            return
        at = more.end()


STRINGS_MAX = 100
_NEXT_NAME = re.compile(r"[rbfuRBFU]{0,2}[\"'][\w.-]{1,99}[\"']\s{0,9}:")


def _strings_of_code(text: str, at: int, kind: str) -> Iterator[tuple[int, int, str]]:
    """The strings in an expression that makes the secret, but not the names under which it is looked up."""
    line = _LINE_REST.match(text, at)
    assert line is not None
    for found in _QUOTED.finditer(text, at, line.end()):
        inside = found["inside"]
        looked_up = _LOOKED_UP.search(text, max(at, found.start() - 40), found.start())
        if inside and not looked_up and not REPLACEMENT.search(inside):
            yield found.start("inside"), found.end("inside"), kind_of_value(inside) or kind


def _rest_of_line(text: str, head: re.Match[str], at: int) -> re.Match[str] | None:
    """A password alone on its line may hold spaces: ``password: correct horse battery``."""
    before = text[text.rfind("\n", max(0, head.start() - 40), head.start()) + 1 : head.start()]
    if not is_sure_name(head["name"]) or before.strip(" \t+-") or head["sign"] not in (":", "="):
        return None
    found = re.compile(r"[^\n\[\"'#,(){}=]{1,400}(?=\n|\Z)").match(text, at)
    return found if found and found[0].strip() else None


def _one(
    found: re.Match[str], name: str, kind: str, group: str | int, *, quoted: bool = False
) -> Iterator[tuple[int, int, str]]:
    value = found[group]
    is_redacted = value.lstrip("\\'\"").startswith("[redacted")  # cut after it was quoted, as at the end of a line
    if value.strip() and not is_redacted and not is_plain(name, value, quoted=quoted):
        yield found.start(group), found.end(group), kind_of_value(value) or kind


def is_plain(name: str, value: str, *, quoted: bool) -> bool:
    """Whether the value under the name of a secret is none: a type, a variable, a column, a small number."""
    sure = is_sure_name(name)
    if _PLAIN_VALUE.fullmatch(value) and not (quoted and sure and value[:1] in "~<>|%"):
        return True
    if not quoted and ((value.isidentifier() and is_secret_name(value)) or not _ALNUM.search(value)):
        return True
    kind = kind_of_name(name) or ""
    if sure or _SMALL_NUMBER.fullmatch(value):
        return not sure
    if kind in _WEAK_KINDS:
        # `key = self.key(x)` occurs in every attention layer; `wandb.login(key="...")` is the secret.
        word = re.fullmatch(r"(?=[^\d]*\d)[A-Za-z0-9+/=_-]{8,}" if kind != "pass" else r"(?=\S*\d)\S{6,}", value)
        if word is None or kind == "pass":
            return word is None
        mixed = quoted and kind == "key" and re.search("[A-Z]", value) and re.search("[a-z]", value)
        return not mixed and (len(value) < WEAK_MIN or len(re.findall(r"\d", value)) < 3 or not _ONE_WORD(value))
    if not quoted and _EXPRESSION.match(value):
        return True
    return re.fullmatch(_PIECE_OF_TEXT if quoted else r"[a-z][a-z.'_]*|[A-Za-z_][\w.]*", value) is not None and not (
        re.search(r"\d", value)
    )


_EXPRESSION = re.compile(r"[A-Za-z_][A-Za-z_.]{0,60}(?:[(\[]|[`)\]]+(?:[:.,\[]|\Z))")
"""``AddedToken(``, ``token)[0]``, ``token):``, `` True` ``: code, cut where the value ends."""
_ALNUM = re.compile(r"[^\W_]")
_SMALL_NUMBER = re.compile(r"-?\d{1,3}(\.\d{0,3})?")
_PIECE_OF_TEXT = re.compile(r"</?\|?\w{1,40}\|?>|\[\w{1,40}\]|[a-z]{1,8}|[a-z][a-z_.-]*[_-][a-z_.-]*")
_WEAK_KINDS = ("key", "keys", "pass", "sig", "sigs", "signature", "signatures")
"""Names that mostly stand for a column, a walk over the model or the parameters of a function."""
WEAK_MIN = 20
_ONE_WORD = re.compile(r"[A-Za-z0-9]*(?:[+/=_-][A-Za-z0-9+/=]*){0,2}").fullmatch
