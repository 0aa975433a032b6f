"""Rows and tokenizers for tests of data."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Judgement
from steadytrain.checks.data.data_pass import Report, check_classes, check_name, look_with
from steadytrain.checks.data.sources import Wanted, of_object
from steadytrain.checks.data.tokenizing import Tokenizer, tokenizer_of

WORDS = [a + b for a in ("ka", "lo", "mi", "tu", "se", "ra") for b in ("n", "p", "vel", "dor", "mir", "st")]


def sentences(count: int, *, seed: int = 0, least: int = 5, most: int = 60) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(least, most))) for _ in range(count)]


def word_tokenizer(*, bos: bool = True, pad: str = "<pad>", words: Sequence[str] = WORDS) -> Tokenizer:
    """A word a token; text that holds the name of a special token has that token, as with real ones."""
    from tokenizers import Tokenizer as Fast
    from tokenizers import models, pre_tokenizers, processors

    names = ["<unk>", "<s>", "</s>", "<pad>", *words]
    fast = Fast(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast.add_special_tokens(["<unk>", "<s>", "</s>", "<pad>"])
    if bos:
        fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    assert pad in names
    made = tokenizer_of(fast)
    from dataclasses import replace

    return replace(made, pad=names.index(pad))


def looked(
    rows: Iterable[Any],
    check: str,
    *,
    tokenizer: Tokenizer | None = None,
    vocabulary: int | None = None,
    length: int | None = None,
    text: str | None = None,
    labels: str | None = None,
) -> Judgement:
    """What the check called ``check`` says of ``rows``."""
    size = vocabulary if vocabulary is not None else tokenizer.size if tokenizer is not None else None
    known = Circumstances(tokenizer, size, length)
    report = report_of(rows, known, [named(check)(known)], text=text, labels=labels)
    return report.findings[0].judgement


def report_of(
    rows: Iterable[Any],
    known: Circumstances,
    checks: Sequence[DataCheck] | None = None,
    *,
    text: str | None = None,
    labels: str | None = None,
) -> Report:
    source = of_object(list(rows), name="rows")
    chosen = [cls(known) for cls in check_classes()] if checks is None else checks
    return look_with(chosen, source, Wanted("rows", None, text, labels), known)


def named(check: str) -> type[DataCheck]:
    (found,) = [cls for cls in check_classes() if check_name(cls) == check]
    return found


def texts(values: Iterable[str]) -> list[Mapping[str, Any]]:
    return [{"text": value} for value in values]
