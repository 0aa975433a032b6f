"""Remove secrets from whatever is written, shown or exported. What is removed keeps its kind and its length.

Three rules find a secret: the name that it stands under (``secret_names``), the shape that its vendor gave it
(``secret_shapes``), and the randomness of a long word. Every writer of files, pages, terminal lines and payloads passes
its text through here (``storage.documents``, ``cli._output``, ``exporters``), so bundles are born clean. A short secret
under an innocent name in free text is not recognized.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from steadytrain.storage.secret_names import is_secret_name, is_sure_name, kind_of_name
from steadytrain.storage.secret_phrases import redact_phrases
from steadytrain.storage.secret_values import is_plain, redact_values
from steadytrain.storage.secret_words import (
    REDACTED,
    REPLACEMENT,
    kind_of_value,
    redact_private_keys,
    redact_shapes,
    redacted,
)

__all__ = [
    *("ENVIRONMENT_KEPT", "REDACTED", "is_secret_name", "redact_arguments", "redact_environment"),
    *("redact_text", "redact_tree", "redacted"),
]

DEPTH_MAX = 64
"""Deeper JSON than this is replaced whole."""

# Text without any of these holds no secret that the rules know: most strings of a batch end here.
_SUSPECT = re.compile(
    r"[=:@<]|[A-Za-z0-9_+/.~-]{16}|(?:\s|\A)--?[A-Za-z]|[\"'],|[Bb]earer|BEARER|[Bb]asic|[Pp]ass|PASS|[Ss]ecret|SECRET|"
    r"[Tt]oken|TOKEN|[Kk]ey|KEY|[Ii]dentified|IDENTIFIED|[Ll]ogin|LOGIN|\uff1a"
)

_OWN_DIGEST = re.compile(r"(?:(?:u?int|b?float|complex|bool)\w{0,12}\[[0-9,]{0,40}\]:)?[0-9a-f]{32}")
"""The digest of a tensor or of a random state. A tape has several of each step, and none comes again."""

CLEAN_TEXTS_MAX = 1 << 16
"""More than the tensors of any model: with fewer, each file of a table read all its names anew (0.8 s for 5,000)."""

CLEAN_CHARACTERS_MAX, SHORT_CHARACTERS_MAX = 512, 64
"""The longest text that is remembered as clean, and the longest of those that :data:`_SUSPECT` does not match."""

_clean: set[str] = set()
"""Texts in which nothing was found: names and paths come again with every file that is written. Never a secret."""

ENVIRONMENT_KEPT = re.compile(
    r"^(CUDA_|CUBLAS_|CUDNN_|NCCL_|TORCH|PYTORCH_|OMP_|MKL_|KMP_|GLOO_|TRITON_|XLA_|ROCM|HIP_|HSA_|ACCELERATE_|"
    r"DEEPSPEED_|FSDP_|HF_HUB_OFFLINE$|TOKENIZERS_PARALLELISM$|TRANSFORMERS_OFFLINE$|PYTHONHASHSEED$|PYTHONPATH$|RANK$|"
    r"LOCAL_RANK$|WORLD_SIZE$|LOCAL_WORLD_SIZE$|NODE_RANK$|GROUP_RANK$|SLURM_(JOB_ID|NNODES|NTASKS|PROCID)$)"
)
"""Environment variables that a bundle keeps: those that affect numerics, kernels, the distributed layout,
or which modules a second launch finds."""


def redact_text(text: str) -> str:
    """Replace what has the shape of a secret, stands under the name of one, or is a long random word."""
    if len(text) < 4 or text in _clean or _OWN_DIGEST.fullmatch(text):
        return text
    kept, length_max = text, SHORT_CHARACTERS_MAX
    if _SUSPECT.search(text):
        kept, length_max = redact_shapes(redact_phrases(redact_values(redact_private_keys(text)))), CLEAN_CHARACTERS_MAX
    if kept == text and len(text) <= length_max:
        if len(_clean) >= CLEAN_TEXTS_MAX:
            _clean.clear()
        _clean.add(text)
    return kept


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Replace the values of secret-looking options (``--api-key X``, ``--token=X``, ``wandb_key=X``)."""
    kept: list[str] = []
    hide_next: str | None = None
    hide_more: str | None = None
    has_user = any(_USER.fullmatch(argument) for argument in arguments)
    for argument in arguments:
        kind, hide_next = hide_next, None
        is_value = bool(argument) and (not argument.startswith("-") or not is_option(argument))
        if is_value and hide_more and (hide_more.endswith(_SEVERAL) or _DRAWN.fullmatch(argument)):
            kind = hide_more  # an option that takes several
        if kind and is_value:
            hide_more = kind
            kept.append(
                argument if argument.startswith(REDACTED) else redacted(kind_of_value(argument) or kind, argument)
            )
            continue
        hide_more = None
        if has_user and _PASSWORD.fullmatch(argument):
            kept.append(f"-p{redacted('password', argument[2:])}")
            continue
        name, separator, value = argument.partition("=")
        found = kind_of_name(name) if not re.search(r"\s", name) else None
        if found is None:
            kept.append(redact_text(argument))
        elif not separator:
            hide_next = found if argument.startswith("-") else None
            kept.append(redact_text(argument))
        elif not value or value.startswith(REDACTED):
            kept.append(argument)
        else:
            kept.append(f"{name}={redacted(kind_of_value(value) or found, value)}")
    return kept


