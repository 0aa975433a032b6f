"""What turns token ids back into text, where the script has something that does.

Looked for, in this order: a tokenizer of a library in the script's variables or its trainer, a function called like
``decode``, a table from ids to pieces of text. Nothing of it is called before the survey is over: some tokenizers keep
settings that a call would change.
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
    """How ids become text. ``size`` and ``unknown`` (the id of the unknown token) are None where nothing says them.

    ``is_tokenizer`` is False of what the script wrote for itself: its size is no vocabulary to hold the model against.
    """

    kind: str
    text: Callable[[Sequence[int]], str]
    size: int | None
    unknown: int | None = None
    is_tokenizer: bool = False


@dataclass(frozen=True)
class Found:
    """What may turn ids into text, not touched yet."""

    tokenizer: Any = None
    decoder: FunctionType | None = None
    table: Sequence[str] | Mapping[int, str] | None = None


def found_now(model_folder: str | None = None) -> Found:
    """What is in the variables of the functions that run now, innermost first."""
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
    """The way from ids to text, None where there is none. Called when the script has made its last step.

    Raises:
        UsageError: what looked like a tokenizer is none.
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
    """What a ``decode`` gave: a text, or the text of a single row."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise UsageError(f"its decode gives {type(value).__name__} and no text")
    return value
