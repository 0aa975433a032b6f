"""Losses over all nodes of a graph, read in the source, and those over a part of them."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a graph with masks": """
        def train():
            out = model(data.x, data.edge_index)
            loss = F.cross_entropy(out, data.y)
            loss.backward()
            optimizer.step()
        def test():
            predicted = model(data.x, data.edge_index).argmax(1)
            return (predicted[data.test_mask] == data.y[data.test_mask]).float().mean()
    """,
    "with indices": """
        for epoch in range(200):
            output = model(features, adj)
            loss = F.nll_loss(output, labels)
            loss.backward()
            optimizer.step()
        print(accuracy(output[idx_test], labels[idx_test]))
    """,
}
HEALTHY = {
    "masked": """
        def train():
            out = model(data.x, data.edge_index)
            loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
            loss.backward()
        print(data.y[data.test_mask])
    """,
    "masked before": """
        def train():
            out = model(data.x, data.edge_index)[data.train_mask]
            y = data.y[data.train_mask]
            loss = F.cross_entropy(out, y)
            loss.backward()
        print(data.y[data.test_mask], y[test_mask])
    """,
    "batches of graphs": """
        def train():
            for data in loader:
                out = model(data.x, data.edge_index, data.batch)
                loss = F.cross_entropy(out, data.y)
                loss.backward()
        print(whole.y[whole.test_mask])
    """,
    "in a test": """
        def test():
            out = model(data.x, data.edge_index)
            return F.cross_entropy(out, data.y), data.y[data.test_mask]
    """,
    "weighted by the mask": """
        def train():
            out = model(data.x, data.edge_index)
            loss = F.cross_entropy(out, data.y, reduction="none")
            loss[data.train_mask].mean().backward()
        print(data.y[data.test_mask])
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "unmasked-nodes"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_all_nodes_are_trained_on(source: str) -> None:
    assert found(source) == ["unmasked-nodes"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
