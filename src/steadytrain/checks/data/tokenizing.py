"""A common interface for tokenizers of any library, reduced to what the checks need.

``tokenizer_at`` reads a tokenizer from disk and never from a network; ``tokenizer_of`` wraps an object from a script.
``tokenizers`` reads a ``tokenizer.json`` without torch; other files go through ``transformers``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install
from steadytrain.core.model import IntArray

SPECIAL = ("bos", "eos", "pad", "unk")
CONFIG_BYTES_MAX = 1 << 24

_USUAL: dict[str, tuple[str, ...]] = {
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "[BOS]"),
    "eos": ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "[EOS]"),
    "pad": ("<pad>", "[PAD]", "<|padding|>"),
    "unk": ("<unk>", "[UNK]"),
}
"""Usual names of the special tokens for a ``tokenizer.json`` without a configuration file."""


@dataclass(frozen=True)
class Tokenizer:
    """``encode`` returns ids with the special tokens that a call adds, ``bare`` without them; ``decode`` omits special
    tokens.

    ``shown`` decodes with special tokens. ``size`` is the number of ids, including added ones. ``parts`` holds digests
    of the vocabulary, merges, special tokens and chat template, as far as they are accessible.
    """

    name: str
    size: int
    bos: int | None
    eos: int | None
    pad: int | None
    unk: int | None
    encode: Callable[[Sequence[str]], list[IntArray]]
    bare: Callable[[Sequence[str]], list[IntArray]]
    decode: Callable[[Sequence[int]], str]
    shown: Callable[[Sequence[int]], str]
    parts: dict[str, str]
    adds_bos: bool


def tokenizer_at(place: str) -> Tokenizer:
    """The tokenizer at a path, or one of that name in this machine's Hugging Face cache.

    Raises:
        UsageError: there is none, or the library that reads it is not installed.
    """
    path = Path(place).expanduser()
    if path.is_file() and path.suffix == ".json":
        return _of_file(path, name=place)
    if path.is_dir() and (path / "tokenizer.json").is_file():
        return _of_file(path / "tokenizer.json", name=place)
    try:
        from transformers import AutoTokenizer
    except ImportError:
        if path.exists():
            raise UsageError(
                f"--tokenizer {place}: no tokenizer.json there, and others need `pip install transformers`"
            ) from None
        raise UsageError(
            f"--tokenizer {place}: no such file or folder; names need `pip install transformers`"
        ) from None
    try:
        loaded = AutoTokenizer.from_pretrained(place, local_files_only=True)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and more for the same failure
        why = str(error).strip().splitlines()[0][:200].rstrip(" :") if str(error).strip() else type(error).__name__
        raise UsageError(
            f"--tokenizer {place}: not a tokenizer on this machine ({why}); nothing is downloaded, so fetch it first "
            "and name its folder or tokenizer.json"
        ) from None
    return tokenizer_of(loaded, name=place)


def tokenizer_of(given: Any, *, name: str | None = None) -> Tokenizer:
    """Wrap a tokenizer object: of ``transformers`` or ``tokenizers``, or anything with ``encode`` and ``decode``.

    Raises:
        UsageError: the object has neither.
    """
    if type(given).__module__.partition(".")[0] == "tokenizers" and hasattr(given, "encode_batch"):
        return _of_tokenizers(given, {}, name=name or "tokenizer")
    if hasattr(given, "backend_tokenizer") or (callable(given) and hasattr(given, "convert_ids_to_tokens")):
        return _of_transformers(given, name=name or str(getattr(given, "name_or_path", "") or "tokenizer"))
    if callable(getattr(given, "encode", None)) and callable(getattr(given, "decode", None)):
        return _of_any(given, name=name or type(given).__name__)
    raise UsageError(f"{type(given).__name__} is no tokenizer: it has no encode and decode")


def _of_file(path: Path, *, name: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer as Fast
    except ImportError:
        raise UsageError(f"--tokenizer {name}: reading it needs `{install('data')}`") from None
    try:
        fast = Fast.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception
        raise UsageError(f"--tokenizer {name}: {path} cannot be read as a tokenizer ({error})") from None
    config: dict[str, Any] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        config |= _document(path.with_name(file))
    return _of_tokenizers(fast, config, name=name)


def _document(path: Path) -> dict[str, Any]:
    try:
        read = read_json(path, bytes_max=CONFIG_BYTES_MAX)
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _of_tokenizers(fast: Any, config: dict[str, Any], *, name: str) -> Tokenizer:
    fast.no_truncation()
    fast.no_padding()
    special: dict[str, int | None] = {}
    for what in SPECIAL:
        told = config.get(f"{what}_token")
        text = told.get("content") if isinstance(told, dict) else told
        names = (text,) if isinstance(text, str) else () if f"{what}_token" in config else _USUAL[what]
        special[what] = next((place for place in map(fast.token_to_id, names) if place is not None), None)
    batch = getattr(fast, "encode_batch_fast", fast.encode_batch)

    def encode(texts: Sequence[str]) -> list[IntArray]:
        return [np.array(entry.ids, np.int64) for entry in batch(list(texts))]

    def bare(texts: Sequence[str]) -> list[IntArray]:
        return [np.array(entry.ids, np.int64) for entry in batch(list(texts), add_special_tokens=False)]

    return Tokenizer(
        name=name,
        size=int(fast.get_vocab_size(with_added_tokens=True)),
        **special,
        encode=encode,
        bare=bare,
        decode=lambda ids: str(fast.decode(list(ids))),
        shown=lambda ids: str(fast.decode(list(ids), skip_special_tokens=False)),
        parts=_parts_of(json.loads(fast.to_str()), config.get("chat_template")),
        adds_bos=_adds(bare, encode, special["bos"]),
    )


def _of_transformers(given: Any, *, name: str) -> Tokenizer:
    def ids(texts: Sequence[str], special: bool) -> list[IntArray]:
        rows = given(list(texts), add_special_tokens=special, truncation=False, padding=False, verbose=False)
        return [np.array(row, np.int64) for row in rows["input_ids"]]

    special = {what: _whole(getattr(given, f"{what}_token_id", None)) for what in SPECIAL}
    backend = getattr(given, "backend_tokenizer", None)
    template = getattr(given, "chat_template", None)
    if backend is not None:
        parts = _parts_of(json.loads(backend.to_str()), template)
    else:
        parts = {"vocabulary": _digest(sorted(given.get_vocab().items())), "template": _digest(template)}
    return Tokenizer(
        name=name,
        size=len(given),
        **special,
        encode=lambda texts: ids(texts, True),
        bare=lambda texts: ids(texts, False),
        decode=lambda row: str(given.decode(list(row), skip_special_tokens=True, clean_up_tokenization_spaces=False)),
        shown=lambda row: str(given.decode(list(row), skip_special_tokens=False)),
        parts=parts,
        adds_bos=_adds(lambda texts: ids(texts, False), lambda texts: ids(texts, True), special["bos"]),
    )


def _of_any(given: Any, *, name: str) -> Tokenizer:
    def encode(texts: Sequence[str]) -> list[IntArray]:
        return [np.array(list(given.encode(text)), np.int64) for text in texts]

    def decode(ids: Sequence[int]) -> str:
        return str(given.decode(list(ids)))

    told = [getattr(given, name, None) for name in ("n_vocab", "vocab_size", "size")]
    sizes = [value() if callable(value) else value for value in told]
    size = next((int(value) for value in sizes if isinstance(value, int)), 0)
    special = {what: _whole(getattr(given, f"{what}_token_id", getattr(given, f"{what}_id", None))) for what in SPECIAL}
    return Tokenizer(
        name=name,
        size=size,
        **special,
        encode=encode,
        bare=encode,
        decode=decode,
        shown=decode,
        parts={},
        adds_bos=False,
    )


def _adds(
    bare: Callable[[Sequence[str]], list[IntArray]],
    encode: Callable[[Sequence[str]], list[IntArray]],
    bos: int | None,
) -> bool:
    """Whether a call prepends a beginning-of-sequence token."""
    if bos is None:
        return False
    with_special, without = encode(["a"])[0], bare(["a"])[0]
    return len(with_special) > len(without) and int(with_special[0]) == bos


def _parts_of(document: dict[str, Any], template: Any) -> dict[str, str]:
    model = document.get("model") or {}
    return {
        "vocabulary": _digest(model.get("vocab")),
        "merges": _digest(model.get("merges")),
        "special tokens": _digest(document.get("added_tokens")),
        "normalizer": _digest([document.get("normalizer"), document.get("pre_tokenizer")]),
        "template": _digest(template),
    }


def _digest(value: Any) -> str:
    if isinstance(value, dict):
        value = sorted(value.items(), key=lambda entry: str(entry[0]))
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
