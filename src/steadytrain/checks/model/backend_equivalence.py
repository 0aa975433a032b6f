"""Whether compiled code and other attention kernels compute what plain code computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from steadytrain.checks.subject.model_check import (
    Check,
    Cost,
    Outcome,
    Subject,
    changed_tree,
    failed,
    not_run,
    passed,
    tensors_of,
)
from steadytrain.checks.subject.own_steps import few_rows
from steadytrain.core.plugins import threshold
from steadytrain.core.torch_private import COUNTERS, INDUCTOR_PATCH

FLOOR = {torch.float32: 1e-5, torch.float64: 1e-12}
FLOOR_LOW = 1e-2
COMPILERS = ("aot_eager", "inductor")
"""The first is fast and tests tracing and autograd; the second also generates kernels."""


@final
@dataclass(frozen=True)
class BackendEquivalence(Check):
    """Compiled code and each attention kernel give the same outputs and gradients as plain code.

    Means:
        The check runs the model on a batch as it is, compiled, with each attention kernel of this machine, and in
        float64. A variant whose difference from plain code is more than three times that between plain code and float64
        computes something else: a kernel ignores a mask, or the compiler has a fault. Training then silently continues
        with wrong gradients.

    Causes:
        - an attention kernel that ignores its mask
        - code that behaves differently under a compiler (``torch.compiler.is_compiling``)
        - a fault of the compiler, or of a fused kernel

    Next:
        1. Train without the named variant.
        2. On an incident, ``steadytrain locate`` names the first operation that differs.
    """

    cost: ClassVar[Cost] = "minutes"
    source: ClassVar[str] = "pytorch #113180, #114109, #193061; Megatron-LM #2357; flash-attention #443, #1052"

    times: float = threshold(3.0, "allowed multiple of the difference between plain code and float64")

    def inspect(self, subject: Subject) -> Outcome:
        calls = subject.look(few_rows(subject)[0]).calls
        if not calls:
            return not_run("no call of the model was seen")
        module, args, kwargs, _ = calls[0]
        module.eval()  # dropout would draw other numbers in each variant
        plain = _ran(module, module, args, kwargs)
        if not plain:
            return not_run("the model returns no tensor of floating-point numbers")
        if _difference(plain, _ran(module, module, args, kwargs)) > _floor(module):
            return not_run("two runs of plain code differ already; see the check eval-determinism")
        differences: dict[str, float] = {}
        failed_variants: dict[str, str] = {}
        with _Attention() as attention:
            _ran(module, module, args, kwargs)
        for name, run in _variants(module, uses_attention=attention.calls > 0):
            if subject.time_left() < 0.0:
                failed_variants[name] = "no time was left"
                continue
            try:
                differences[name] = _difference(plain, run(args, kwargs))
            except Exception as error:  # compilers and kernels fail in many ways
                failed_variants[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        noise = _against_float64(module, args, kwargs, plain)
        limit = self.times * max(noise or 0.0, _floor(module))
        numbers: dict[str, Any] = {
            "differences": differences,
            "against_float64": noise,
            "limit": limit,
            "not_compared": failed_variants,
        }
        if not differences:
            why = "; ".join(f"{name}: {error}" for name, error in failed_variants.items())
            return not_run(f"no variant could be run ({why})", **numbers)
        wrong = {name: value for name, value in differences.items() if value > limit}
        if wrong:
            told = ", ".join(f"{name} by {value:.2g}" for name, value in wrong.items())
            return failed(f"other outputs or gradients than plain code: {told} (at most {limit:.1g})", **numbers)
        return passed(f"{', '.join(differences)} differ by at most {max(differences.values()):.1g}", **numbers)


Run = Callable[[Sequence[Any], Mapping[str, Any]], dict[str, Tensor]]


def _variants(module: nn.Module, *, uses_attention: bool) -> Iterator[tuple[str, Run]]:
    if uses_attention:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):

            def with_kernel(args: Any, kwargs: Any, backend: Any = backend) -> dict[str, Tensor]:
                with sdpa_kernel([backend]):
                    return _ran(module, module, args, kwargs)

            yield f"attention by {backend.name.lower()}", with_kernel
        if getattr(getattr(module, "config", None), "_attn_implementation", None) == "sdpa":
            yield "attention by the model's own code", lambda args, kwargs: _with_own_attention(module, args, kwargs)
    for compiler in COMPILERS if _compiles(module) else COMPILERS[:1]:

        def compiled(args: Any, kwargs: Any, compiler: str = compiler) -> dict[str, Tensor]:
            with _compiled(module, compiler) as code:
                return _ran(code, module, args, kwargs)

        yield f"compiled by {compiler}", compiled


def _compiles(module: nn.Module) -> bool:
    """Whether the script compiles or the model is on a GPU. Compiling C++ for a CPU takes minutes and is rarely
    used.
    """
    return bool((COUNTERS.loaded() or {}).get("frames")) or any(p.is_cuda for p in module.parameters())


def _with_own_attention(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Tensor]:
    configs = {id(c): c for m in module.modules() if (c := getattr(m, "config", None)) is not None}
    kept = [(c, c._attn_implementation) for c in configs.values() if hasattr(c, "_attn_implementation")]
    try:
        for config, _ in kept:
            config._attn_implementation = "eager"
        return _ran(module, module, args, kwargs)
    finally:
        for config, name in kept:
            config._attn_implementation = name


@contextlib.contextmanager
def _compiled(module: nn.Module, compiler: str) -> Iterator[Any]:
    """The compiled module, in this process only. The compiled code is discarded afterwards."""
    before = bool(COUNTERS.now()["frames"])
    try:
        with INDUCTOR_PATCH(compile_threads=1):
            yield torch.compile(module, backend=compiler, dynamic=False)
    finally:
        torch.compiler.reset()
        if not before:
            COUNTERS.now().clear()  # these counters show whether the script compiles


def _ran(code: Any, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Outputs, and the gradients of a fixed weighted sum of them, by name."""
    for parameter in module.parameters():
        parameter.grad = None
    found: dict[str, Tensor] = {}
    mixture: Tensor | None = None
    for place, tensor in enumerate(tensors_of(code(*args, **kwargs))):
        if not tensor.is_floating_point():
            continue
        found[f"output {place}"] = tensor.detach().double()
        if tensor.requires_grad:
            generator = torch.Generator().manual_seed(place)
            weights = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.device)
            part = (tensor.double() * weights).sum() / max(tensor.numel(), 1) ** 0.5
            mixture = part if mixture is None else mixture + part
    if mixture is not None:
        mixture.backward()  # type: ignore[no-untyped-call]
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                found[f"gradient {name}"] = parameter.grad.detach().double().clone()
                parameter.grad = None
    return found


