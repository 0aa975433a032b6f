"""Which autograd functions reverse a gradient."""

from __future__ import annotations

import ast
import textwrap

import pytest

from steadytrain.capture.looks.reversed_gradients import reversed_gradients

FORM = """
    class One(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, strength=1.0):
            ctx.strength = strength
            return {made}

        @staticmethod
        def backward(ctx, grad):
            return {given}
"""


@pytest.mark.parametrize(
    ("made", "given", "found"),
    [
        ("x.view_as(x)", "-ctx.strength * grad, None", True),
        ("x.clone()", "grad.neg() * ctx.strength, None", True),
        ("x", "grad * -1", True),
        ("x.view_as(x)", "grad * ctx.strength, None", False),
        ("x.view_as(x)", "grad.clamp(-ctx.strength, ctx.strength), None", False),  # clips the gradient
        ("x.round()", "-grad", False),
        ("x", "-grad * -ctx.strength", False),
    ],
)
def test_what_reverses_a_gradient(made: str, given: str, found: bool) -> None:
    tree = ast.parse(textwrap.dedent(FORM.format(made=made, given=given)))
    assert list(reversed_gradients(tree)) == ([2] if found else [])


def test_another_class_is_none() -> None:
    source = FORM.format(made="x", given="-grad").replace("torch.autograd.Function", "Layer")
    assert list(reversed_gradients(ast.parse(textwrap.dedent(source)))) == []
