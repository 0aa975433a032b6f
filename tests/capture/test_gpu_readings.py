"""Readings of tensors whose memory a device has taken back or cannot give, with the device's answers planted."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.incident.source_hashes import is_library, source_digests
from steadytrain.capture.looks import late_clips
from steadytrain.capture.looks.late_clips import LateClips
from steadytrain.capture.tensors import gpu_state


def with_gradient() -> nn.Parameter:
    parameter = nn.Parameter(torch.ones(4))
    parameter.grad = torch.full((4,), 2.0)
    return parameter


def test_gradients_that_a_graph_has_taken_back_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter, looks = with_gradient(), LateClips()
    looks.updated([parameter])

    def overwritten(_: Tensor) -> Tensor:
        raise RuntimeError("accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run")

    monkeypatch.setattr(late_clips, "_sampled", overwritten)
    looks.zeroed()
    assert list(looks.rows()) == []


def test_a_late_clip_is_counted() -> None:
    parameter, looks = with_gradient(), LateClips()
    looks.updated([parameter])
    assert parameter.grad is not None
    parameter.grad.clamp_(max=1.0)
    looks.zeroed()
    assert list(looks.rows()) == [("clipped-late:gradients", 1.0)]


def test_a_device_that_failed_captures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed() -> bool:
        raise RuntimeError("CUDA error: device-side assert triggered")

    assert not gpu_state.is_capturing()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert gpu_state.is_capturing()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", failed)
    assert not gpu_state.is_capturing()


@pytest.mark.parametrize("named", [True, False])
def test_code_that_the_compiler_wrote_is_no_source_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    folder = tmp_path / ("torchinductor_somebody" if named else "cache") / "au"
    folder.mkdir(parents=True)
    (folder / "caunu6on.py").write_text("x = 1\n")
    if not named:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    written = ModuleType("caunu6on")
    written.__file__ = str(folder / "caunu6on.py")
    monkeypatch.setitem(sys.modules, "caunu6on", written)
    assert is_library(written.__file__)
    assert written.__file__ not in source_digests()
