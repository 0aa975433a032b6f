from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "sorted upwards": """
        import torch

        def cox(risk, time, event):
            order = torch.argsort(time)
            risk, event = risk[order], event[order]
            return (torch.logcumsumexp(risk, 0) - risk)[event].mean()
    """,
    "a table": """
        import torch

        table = table.sort_values("months")
        def partial(eta, event):
            grown = eta.exp()
            below = torch.cumsum(grown, 0)
            return -((eta - below.log()) * event).sum()
    """,
    "a mask of pairs": """
        import torch

        def cox(eta, months, event):
            risk = months.unsqueeze(1) >= months.unsqueeze(0)
            below = torch.logsumexp(eta.masked_fill(~risk, -1e9), dim=1)
            return -(eta - below)[event].mean()
    """,
}
HEALTHY = {
    "downwards": """
        import torch

        def cox(risk, time, event):
            order = torch.argsort(time, descending=True)
            risk, event = risk[order], event[order]
            return (torch.logcumsumexp(risk, 0) - risk)[event].mean()
    """,
    "negated": """
        import torch

        def cox(risk, time, event):
            order = torch.argsort(-time)
            return (torch.logcumsumexp(risk[order], 0) - risk[order])[event[order]].mean()
    """,
    "flipped": """
        import torch

        def cox(risk, time, event):
            order = torch.argsort(time)
            below = risk[order].flip(0).logcumsumexp(0).flip(0)
            return (below - risk[order])[event[order]].mean()
    """,
    "taken off the whole": """
        import torch

        def cox(eta, time, event):
            order = time.argsort()
            grown = eta[order].exp()
            left = torch.cumsum(grown, 0) - grown
            return -(eta[order] - (grown.sum() - left).log())[event[order]].mean()
    """,
    "those at risk": """
        import torch

        def cox(eta, months, event):
            risk = months[None, :] >= months[:, None]
            below = torch.logsumexp(eta.masked_fill(~risk, -1e9), dim=1)
            return -(eta - below)[event].mean()
    """,
    "another sum": """
        import torch

        def hazard_curve(event, time):
            order = torch.argsort(time)
            return torch.cumsum(event[order], 0)
    """,
}

test_finds, test_leaves = cases_of("reversed-risk", SICK, HEALTHY)
