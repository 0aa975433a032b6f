"""Files of tensors with NaN and Inf in every type of number, and files that are none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402

from steadytrain.storage.nonfinite_tensors import holds_nonfinite  # noqa: E402

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None], ids=str)
def test_what_is_not_finite_is_found_among_other_tensors(bad: float | None, dtype: torch.dtype, tmp_path: Path) -> None:
    values = torch.full((4, 3), torch.finfo(dtype).max, dtype=dtype)
    if bad is not None:
        values[2, 1] = bad
    save_file({"a": torch.ones(5), "b": values, "ids": torch.arange(7)}, tmp_path / "w.safetensors", {"note": "nan"})
    assert holds_nonfinite(tmp_path / "w.safetensors") == (bad is not None)


def test_no_tensors_hold_nothing_and_another_file_is_an_error(tmp_path: Path) -> None:
    save_file({}, tmp_path / "w.safetensors")
    assert not holds_nonfinite(tmp_path / "w.safetensors")
    (tmp_path / "text").write_bytes(b"\xff" * 64)
    with pytest.raises(ValueError, match="no safetensors file"):
        holds_nonfinite(tmp_path / "text")
