"""Convert rows to columns: texts assembled, tokenized, and reduced to what checks need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steadytrain.checks.data.data_check import Numbers, Part, Ragged, Row
from steadytrain.checks.data.field_roles import Roles, is_numeric
from steadytrain.checks.data.tokenizing import Tokenizer
from steadytrain.core.model import FloatArray, IntArray

WIDTH_MAX = 4096
"""A wider feature (an image) is sampled at this many evenly spaced positions."""

_ASSISTANT = ("assistant", "gpt", "model", "bot")


def part_of(every: Sequence[Row], roles: Roles, tokenizer: Tokenizer | None) -> Part:
    """The columns of some rows."""
    rows = [row for row in every if row.fields is not None]
    fields: list[Mapping[str, Any]] = [row.fields for row in rows if row.fields is not None]
    texts = prompts = None
    if roles.has_text:
        pairs = [_texts_of(entry, roles) for entry in fields]
        texts = [prompt + rest for prompt, rest in pairs]
        if roles.text is None and tokenizer is not None:
            prompts = _prompt_lengths([prompt for prompt, _ in pairs], tokenizer)
    tokens = None
    if roles.tokens is not None:
        tokens = Ragged.of([_ids(entry.get(roles.tokens)) for entry in fields])
    elif texts is not None and tokenizer is not None:
        tokens = Ragged.of(tokenizer.encode(texts)) if texts else Ragged.of([])
    return Part(
        every=every,
        rows=rows,
        texts=texts,
        tokens=tokens,
        labels=_column_of_ids(fields, roles.labels),
        attention=_column_of_ids(fields, roles.attention),
        prompts=prompts,
        classes=_plain(fields, roles.classes),
        sources=_plain(fields, roles.sources),
        features={name: _numbers([entry.get(name) for entry in fields]) for name in roles.features},
        identity=roles.identity,
        tokenizer=tokenizer,
    )


def _texts_of(entry: Mapping[str, Any], roles: Roles) -> tuple[str, str]:
    """The prompt and the learned text of a row. A plain text is all learned."""
    if roles.messages is not None:
        return _of_messages(entry.get(roles.messages))
    if roles.completion is not None and roles.prompt is not None:
        return _text(entry.get(roles.prompt)), _text(entry.get(roles.completion))
    assert roles.text is not None
    return "", _text(entry.get(roles.text))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _of_messages(value: Any) -> tuple[str, str]:
    """The contents of a conversation before the first answer, and from there on."""
    given: list[str] = []
    learned: list[str] = []
    for message in value if isinstance(value, (list, tuple)) else ():
        if not isinstance(message, Mapping):
            continue
        role = str(message.get("role", message.get("from", ""))).lower()
        content = _text(message.get("content", message.get("value")))
        (learned if learned or role in _ASSISTANT else given).append(content)
    return "".join(f"{text}\n" for text in given), "\n".join(learned)


def _prompt_lengths(prompts: Sequence[str], tokenizer: Tokenizer) -> IntArray:
    return np.array([len(ids) for ids in tokenizer.bare(prompts)], np.int64) + int(tokenizer.adds_bos)


def _ids(value: Any) -> Any:
    """The integers of a field. Other values count as no tokens; another check reports them."""
    if isinstance(value, np.ndarray):
        return value.reshape(-1) if value.dtype.kind in "iu" else ()
    if isinstance(value, (list, tuple)):
        try:
            array = np.array(value)
        except ValueError:
            return ()
        return array.reshape(-1) if array.dtype.kind in "iu" else ()
    return ()


def _column_of_ids(fields: Sequence[Mapping[str, Any]], name: str | None) -> Ragged | None:
    return Ragged.of([_ids(entry.get(name)) for entry in fields]) if name is not None else None


def _plain(fields: Sequence[Mapping[str, Any]], name: str | None) -> list[Any] | None:
    if name is None:
        return None
    values = [entry.get(name) for entry in fields]
    return [value if isinstance(value, (str, int, float, bool, type(None))) else str(value) for value in values]


def _numbers(values: Sequence[Any]) -> Numbers:
    """All numbers of a field, concatenated. Rows without a number are left out, so that they do not look like NaN."""
    found = [(place, _cut(value)) for place, value in enumerate(values) if is_numeric(value)]
    found = [(place, array) for place, array in found if len(array)]
    if not found:
        return Numbers(np.zeros(0), np.zeros(0, np.int64))
    owners = np.repeat([place for place, _ in found], [len(array) for _, array in found])
    return Numbers(np.concatenate([array for _, array in found]), owners.astype(np.int64))


def _cut(value: Any) -> FloatArray:
    try:
        array = np.asarray(value, np.float64).reshape(-1)
    except (TypeError, ValueError):  # a list with other values: another check reports it
        return np.zeros(0)
    return array if len(array) <= WIDTH_MAX else array[np.linspace(0, len(array) - 1, WIDTH_MAX).astype(np.int64)]
