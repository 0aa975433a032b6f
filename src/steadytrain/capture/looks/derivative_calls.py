"""Calls in a source that take a derivative: ``torch.autograd.grad``, however it was imported."""

from __future__ import annotations

import ast

from steadytrain.capture.looks.syntax_trees import dotted


def is_derivative(call: ast.Call) -> bool:
    """Whether ``call`` is one of ``torch.autograd.grad``; that of ``torch.func`` takes one argument and is none."""
    name = dotted(call.func)
    return name.endswith("autograd.grad") or (name == "grad" and len(call.args) > 1)
