"""Tries the fault under other conditions, for which maintainers ask first: in float64, on the CPU, compiled.

Run as ``python -m steadytrain.repro.variants SCRIPT FACTS.json RESULT.json``. It writes the result after each variant,
so
that finished ones survive a timeout.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from steadytrain.core.torch_private import INDUCTOR_PATCH
from steadytrain.storage.bundle import write_json
from steadytrain.tracing.tensor_summary import WORDS, Kinds, kinds_of
from steadytrain.tracing.value_origins import each_kind

SAID_CHARACTERS_MAX = 120
_FLOATS = re.compile(r"torch\.(float32|float16|bfloat16)\b")


def main(script: str, facts: str, result: str) -> int:
    """Writes the outcome of each variant of ``script`` to ``result``."""
    text = Path(script).read_text(encoding="utf-8")
    told = json.loads(Path(facts).read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    compile_quickly()
    tries: dict[str, Callable[[], str]] = {
        "eager": lambda: _outcome(text, script, told),
        "float64": lambda: _outcome(_FLOATS.sub("torch.float64", text), script, told, dtype=torch.float64),
        "compiled": lambda: _outcome(text, script, told, wrap=torch.compile),
    }
    if told["device"] == "cpu":
        if torch.cuda.is_available():
            on_gpu = text.replace("import torch\n", 'import torch\ntorch.set_default_device("cuda")\n', 1)
            tries["cuda"] = lambda: _outcome(on_gpu, script, told)
    else:
        tries["cpu"] = lambda: _outcome(text.replace(f'device = "{told["device"]}"', 'device = "cpu"'), script, told)
    for name, attempt in sorted(tries.items(), key=lambda item: item[0] == "compiled"):
        try:
            found[name] = attempt()
        except Exception as error:  # an operation without support for the dtype, or a missing compiler
            said = (str(error).strip().splitlines() or [""])[0][:SAID_CHARACTERS_MAX]
            found[name] = f"not possible ({type(error).__name__}: {said})"
        write_json(Path(result), found)
    return 0


def compile_quickly() -> None:
    """Skips precompiled headers and instruction set tests, which take longer than compiling one small kernel."""
    for name, value in (("cpp_cache_precompile_headers", False), ("cpp.vec_isa_ok", True)):
        with contextlib.suppress(AttributeError):  # another torch may not have the setting
            INDUCTOR_PATCH({name: value}).__enter__()


def _outcome(
    text: str,
    path: str,
    told: Mapping[str, Any],
    *,
    dtype: torch.dtype | None = None,
    wrap: Callable[[Any], Any] | None = None,
) -> str:
    """One word for the result of the script's ``forward``, or for its gradient."""
    space: dict[str, Any] = {"__name__": "repro", "__file__": path}
    exec(compile(text, path, "exec"), space)
    names = [operand["name"] for operand in told["inputs"]]
    given = dict(zip(names, space["inputs"](), strict=True))
    if dtype is not None:
        given = {name: one.to(dtype) if one.is_floating_point() else one for name, one in given.items()}
    forward = space["forward"] if wrap is None else wrap(space["forward"])
    if told["backward"]:
        given[told["target"]].requires_grad_()
    code = space["forward"].__code__
    result = forward(*(given[name] for name in code.co_varnames[: code.co_argcount]))
    if told["backward"]:
        results = result if isinstance(result, tuple) else (result,)
        torch.autograd.backward(results, [given[name].to(one.dtype) for name, one in zip(told["gradients"], results)])  # noqa: B905
        result = given[told["target"]].grad
    kinds = each_kind(kinds_of(result))
    return " and ".join(WORDS[kind] for kind in kinds if kind is not Kinds.NONE) or "finite"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
