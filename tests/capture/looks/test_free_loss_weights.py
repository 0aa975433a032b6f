"""Learned weights of losses without a bound, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "free-weights"
SICK = {
    "a module": """
        class Balance(nn.Module):
            def __init__(self):
                self.log_var = nn.Parameter(torch.zeros(2))
            def forward(self, losses):
                return (torch.exp(-self.log_var) * losses).sum()
        """,
    "one by one": """
        log_sigma = nn.Parameter(torch.zeros(2))
        precision = torch.exp(-log_sigma[0])
        total = precision * loss_a
        """,
    "a square": """
        class W(nn.Module):
            def __init__(self):
                self.sigma = nn.Parameter(torch.ones(2))
            def forward(self, loss_a):
                return loss_a / self.sigma[0] ** 2
        """,
}
HEALTHY = {
    "with its logarithm": """
        class Balance(nn.Module):
            def __init__(self):
                self.log_var = nn.Parameter(torch.zeros(2))
            def forward(self, losses):
                return (torch.exp(-self.log_var) * losses + self.log_var).sum()
        """,
    "added later": """
        class Balance(nn.Module):
            def __init__(self):
                self.log_var = nn.Parameter(torch.zeros(2))
            def forward(self, losses):
                total = (torch.exp(-self.log_var) * losses).sum()
                total = total + self.log_var.sum()
                return total
        """,
    "the logarithm of a deviation": """
        class W(nn.Module):
            def __init__(self):
                self.sigma = nn.Parameter(torch.ones(2))
            def forward(self, loss_a):
                return loss_a / (2 * self.sigma[0] ** 2) + torch.log(self.sigma[0])
        """,
    "a softmax": """
        task_w = nn.Parameter(torch.zeros(2))
        total = (torch.softmax(task_w, 0) * losses).sum()
        """,
    "a temperature": """
        class Clip(nn.Module):
            def __init__(self):
                self.scale = nn.Parameter(torch.ones(()))
            def forward(self, a, b):
                return self.scale.exp() * a @ b.T
        """,
}

test_the_mistake, test_what_resembles_it = cases_of(RULE, SICK, HEALTHY)
