"""Lists that hold one layer many times, read in the source, and lists of several layers."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a list of heads": "heads = [nn.Linear(64, 2)] * n_tasks",
    "in a Sequential": "net = nn.Sequential(nn.Linear(8, 64), *[nn.Linear(64, 64), nn.ReLU()] * 3)",
    "the number first": "convs = nn.ModuleList(3 * [torch.nn.Conv2d(8, 8, 3)])",
    "of a class of the script": """
        class Part(nn.Module):
            def __init__(self, width):
                self.layer = nn.Linear(width, width)
        class Block(nn.Module):
            def __init__(self, width):
                self.part = Part(width)
        class Net(nn.Module):
            def __init__(self):
                self.blocks = nn.ModuleList([Block(32)] * 6)
    """,
    "of a layer that was made before": """
        class Net(nn.Module):
            def __init__(self, width, depth):
                layer = nn.TransformerEncoderLayer(width, 4)
                self.layers = nn.ModuleList([layer for _ in range(depth)])
    """,
}
HEALTHY = {
    "in a branch that says so": """
        class Net(nn.Module):
            def __init__(self, stages, tied=True):
                if tied:
                    self.stages = nn.ModuleList([nn.Linear(8, 8)] * stages)
    """,
    "each is made": "blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])",
    "without parameters": "net = nn.Sequential(*[nn.ReLU(), nn.Dropout(0.1)] * 3, nn.Linear(8, 8))",
    "numbers": "widths = [64] * 3; net = nn.Linear(8, 8)",
    "one": "net = nn.ModuleList([nn.Linear(8, 8)] * 1)",
    "shared by name": "self.shared_heads = nn.ModuleList([nn.Linear(8, 8)] * 3)",
    "shared by the name of the class": """
        class UniversalTransformer(nn.Module):
            def __init__(self):
                self.blocks = nn.ModuleList([nn.Linear(8, 8)] * 3)
    """,
    "a class without parameters": """
        class Gate(nn.Module):
            def forward(self, x):
                return x * x.sigmoid()
        gates = nn.ModuleList([Gate()] * 3)
    """,
    "copies of one": """
        layer = nn.Linear(8, 8)
        layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(3)])
    """,
    "several layers": """
        layer = nn.Linear(8, 8)
        layers = nn.ModuleList([layer for layer in made])
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "shared-layers"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_one_layer_many_times(source: str) -> None:
    assert found(source) == ["shared-layers"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
