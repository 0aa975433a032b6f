"""CSV, TSV and other delimited tables with a header line: scripts' own logs, Lightning's ``metrics.csv``, exports of
one run from TensorBoard and Weights & Biases.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, final

from steadytrain.logs.delimited_text import header_of, read_delimited, require_header
from steadytrain.logs.log_runs import logs_of
from steadytrain.logs.reader import ANY_ROWS, Columns, Log, Reader, Tell
from steadytrain.logs.text_files import is_text


@final
class DelimitedTable(Reader):
    """Tables with a header line, separated by comma, tab, semicolon, bar or space."""

    kind = "csv"
    general = ANY_ROWS
    in_folders: ClassVar[tuple[str, ...]] = ("*.csv", "*.tsv")

    def claims(self, path: Path, head: bytes) -> bool:
        if not head or not is_text(head) or head.lstrip()[:1] in (b"{", b"["):
            return False
        suffix = path.suffix.lower()
        return suffix in (".csv", ".tsv") or header_of(head, suffix) is not None

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        header = require_header(path)
        wanted = [name for name in vars(columns).values() if name is not None]
        rows = read_delimited(path, header, wanted, tell)
        return logs_of(rows, columns, path=path, kind=self.kind)
