"""One pass over a source: every check sees every row, in parts, and judges at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from steadytrain.checks.data.data_check import (
    DATA_CHECK_PAGES,
    DATA_CHECKS,
    STATUSES,
    Circumstances,
    DataCheck,
    Finding,
    Judgement,
    Part,
    Row,
    Status,
    Tell,
)
from steadytrain.checks.data.field_roles import GUESSED_FROM_MAX, Roles, roles_of
from steadytrain.checks.data.row_columns import part_of
from steadytrain.checks.data.sources import Source, Wanted, open_source
from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import kebab

PART_CHARACTERS_MAX = 1 << 20
"""Characters that are tokenized at once. A tokenizer needs some hundred bytes per token while it works."""

PART_ROWS_MAX = 2048

_NEEDED = {
    "texts": "no field with text",
    "tokens": "no field with tokens; give --tokenizer to have the text tokenized",
    "labels": "no field with a label for each token",
    "attention": "no attention mask",
    "prompts": "prompts are not marked apart from answers, or no --tokenizer",
    "classes": "no field with a label for each row (--labels names one)",
    "sources": "no field that names a source",
    "features": "no numeric columns",
}


@dataclass(frozen=True)
class Report:
    """The result of a pass. ``whole``: it saw all rows. Findings are sorted by severity, then by name."""

    source: Source
    roles: Roles
    circumstances: Circumstances
    rows: int
    tokens: int | None
    whole: bool
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    def of_status(self, status: Status) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.judgement.status == status)

    @property
    def status(self) -> Status:
        present = {finding.judgement.status for finding in self.findings}
        return next((status for status in STATUSES if status in present and status != "not-run"), "not-run")

    @property
    def summary(self) -> str:
        """The result in one line: the rows, and the checks that found something."""
        bad = [f"{one.check} {status}" for status in ("fail", "warn") for one in self.of_status(status)]
        rows = f"{self.rows:,} rows" if self.whole else f"the first {self.rows:,} rows"
        return f"{rows}: {', '.join(bad) or 'nothing found'}"


def look_at(
    wanted: Wanted,
    circumstances: Circumstances,
    *,
    against: Wanted | None = None,
    tell: Tell = lambda name, done, size: None,
) -> Report:
    """Run every check on ``wanted``. ``against`` is a split that must not share rows with it.

    Raises:
        UsageError: the data cannot be read, or has no rows, or a number type is named for data that have their own.
    """
    source = open_source(wanted)
    _refuse_unread_dtype(wanted, source, against)
    checks = [cls(circumstances) for cls in check_classes()]
    if against is not None:
        for check in checks:
            if check.compares:
                check.compare_with(against.what, _parts(against, circumstances, tell))
    return look_with(checks, source, wanted, circumstances, tell=tell)


def _refuse_unread_dtype(wanted: Wanted, source: Source, against: Wanted | None) -> None:
    dtype = wanted.options.dtype
    if dtype is None or source.reads_dtype or (against is not None and open_source(against).reads_dtype):
        return
    raise UsageError(f"--dtype {dtype}: only raw tokens in a .bin need it, {wanted.what} ({source.kind}) does not")


def look_with(
    checks: Sequence[DataCheck],
    source: Source,
    wanted: Wanted,
    circumstances: Circumstances,
    *,
    tell: Tell = lambda name, done, size: None,
) -> Report:
    """Run new ``checks`` on the rows of ``source``.

    Raises:
        UsageError: there are no rows.
    """
    rows_seen, tokens_seen, seen_columns = 0, 0, set[str]()
    roles_seen, broken = Roles(), 0
    first_broken: Row | None = None
    for part, roles in _read(source, wanted, circumstances, tell):
        roles_seen = roles
        rows_seen += len(part.every)
        broken += len(part.every) - len(part.rows)
        if broken and first_broken is None:
            first_broken = next(row for row in part.every if row.fields is None)
        columns = {name for name in _NEEDED if part.has(name)}
        seen_columns |= columns
        tokens_seen += len(part.tokens.values) if part.tokens is not None else 0
        for check in checks:
            if columns.issuperset(check.reads) and check.cannot() is None:
                check.look(part)
    if not rows_seen:
        raise UsageError(f"{source.name}: no rows in it")
    if first_broken is not None and broken == rows_seen:
        why = f"{first_broken.place}: {first_broken.broken}"
        raise UsageError(f"{source.name}: none of its {rows_seen:,} rows can be read; the first is {why}")
    findings = [_finding(check, seen_columns) for check in checks]
    findings.sort(key=lambda finding: (STATUSES.index(finding.judgement.status), finding.check))
    return Report(
        source=source,
        roles=roles_seen,
        circumstances=circumstances,
        rows=rows_seen,
        tokens=tokens_seen if "tokens" in seen_columns else None,
        whole=wanted.limit is None or rows_seen < wanted.limit,
        findings=tuple(findings),
        notes=source.notes,
    )


def check_name(cls: type[DataCheck]) -> str:
    """The check's name in kebab case: ``RepeatedNgrams`` is ``repeated-ngrams``."""
    return kebab(cls)


@lru_cache(maxsize=1)
def check_classes() -> tuple[type[DataCheck], ...]:
    """Every check: the shipped ones, then those of other packages."""
    return DATA_CHECKS.classes()


def _finding(check: DataCheck, columns: set[str]) -> Finding:
    sections = DATA_CHECK_PAGES.of(check).sections
    missing = [name for name in check.reads if name not in columns]
    cannot = _NEEDED[missing[0]] if missing else check.cannot()
    judgement = check.judge() if cannot is None else Judgement("not-run", cannot)
    return Finding(check_name(type(check)), judgement, sections.get("means", ""), sections.get("next", ""))


def _parts(wanted: Wanted, circumstances: Circumstances, tell: Tell) -> Iterator[Part]:
    for part, _ in _read(open_source(wanted), wanted, circumstances, tell):
        yield part


def _read(source: Source, wanted: Wanted, circumstances: Circumstances, tell: Tell) -> Iterator[tuple[Part, Roles]]:
    blocks = source.rows(tell)
    first: list[Row] = []
    for block in blocks:
        first += block
        if sum(row.fields is not None for row in first) >= GUESSED_FROM_MAX:
            break
    good = [row for row in first if row.fields is not None]
    roles = roles_of(good, text=wanted.text, labels=wanted.labels) if good else Roles()
    for block in chain([first], blocks):
        for rows in _cut(block):
            yield part_of(rows, roles, circumstances.tokenizer), roles


def _cut(rows: list[Row]) -> Iterator[list[Row]]:
    """Split rows into parts of bounded size."""
    held: list[Row] = []
    characters = 0
    for row in rows:
        size = sum(_size(value) for value in (row.fields or {}).values())
        if held and (characters + size > PART_CHARACTERS_MAX or len(held) >= PART_ROWS_MAX):
            yield held
            held, characters = [], 0
        held.append(row)
        characters += size
    if held:
        yield held


def _size(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
        return sum(len(str(entry)) for entry in value)
    return len(value) if hasattr(value, "__len__") else 1
