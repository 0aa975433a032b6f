from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "segments": """
        import torch

        def pool(tokens, segment_ids, count):
            out = tokens.new_zeros(count, tokens.size(-1))
            out[segment_ids] += tokens - tokens.mean(0)
            return out, out[segment_ids]

        class Pool(torch.nn.Module):
            pass
    """,
    "edges": """
        import torch

        class Layer(torch.nn.Module):
            def forward(self, h, edge_index):
                src, dst = edge_index
                total = torch.zeros_like(h)
                total[dst] += h[src]
                return total + self.own(h)[dst].mean()
    """,
}
HEALTHY = {
    "summed": """
        import torch

        class Layer(torch.nn.Module):
            def forward(self, h, src, dst):
                total = torch.zeros_like(h)
                return total.index_add_(0, dst, h[src])
    """,
    "one at a time": """
        import torch

        class Layer(torch.nn.Module):
            def forward(self, h, weights):
                total = torch.zeros_like(h)
                for idx in range(len(weights)):
                    total[idx] += weights[idx] * h[idx]
                return total
    """,
    "searched": """
        import torch

        class Experts(torch.nn.Module):
            def forward(self, x, top):
                total = torch.zeros_like(x)
                for number, expert in enumerate(self.experts):
                    idx = (top == number).nonzero().squeeze(1)
                    total[idx] += expert(x[idx])
                return total
    """,
}

test_finds, test_leaves = cases_of("indexed-sum", SICK, HEALTHY)
