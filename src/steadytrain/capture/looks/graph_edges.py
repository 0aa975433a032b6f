"""Measures how many graphs of a batch the edges reach.

A batch of graphs is one large graph: the nodes of all are stacked, and the node indices in the edges of each graph are
raised by the number of nodes before it. Without that offset all edges lie among the nodes of the first graphs.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import MicroBatch, tensors_in

GRAPHS_MIN = 4
NODES_MAX, EDGES_MAX = 1 << 20, 1 << 22


@torch.no_grad()
def edge_rows(call: MicroBatch | None) -> Iterator[tuple[str, float]]:
    """``reached-graphs:MODEL`` is the share of graphs with an edge, of those of a batch with two nodes or more.

    A batch is known by a vector [nodes] of graph numbers (0, 0, 0, 1, 1, 2, ...) and edges [2, edges] among the inputs
    of the model. There is no row if either is missing.
    """
    integers = [one for one in tensors_in((call.args, call.kwargs)) if _is_integer(one)] if call is not None else []
    graph_of = next((one for one in integers if _numbers_graphs(one)), None)
    if call is None or graph_of is None:
        return
    edges = next((one for one in integers if _are_edges(one, len(graph_of))), None)
    if edges is None:
        return
    sizes = torch.bincount(graph_of.long())
    has_edge = torch.zeros_like(sizes, dtype=torch.bool)
    has_edge[graph_of[edges.reshape(-1).long()].long()] = True
    large = sizes >= 2
    if int(large.sum()) >= GRAPHS_MIN:
        yield f"reached-graphs:{type(call.module).__name__}", float(has_edge[large].float().mean())


def _is_integer(one: Tensor) -> bool:
    return type(one) is Tensor and one.dtype in (torch.int64, torch.int32) and one.layout == torch.strided


def _numbers_graphs(one: Tensor) -> bool:
    """Whether a vector counts up from 0 in steps of one, and most numbers stand there more than once."""
    if one.dim() != 1 or not 2 * GRAPHS_MIN <= len(one) <= NODES_MAX or int(one[0]) != 0:
        return False
    moves, graphs = one.diff(), int(one[-1]) + 1
    return GRAPHS_MIN <= graphs <= len(one) // 2 and bool(((moves == 0) | (moves == 1)).all())


def _are_edges(one: Tensor, nodes: int) -> bool:
    if one.dim() != 2 or one.shape[0] != 2 or not nodes // 4 <= one.shape[1] <= EDGES_MAX:
        return False
    return int(one.min()) >= 0 and int(one.max()) < nodes
