from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "a collate function": """
        def collate(graphs):
            edges, offset = [], 0
            for x, e in graphs:
                edges.append(e + offset)
                offset += int(e.max()) + 1
            return torch.cat(edges, dim=1)
    """,
    "written out": """
        for graph in graphs:
            shifted = graph.edge_index + base
            joined.append(shifted)
            base = base + graph.edge_index.max().item() + 1
    """,
    "sums of largest ones": """
        counts = [b.max() + 1 for b in bonds]
        starts = np.cumsum(counts) - counts
        joined = np.concatenate([b + s for b, s in zip(bonds, starts)])
    """,
    "lists": """
        for scene in scenes:
            for s, o in scene.triples:
                subj.append(s + base)
                obj.append(o + base)
            base = max(subj + obj) + 1
    """,
    "vertices that a face has": """
        for m in meshes:
            faces.append(m.faces + shift)
            shift += torch.unique(m.faces).numel()
    """,
}
HEALTHY = {
    "the number of nodes": """
        def collate(graphs):
            edges, offset = [], 0
            for x, e in graphs:
                edges.append(e + offset)
                offset += len(x)
            return torch.cat(edges, dim=1)
    """,
    "the size of a vocabulary": """
        vocabulary = 0
        for edges, ids in tables:
            vocabulary = max(vocabulary, int(ids.max()) + 1)
            kept.append(edges)
    """,
    "the number of graphs": """
        for graph in graphs:
            owners.append(graph.batch + first)
            edges.append(graph.edge_index + nodes)
            nodes += graph.num_nodes
            first += 1
    """,
    "a sum of numbers of nodes": """
        counts = [len(x) for x in nodes]
        starts = np.cumsum(counts) - counts
        most = [b.max() + 1 for b in bonds]
    """,
}

test_finds, test_leaves = cases_of("graph-offset", SICK, HEALTHY)
