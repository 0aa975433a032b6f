"""The Triton kernel: under Triton's interpreter on a CPU, and on a GPU where there is one."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from steadytrain.capture.tensors.statistics import TensorWatch, log2_histogram
from steadytrain.capture.tensors.statistics import passes as passes_module
from steadytrain.capture.tensors.statistics.passes import Passes, _proven_kernel, kernel_for

CASES = Path(__file__).with_name("kernel_cases.py")
CASES_S_MAX = 300.0


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("chosen", ["an_output_of_a_module", pytest.param("", marks=pytest.mark.long)])
def test_kernel_under_the_interpreter(chosen: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(CASES),
        "-k",
        chosen,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=CASES_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("architecture", [80, pytest.param(90, marks=pytest.mark.long)])
def test_kernels_compile_for_gpus_that_are_not_here(
    architecture: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from steadytrain.capture.tensors.statistics import triton_kernel

    element = triton_kernel.DTYPES[torch.bfloat16]
    sizes = {"chunk_size": triton_kernel.CHUNK, "lane_count": 2048, "part_count": 8}
    bins = {"lowest": -40, "highest": 24, "nonfinite_bin": 67, "bin_count": 128, "with_histogram": True}
    table = {"addresses": "*i64", "sizes": "*i64", "owners": "*i64", "offsets": "*i64"}
    kernels = [
        (
            triton_kernel._reduce_chunks,
            {**table, "slots": "*i64", "parts": "*fp32", "counts": "*i32"},
            {"element": element, "alignment": 16, "is_full": True, **sizes, **bins},
        ),
        (triton_kernel._reduce_with_care, {**table, "parts": "*fp32"}, {"element": element, **sizes}),
        (
            triton_kernel._add_chunks,
            {"firsts": "*i64", "chunks": "*i64", "parts": "*fp32", "counts": "*i32", "summed": "*fp64", "bins": "*i64"},
            {"part_count": 8, "bin_count": 128, "with_histogram": True},
        ),
    ]
    for function, arguments, constants in kernels:
        if "constexprs" in inspect.signature(ASTSource).parameters:
            signature = {**arguments, **dict.fromkeys(constants, "constexpr")}
            source = ASTSource(fn=function, signature=signature, constexprs=constants)
        else:  # Triton 3.2
            source = ASTSource(fn=function, signature=arguments, constants=constants)
        options = {"num_warps": 8, "enable_fp_fusion": True}
        compiled = compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
        assert len(compiled.asm["cubin"]) > 1000
        if function is triton_kernel._reduce_chunks:
            assert "ld.global.v4" in compiled.asm["ptx"]  # a thread loads 16 bytes at once


def test_nothing_but_a_gpu_asks_for_triton() -> None:
    code = "import sys, steadytrain.capture.tensors.statistics; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
    assert kernel_for(torch.device("cpu"), pytest.fail) is None


def test_without_triton_torch_computes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "steadytrain.capture.tensors.statistics.triton_kernel", raising=False)
    monkeypatch.setattr(passes_module, "_proven_kernel", _proven_kernel.__wrapped__)
    notes: list[str] = []
    assert kernel_for(torch.device("cuda"), notes.append) is None
    assert len(notes) == 1
    assert "no Triton" in notes[0]


def test_tensors_with_gaps_take_the_other_road() -> None:
    gaps = torch.ones(10, 10)[:, ::2]
    dense, rest = passes_module.split_dense({0: gaps, 1: torch.ones(3, 4).t(), 2: torch.ones(0)})
    assert (list(dense), list(rest)) == ([1], [0, 2])
    (passed,) = Passes(pytest.fail).over("weight", {0: gaps})
    assert passed.partials[0, 0] == 50.0


@pytest.mark.gpu
def test_a_reading_on_a_gpu_is_that_of_the_cpu() -> None:
    readings = {}
    for device in ("cpu", "cuda"):
        generator = torch.Generator().manual_seed(0)
        shapes, dtypes = [(300, 200), (7,), (40, 8), (1 << 22,)], [torch.float32, torch.bfloat16, torch.float16] * 2
        values = [torch.randn(s, generator=generator).to(d) for s, d in zip(shapes, dtypes, strict=False)]
        gradients = [torch.randn(value.shape, generator=generator).to(value.dtype) * 1e-3 for value in values]
        parameters = [nn.Parameter(value.to(device)) for value in values]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.to(device)
        optimizer = torch.optim.AdamW(parameters, foreach=False)
        watch = TensorWatch([str(at) for at in range(len(shapes))], parameters)
        for _ in range(2):
            watch.before_update()
            optimizer.step()
            readback = watch.after_update([optimizer])
        bins = log2_histogram([("weight", parameters[0])], size_max=1 << 20)
        torch.cuda.synchronize()
        assert readback.ready()
        notes = [note for note in watch.take_notes() if "epsilon" not in note]
        assert not notes, "the kernel did not prove itself"
        readings[device] = readback.result().values, bins.result().values
    assert np.allclose(readings["cpu"][0], readings["cuda"][0], rtol=1e-3, atol=1e-6, equal_nan=True)
    assert np.allclose(readings["cpu"][1], readings["cuda"][1], atol=1e-7)


@pytest.mark.gpu
def test_a_look_does_not_wait_for_the_gpu() -> None:
    parameter = nn.Parameter(torch.ones(1 << 20, device="cuda"))
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW([parameter])
    watch = TensorWatch(["p"], [parameter])
    for _ in range(2):  # the first look compiles
        watch.before_update()
        optimizer.step()
        watch.after_update([optimizer]).result()
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mode says that it is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        watch.before_update()
        readback = watch.after_update([optimizer])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert readback.result().values.size
