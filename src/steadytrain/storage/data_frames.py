"""Steps and tables as columns of arrays, as a pandas DataFrame or as an Arrow table.

In long form: one row per step, or per table row and step, sorted by the recorded order of the rows and then by step.
pandas and pyarrow are imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install
from steadytrain.core.model import Table, Window
from steadytrain.storage.columnar import column_name, is_available
from steadytrain.storage.tables import measured

if TYPE_CHECKING:
    import pandas
    import pyarrow

STEPS = "steps"


def steps_to_arrow(window: Window) -> pyarrow.Table:
    """``step``, ``time``, every signal (null at steps without it), ``skipped``, ``refused``."""
    pa = import_pyarrow()
    signals = {
        name: pa.array(values, pa.float64(), mask=~window.present[name]) for name, values in window.signals.items()
    }
    marks = {"skipped": window.skipped, "refused": window.refused}
    return pa.table({"step": window.steps, "time": window.time, **signals, **marks})


def steps_to_pandas(window: Window) -> pandas.DataFrame:
    """Like :func:`steps_to_arrow`, with NaN instead of null, so a measured NaN looks like a missing value."""
    signals = {name: np.where(window.present[name], values, np.nan) for name, values in window.signals.items()}
    marks = {"skipped": window.skipped, "refused": window.refused}
    return _import_pandas().DataFrame({"step": window.steps, "time": window.time, **signals, **marks})


def table_to_arrow(table: Table) -> pyarrow.Table:
    """``name``, ``step``, ``time`` and every column of the table (null if not measured)."""
    pa = import_pyarrow()
    at, step, time = _keys(table)
    names = pa.DictionaryArray.from_arrays(at, pa.array(table.rows, pa.string()))
    columns = {
        column_name(column): pa.array(values, pa.float32(), mask=~measured(table.name, values))
        for column, values in _long_columns(table).items()
    }
    return pa.table({"name": names, "step": step, "time": time, **columns})


def table_to_pandas(table: Table) -> pandas.DataFrame:
    """Like :func:`table_to_arrow`, with NaN instead of null. ``name`` is a categorical."""
    pd = _import_pandas()
    at, step, time = _keys(table)
    columns = {
        column_name(column): np.where(measured(table.name, values), values, np.float32(np.nan))
        for column, values in _long_columns(table).items()
    }
    names = pd.Categorical.from_codes(at, list(table.rows))
    return pd.DataFrame({"name": names, "step": step, "time": time, **columns})


def import_pyarrow() -> Any:
    """Import pyarrow.

    Raises:
        UsageError: it is not installed.
    """
    if not is_available():
        raise UsageError(f"this needs pyarrow, which is not installed here; {install('query')}")
    import pyarrow

    return pyarrow


def _import_pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise UsageError("this needs pandas, which is not installed here; pip install pandas") from None
    return pandas


def _keys(table: Table) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
    """Row number, step and time of every cell, row by row."""
    at = np.repeat(np.arange(len(table.rows), dtype=np.int32), len(table))
    return at, np.tile(table.steps, len(table.rows)), np.tile(table.time, len(table.rows))


def _long_columns(table: Table) -> dict[str, NDArray[np.float32]]:
    return {
        column: np.ascontiguousarray(table.values[:, :, position].T).reshape(-1)
        for position, column in enumerate(table.columns)
    }
