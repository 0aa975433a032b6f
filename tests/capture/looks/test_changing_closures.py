from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "next batch": """
        import torch
        opt = torch.optim.LBFGS(model.parameters())
        def closure():
            opt.zero_grad()
            x, y = next(batches)
            loss = criterion(model(x), y)
            loss.backward()
            return loss
        opt.step(closure)
    """,
    "a method draws": """
        import torch

        class Solver:
            def collocation(self):
                return torch.rand(100, 2)

            def fit(self):
                self.opt = torch.optim.LBFGS(self.net.parameters())

                def closure():
                    self.opt.zero_grad()
                    loss = self.residual(self.collocation()).mean()
                    loss.backward()
                    return loss

                self.opt.step(closure)
    """,
}
HEALTHY = {
    "drawn before": """
        import torch
        opt = torch.optim.LBFGS(model.parameters())
        for _ in range(10):
            x = torch.rand(100, 2)
            def closure():
                opt.zero_grad()
                loss = model(x).mean()
                loss.backward()
                return loss
            opt.step(closure)
    """,
    "seeded": """
        import torch
        opt = torch.optim.LBFGS(model.parameters())
        def closure():
            torch.manual_seed(0)
            opt.zero_grad()
            loss = model(torch.rand(100, 2)).mean()
            loss.backward()
            return loss
        opt.step(closure)
    """,
    "another optimizer": """
        import torch
        opt = torch.optim.Adam(model.parameters())
        polish = torch.optim.LBFGS(model.parameters())
        def closure():
            opt.zero_grad()
            loss = model(torch.rand(100, 2)).mean()
            loss.backward()
            return loss
        opt.step(closure)
    """,
}

test_finds, test_leaves = cases_of("changing-closure", SICK, HEALTHY)
