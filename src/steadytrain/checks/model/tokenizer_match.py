"""Whether tokenizer and model belong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

from steadytrain.checks.data.tokenizing import Tokenizer, tokenizer_at, tokenizer_of
from steadytrain.checks.subject.model_check import (
    CannotError,
    Check,
    Cost,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
    warned,
)
from steadytrain.checks.subject.tokens import token_ids
from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import threshold

STRINGS_MAX = 1000
IDS_MAX = 256
SAMPLES = (
    "The quick brown fox jumps over 13 lazy dogs.",
    "def add(a, b):\n    return a + b\n",
    "x = {'a': [1, 2.5], \"b\": None}",
    "It's 7:45 o'clock; isn't it?",
)
"""Plain ASCII strings that any English tokenizer must restore, apart from case and spaces."""


@final
@dataclass(frozen=True)
class TokenizerMatch(Check):
    """The tokenizer restores text, and is the one that the weights were trained with.

    Means:
        The weights are trained for one mapping of ids to tokens. With another vocabulary or other merges every
        embedding stands for the wrong token: a pretrained model then starts near the loss of a guess. Different special
        tokens or chat templates do less harm and show later. A tokenizer that loses letters makes rows that cannot be
        learned.

    Causes:
        - a tokenizer loaded from another name or folder than the model
        - tokens added to the tokenizer and not to the embedding
        - a chat template or special tokens changed by a newer version of a library
        - a slow and a fast tokenizer that differ

    Next:
        1. Load both from the same folder and compare the first loss.
        2. After adding tokens call ``model.resize_token_embeddings(len(tokenizer))``.
        3. Compare the parts named here with those in the checkpoint.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "transformers #1848, #8643, #2468; axolotl #1806; NeMo-RL #855"

    lost_share: float = threshold(
        0.1, "this share of strings that lose letters fails; no good tokenizer loses plain letters"
    )

    def inspect(self, subject: Subject) -> Outcome:
        if subject.tokenizer is None:
            return not_run("no tokenizer was found in the script")
        try:
            tokenizer = tokenizer_of(subject.tokenizer)
        except UsageError as error:
            raise CannotError(str(error)) from None
        rows = _embedding_rows(subject)
        strings = list(_strings(subject, tokenizer))
        lost = [text for text in strings if not _comes_back(tokenizer, text)]
        stored, differing = _stored(subject, tokenizer)
        numbers: dict[str, Any] = {
            "strings": len(strings),
            "lost": len(lost),
            "lost_examples": [text[:80] for text in lost[:3]],
            "tokenizer_size": tokenizer.size,
            "embedding_rows": rows,
            "digests": tokenizer.parts,
            "compared_with": stored,
            "differs_in": differing,
        }
        if rows is not None and tokenizer.size > rows:
            return failed(f"the tokenizer has {tokenizer.size} tokens and the embedding {rows} rows", **numbers)
        if {"vocabulary", "merges"} & set(differing):
            return failed(f"its {' and '.join(differing)} are not those stored with the weights in {stored}", **numbers)
        if len(lost) >= self.lost_share * len(strings):
            return failed(f"{len(lost)} of {len(strings)} strings come back without some of their letters", **numbers)
        mismatched = _special_ids(subject, tokenizer)
        if differing or mismatched:
            what = [f"{part} differ from those in {stored}" for part in differing] + mismatched
            return warned("; ".join(what), **numbers)
        compared = f"; the same as in {stored}" if stored else ""
        return passed(f"{len(strings) - len(lost)} of {len(strings)} strings come back{compared}", **numbers)


def _strings(subject: Subject, tokenizer: Tokenizer) -> Iterator[str]:
    """Strings to test: fixed samples, and rows of the first batches as the tokenizer decodes them."""
    from steadytrain.checks.data.checks.tokenizer_round_trip import CHARACTERS_MAX

    count = 0
    for text in SAMPLES:
        yield text
    for batch in subject.batches:
        for ids in token_ids(batch).values():
            for row in ids:
                if count >= STRINGS_MAX:
                    return
                inside = [value for value in row[:IDS_MAX].tolist() if 0 <= value < max(tokenizer.size, 1)]
                text = tokenizer.decode(inside)[:CHARACTERS_MAX]
                # Ids cut inside a multi-byte character decode to a replacement character.
                text = text.replace("\ufffd", "")
                if text.strip():
                    count += 1
                    yield text
            break


def _comes_back(tokenizer: Tokenizer, text: str) -> bool:
    from steadytrain.checks.data.checks.tokenizer_round_trip import normal

    ids = tokenizer.bare([text])[0].tolist()
    back = tokenizer.decode(ids)
    return back == text or normal(back) == normal(text)


def _embedding_rows(subject: Subject) -> int | None:
    from steadytrain.checks.subject.tokens import main_embedding

    try:
        return main_embedding(subject, subject.batches[0])[0].num_embeddings
    except CannotError:
        return None


def _stored(subject: Subject, tokenizer: Tokenizer) -> tuple[str | None, list[str]]:
    """The folder of the loaded weights, and the tokenizer parts that differ from those in it."""
    config = getattr(subject.model, "config", None) or getattr(
        getattr(subject.model, "base_model", None), "config", None
    )
    place = str(getattr(config, "_name_or_path", "") or "")
    if not place or not Path(place, "tokenizer.json").is_file():
        return None, []
    try:
        stored = tokenizer_at(place)
    except UsageError:
        return None, []
    common = stored.parts.keys() & tokenizer.parts.keys()
    return place, sorted(part for part in common if stored.parts[part] != tokenizer.parts[part])


def _special_ids(subject: Subject, tokenizer: Tokenizer) -> list[str]:
    """Special ids on which the tokenizer and the model's configuration disagree."""
    config = getattr(subject.model, "config", None)
    told = getattr(config, "eos_token_id", None)
    ends = told if isinstance(told, (list, tuple)) else [told]
    if tokenizer.eos is None or not any(isinstance(end, int) for end in ends) or tokenizer.eos in ends:
        return []
    return [f"the tokenizer ends with token {tokenizer.eos}, the model's configuration says {told}"]
