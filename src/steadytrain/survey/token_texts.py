"""Finds what decodes token ids in the script.

The candidates, in order: a tokenizer in the script's variables or its trainer, a function with a name like ``decode``,
a table from ids to text pieces. None is called before the survey ends, because a call changes some tokenizers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

from steadytrain.capture.step.script_frames import running_frames
from steadytrain.core.errors import UsageError

DECODERS = ("decode", "decode_ids", "decode_tokens", "detokenize", "ids_to_text", "to_text")
TABLES = (
    *("itos", "id2token", "id_to_token", "idx2word", "id2word", "idx2char", "i2c"),
    *("vocab", "vocabulary", "chars", "characters", "alphabet"),
)
OWNERS = ("self", "trainer")
VARIABLES_MAX = 4096
TABLE_MAX = 1 << 20


@dataclass(frozen=True)
class Words:
    """Decodes ids to text. ``size`` and ``unknown`` (the id of the unknown token) are None if unknown.

    ``is_tokenizer`` is False for the script's own code: its size is no vocabulary to compare with the model.
    """

    kind: str
    text: Callable[[Sequence[int]], str]
    size: int | None
    unknown: int | None = None
    is_tokenizer: bool = False


@dataclass(frozen=True)
class Found:
    """The candidate decoders, not called yet."""

    tokenizer: Any = None
    decoder: FunctionType | None = None
    table: Sequence[str] | Mapping[int, str] | None = None


def found_now(model_folder: str | None = None) -> Found:
    """Searches the variables of the running functions, innermost first."""
    from steadytrain.preflight_runs.subject_of_script import find_tokenizer

    variables = dict(_variables())
    owners = [variables[name] for name in OWNERS if name in variables]
    tokenizer = next((one for one in (find_tokenizer(variables, owner) for owner in (*owners, None)) if one), None)
    if tokenizer is None and model_folder is not None and (Path(model_folder) / "tokenizer.json").is_file():
        tokenizer = str(model_folder)
    decoder = next((one for name in DECODERS if isinstance(one := variables.get(name), FunctionType)), None)
    lowered = {name.lower(): value for name, value in variables.items()}
    table = next((one for name in TABLES if _is_table(one := lowered.get(name))), None)
    return Found(tokenizer, decoder, table)


def words_of(found: Found) -> Words | None:
    """The decoder; None if there is none. Call it after the script's last step.

    Raises:
        UsageError: the candidate is no tokenizer.
    """
    if found.tokenizer is not None:
        from steadytrain.checks.data.tokenizing import tokenizer_at, tokenizer_of

        given = found.tokenizer
        is_path = isinstance(given, str)
        known = tokenizer_at(given) if is_path else tokenizer_of(given)
        kind = "tokenizer.json" if is_path else type(given).__name__
        return Words(kind, known.shown, known.size or None, known.unk, is_tokenizer=True)
    if found.decoder is not None:
        decoder = found.decoder
        return Words(f"{decoder.__name__}()", lambda ids: _text(decoder(list(ids))), None)
    if found.table is not None:
        table = found.table
        return Words("a table of pieces", lambda ids: "".join(table[one] for one in ids), len(table))
    return None


def _variables() -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for frame in running_frames():
        if _is_ours(frame):
            continue
        for name, value in (*frame.f_locals.items(), *frame.f_globals.items()):
            if name not in seen and len(seen) < VARIABLES_MAX:
                seen.add(name)
                yield name, value
    main = sys.modules.get("__main__")
    for name, value in list(vars(main).items()) if main is not None else ():
        if name not in seen and len(seen) < VARIABLES_MAX:
            seen.add(name)
            yield name, value


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("steadytrain", "torch")


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return 0 < len(value) <= TABLE_MAX and all(isinstance(key, int) for key in value) and _pieces(value.values())
    if isinstance(value, (str, list, tuple)):
        return 1 < len(value) <= TABLE_MAX and _pieces(value)
    return False


def _pieces(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _text(value: Any) -> str:
    """The text that ``decode`` returned, also as the only element of a list."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise UsageError(f"its decode returns {type(value).__name__} instead of text")
    return value
