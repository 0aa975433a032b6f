"""The role of each field of a row: text, tokens, labels, a class, numbers. Guessed from the first rows, or set by the
user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadytrain.checks.data.data_check import Row
from steadytrain.core.errors import UsageError

GUESSED_FROM_MAX = 256
FEATURES_MAX = 256
"""Number of numeric columns that are checked; further ones are ignored."""

_TEXT = ("text", "content", "document", "sentence", "review", "body", "question", "source_text")
_PROMPT = ("prompt", "instruction", "input", "question", "query")
_COMPLETION = ("completion", "response", "output", "answer", "target", "chosen")
_MESSAGES = ("messages", "conversations", "conversation", "dialog")
_TOKENS = ("input_ids", "tokens", "token_ids", "ids")
_CLASS = ("label", "labels", "class", "category", "target", "y")
_SOURCE = ("source", "dataset", "domain", "subset", "origin", "corpus")
_IDENTITY = ("id", "_id", "uuid", "idx", "index", "doc_id", "key")


@dataclass(frozen=True)
class Roles:
    """Field names by role, None if there is no such field."""

    text: str | None = None
    prompt: str | None = None
    completion: str | None = None
    messages: str | None = None
    tokens: str | None = None
    labels: str | None = None
    attention: str | None = None
    classes: str | None = None
    sources: str | None = None
    identity: str | None = None
    features: tuple[str, ...] = ()

    @property
    def has_text(self) -> bool:
        return self.text is not None or self.messages is not None or self.completion is not None

    def to_json(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in named.items() if value}


def roles_of(rows: Sequence[Row], *, text: str | None, labels: str | None) -> Roles:
    """The roles of the fields, guessed from the first of ``rows``; ``text`` and ``labels`` are the user's choice.

    Raises:
        UsageError: a field that the user named is in none of these rows.
    """
    samples = _samples(rows[:GUESSED_FROM_MAX])
    for option, name in (("--text", text), ("--labels", labels)):
        if name is not None and name not in samples:
            known = ", ".join(sorted(samples)[:12]) or "none"
            raise UsageError(f"{option} {name}: no such field in the first rows; their fields are {known}")
    tokens = _first(samples, _TOKENS, _is_ids)
    messages = prompt = completion = None
    if not (text or tokens):  # with tokens, a text beside them adds nothing
        messages, prompt, completion, text = _written(samples)
    token_labels = classes = None
    if labels is not None and _is_ids(samples[labels]):
        token_labels = labels
    elif labels is not None:
        classes = labels
    else:
        token_labels = _first(samples, ("labels", "label_ids", "targets"), _is_ids) if tokens else None
        classes = _first(samples, [name for name in _CLASS if name != completion], _is_class)
    taken = {text, prompt, completion, messages, tokens, token_labels, classes}
    identity = _first(samples, _IDENTITY, _is_class)
    features = [
        name
        for name, values in samples.items()
        if name not in taken and name != identity and name != "attention_mask" and _is_numeric(values)
    ]
    return Roles(
        text=text,
        prompt=prompt,
        completion=completion,
        messages=messages,
        tokens=tokens,
        labels=token_labels,
        attention="attention_mask" if tokens and _is_ids(samples.get("attention_mask", [])) else None,
        classes=classes,
        sources=_first(samples, [name for name in _SOURCE if name not in taken], _is_text),
        identity=identity,
        features=tuple(features[:FEATURES_MAX]),
    )


def _written(samples: Mapping[str, list[Any]]) -> tuple[str | None, str | None, str | None, str | None]:
    """The fields with text: messages, else prompt and completion, else text, whichever the rows have."""
    messages = _first(samples, _MESSAGES, _is_messages)
    if messages:
        return messages, None, None, None
    completion = _first(samples, _COMPLETION, _is_text)
    prompt = _first(samples, _PROMPT, _is_text) if completion else None
    if prompt is not None:
        return None, prompt, completion, None
    text = _first(samples, _TEXT, _is_text) or _longest_text(samples, besides=(*_CLASS, *_SOURCE, *_IDENTITY))
    return None, None, None, text


def _samples(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The values of each field, without missing and null ones."""
    samples: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in (row.fields or {}).items():
            kept = samples.setdefault(name, [])
            if value is not None:
                kept.append(value)
    return samples


def _first(samples: Mapping[str, list[Any]], names: Sequence[str], fits: Callable[[Sequence[Any]], bool]) -> str | None:
    by_lower = {name.lower(): name for name in reversed([*samples])}
    return next((by_lower[name] for name in names if name in by_lower and fits(samples[by_lower[name]])), None)


def _longest_text(samples: Mapping[str, list[Any]], besides: Sequence[str]) -> str | None:
    lengths = {
        name: sum(map(len, values)) / len(values)
        for name, values in samples.items()
        if _is_text(values) and name.lower() not in besides
    }
    return max(lengths, key=lambda name: lengths[name]) if lengths else None


def _mostly(values: Sequence[Any], fits: Callable[[Any], bool]) -> bool:
    return bool(values) and 2 * sum(map(fits, values)) > len(values)


def _is_text(values: Sequence[Any]) -> bool:
    return _mostly(values, lambda value: isinstance(value, str))


def _is_class(values: Sequence[Any]) -> bool:
    return _mostly(values, lambda value: isinstance(value, (str, int, bool, np.integer)))


def _is_messages(values: Sequence[Any]) -> bool:
    return _mostly(
        values, lambda value: isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)
    )


def _is_ids(values: Sequence[Any]) -> bool:
    return _mostly(values, is_ids)


def is_ids(value: Any) -> bool:
    """Whether a value is a sequence of integers."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "iu"
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(isinstance(entry, int) and not isinstance(entry, bool) for entry in value[:64])
    )


def _is_numeric(values: Sequence[Any]) -> bool:
    return _mostly(values, is_numeric)


def is_numeric(value: Any) -> bool:
    """Whether a value is a number, or an array or list of numbers."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fiu" and value.size > 0
    if isinstance(value, (list, tuple)):
        return bool(value) and isinstance(value[0], (int, float)) and not isinstance(value[0], bool)
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