_SEVERAL = ("keys", "tokens", "secrets", "passwords", "credentials")
_DRAWN = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[^\s/.=,:]{8,}")
"""A second value of a secret option: letters and digits that are no path and no number."""

_USER = re.compile(r"-u\w*|--user(?:name)?(?:=.*)?")
_PASSWORD = re.compile(r"-p(?=\S*\d)(?=\S*[A-Za-z])[^\s=]{6,}")
"""As ``mysql -uNAME -pPASSWORD`` takes them: only beside a user."""


def is_option(argument: str) -> bool:
    return re.fullmatch(r"--?[A-Za-z][\w.-]{0,60}(=.*)?", argument, re.DOTALL) is not None


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables matched by ``ENVIRONMENT_KEPT``, with secrets replaced."""
    return {
        name: redacted("secret", value) if value and _GRANTS.search(name) else redact_tree(value, name=name)
        for name, value in sorted(environment.items())
        if ENVIRONMENT_KEPT.match(name) and (value or name != "PYTHONPATH")
    }


_GRANTS = re.compile(r"AUTH|ACCESS|CREDENTIAL|LOGIN")
"""No variable of torch, NCCL or a launcher that changes a training is called so."""


def redact_tree(value: Any, *, name: str = "") -> Any:
    """A JSON-like value with secret-named entries and secrets in strings and keys replaced, at any depth."""
    return _redact_node(value, name, {}, sure=bool(name) and is_sure_name(name), depth=0)


_Seen = dict[tuple[int, str, bool, int], tuple[Any, Any]]
"""The containers of a tree, and what became of them: a tape holds the same names and settings once for each step."""


_PLAIN = (float, bool, type(None))
"""What is never a secret: a measured number, yes or no, nothing. PINs and salts are whole numbers."""


def _redact_node(value: Any, name: str, seen: _Seen, *, sure: bool, depth: int) -> Any:
    if isinstance(value, str):
        return _redact_string(value, name)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, int):
        return redacted(kind_of_name(name) or "secret", str(value)) if sure else value
    if depth > DEPTH_MAX:
        return f"{REDACTED}nested, {DEPTH_MAX} characters]"
    if not isinstance(value, (dict, list, tuple, Mapping)):
        return value
    key = (id(value), name, sure, depth)
    known = seen.get(key)
    if known is None:
        redact = _redact_list if isinstance(value, (list, tuple)) else _redact_mapping
        # What is kept gives its id to no other.
        known = seen[key] = value, redact(value, name, seen, sure=sure, depth=depth)
    return known[1]


def _redact_mapping(value: Any, name: str, seen: _Seen, *, sure: bool, depth: int) -> dict[Any, Any]:
    kept: dict[Any, Any] = {}
    named = value.get("name", value.get("key"))
    for key, entry in value.items():
        if type(entry) in _PLAIN and key in _clean and key not in kept:
            kept[key] = entry
            continue
        inner = name if sure else str(key)
        if key == "value" and isinstance(named, str) and is_secret_name(named):
            inner = named
        elif key in _CARRIERS and name:
            inner = name
        inner_sure = sure or is_sure_name(inner)
        written = redact_text(key) if isinstance(key, str) else key
        if written is not key and written in kept:
            written = f"{written} ({len(kept)})"
        kept[written] = _redact_node(entry, inner, seen, sure=inner_sure, depth=depth + 1)
    return kept


_CARRIERS = ("value", "list", "tuple", "dict", "float")
"""The keys of a value tree (``storage.tree``): what stands under them has the name of the tree."""


def _redact_list(value: Any, name: str, seen: _Seen, *, sure: bool, depth: int) -> list[Any]:
    kept: list[Any] = []
    before = ""
    for position, entry in enumerate(value):
        if type(entry) in _PLAIN:
            kept.append(entry)
            before = ""
            continue
        inner = name
        pair = position == 1 and len(value) == 2
        if before and (pair or before.startswith("-")) and is_secret_name(before) and " " not in before:
            inner = before
        before = entry if isinstance(entry, str) else ""
        own = sure or (inner is not name and is_sure_name(inner))
        kept.append(_redact_node(entry, inner, seen, sure=own, depth=depth + 1))
    return kept


def _redact_string(value: str, name: str) -> str:
    kind = kind_of_name(name) if name and value else None
    if kind is None or REPLACEMENT.fullmatch(value) or is_plain(name, value, quoted=True):
        return redact_text(value)
    return redacted(kind_of_value(value) or kind, value)