def _difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest relative difference: each output alone, all gradients together."""
    largest = 0.0
    outputs = [name for name in one.keys() & other.keys() if name.startswith("output")]
    for names in ([name] for name in outputs):
        largest = max(largest, _relative(one, other, names))
    return max(largest, _relative(one, other, [name for name in one if name.startswith("gradient") and name in other]))


def _relative(one: Mapping[str, Tensor], other: Mapping[str, Tensor], names: Sequence[str]) -> float:
    difference = sum(float((one[n].nan_to_num() - other[n].nan_to_num()).square().sum()) for n in names)
    total = sum(float(one[n].nan_to_num().square().sum()) for n in names)
    return (difference / total) ** 0.5 if total else float(difference > 0.0)


def _against_float64(module: nn.Module, args: Any, kwargs: Any, plain: Mapping[str, Tensor]) -> float | None:
    """Relative difference between plain code and float64, None if the code cannot run in float64. Values stay in
    float64.
    """

    def wider(tensor: Tensor) -> Tensor:
        return tensor.double() if tensor.is_floating_point() else tensor

    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.double()
    try:
        exact = _ran(module, module, changed_tree(tuple(args), wider), changed_tree(dict(kwargs), wider))
    except Exception:  # code with a hard-coded dtype
        return None
    return _difference(exact, plain)


def _floor(module: nn.Module) -> float:
    dtypes = {p.dtype for p in module.parameters() if p.is_floating_point()}
    return max((FLOOR.get(dtype, FLOOR_LOW) for dtype in dtypes), default=FLOOR[torch.float32])


class _Attention(TorchFunctionMode):
    """Counts calls of torch's fused attention."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += getattr(func, "__name__", "") == "scaled_dot_product_attention"
        return func(*args, **(kwargs or {}))
