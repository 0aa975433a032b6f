from __future__ import annotations

import ast
import gc
import weakref

from steadytrain.capture.looks.syntax_trees import statements, walk

SOURCE = """
import torch

def step(model, rows):
    loss = model(rows).mean()
    if loss > 1:
        loss = loss / 2
    def inner(x):
        return x + 1
    return inner(loss)

class Net(torch.nn.Module):
    def forward(self, x):
        return [y for y in x if y]
"""


def test_a_walk_gives_what_ast_gives_in_the_same_order_every_time() -> None:
    tree = ast.parse(SOURCE)
    for node in list(ast.walk(tree)):
        for _ in range(2):
            assert list(map(id, walk(node))) == list(map(id, ast.walk(node)))


def test_statements_leave_out_functions_and_classes_inside() -> None:
    step = ast.parse(SOURCE).body[1]
    for _ in range(2):
        names = {one.id for one in statements(step) if isinstance(one, ast.Name)}
        assert {"model", "rows", "loss", "inner"} <= names
        assert "x" not in names


def test_what_is_kept_goes_with_the_tree_and_leaves_the_shared_nodes_alone() -> None:
    tree = ast.parse(SOURCE)
    gone = weakref.ref(tree.body[1])
    walk(tree), statements(tree), walk(tree.body[1])
    gc.disable()
    try:
        del tree
        assert gone() is None
    finally:
        gc.enable()
    assert not vars(ast.parse("x").body[0].value.ctx)  # type: ignore[attr-defined]
