"""One signal of a stretch of steps, read from the places where these steps lie: for a zoom into a long run.

Records have a fixed size, so the files of a stream are memory-mapped and only the stretch is read. CRCs are not checked
here: :mod:`step_tail` and ``segments.py`` do that.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from steadytrain.core.model import Series
from steadytrain.storage.numbered_files import Part, map_records, read_parts
from steadytrain.storage.segments import SUFFIXES, read_schema, schema_dtype

STEPS_MAX = 1 << 17


def steps_between(folder: Path, signal: str, first: int, last: int) -> Series:
    """The values of ``signal`` at the steps ``first`` to ``last`` that have it, at most ``STEPS_MAX`` records.

    Raises:
        UsageError: the stream is damaged.
    """
    steps, values = [np.zeros(0, np.int64)], [np.zeros(0, np.float64)]

    def read(parts: list[Part]) -> None:
        del steps[1:], values[1:]
        left = STEPS_MAX
        for part in parts:
            schema = read_schema(part.schema)
            records = map_records(part.path, schema_dtype(schema))
            if signal not in schema["scalars"] or not len(records):
                continue
            if int(records["step"][0]) > last or int(records["step"][-1]) < first:
                continue  # steps of a part ascend
            here = np.flatnonzero((records["step"] >= first) & (records["step"] <= last))[:left]
            left -= len(here)
            rows, place = records[here], schema["scalars"].index(signal)
            rows = rows[(rows["flags"].astype(np.int64) >> place & 1) > 0]
            steps.append(rows["step"].astype(np.int64))
            values.append(rows["scalars"][:, place].astype(np.float64))

    read_parts(folder, SUFFIXES, read)
    return Series(np.concatenate(steps), np.concatenate(values))
