"""Recurrences whose state grows by construction, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "growing-state"


def layer(factor: str, update: str = "h = a * h + u[:, t]", made: str = "") -> str:
    return f"""
        class Memory(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.A_log = nn.Parameter(torch.zeros(width))
                {made or "self.into = nn.Linear(width, width)"}

            def rates(self):
                return self.A_log.exp()

            def forward(self, x):
                u = self.into(x)
                dt = F.softplus(self.step(x))
                a = {factor}
                h = torch.zeros_like(u[:, 0])
                for t in range(x.shape[1]):
                    {update}
                return h
        """


SICK = {
    "exp of a rate": layer("torch.exp(self.rates())"),
    "exp of dt times A": layer("torch.exp(dt * torch.exp(self.A_log))", "h = a[:, t] * h + u[:, t]"),
    "one plus a gate": layer("1 + torch.sigmoid(self.A_log)"),
    "a square": layer("(self.A_log ** 2 + 0.1).exp()"),
    "an attribute": layer("torch.exp(self.rate)", made="self.rate = torch.linspace(0.01, 0.1, width)"),
    "a cell": """
        class LeakyCell(nn.Module):
            def forward(self, x, h):
                keep = 1 + torch.sigmoid(self.leak(x))
                return keep * h + self.into(x)
        """,
}
HEALTHY = {
    "a minus sign": layer("torch.exp(-self.rates())"),
    "A is negative": layer("torch.exp(dt * -torch.exp(self.A_log))"),
    "A is negative, by name": layer("torch.exp(dt * self.A)", made="self.A = -torch.exp(self.A_log)"),
    "a gate": layer("torch.sigmoid(self.A_log)"),
    "a weight that is trained": layer("self.A_log"),
    "a running sum": layer("torch.sigmoid(dt)", "h = h + u[:, t]"),
    "a product": layer("torch.exp(self.rates())", "h = h * a"),
    "weights of an attention": layer("torch.exp(x - x.max())", "h = h + a[:, t] * u[:, t]"),
    "a gate of a layer": """
        class Block(nn.Module):
            def forward(self, h, mask):
                scale = 1 + torch.sigmoid(self.gate(h))
                return scale * h + self.shift(h)
        """,
    "money, in no module": """
        def simulate(rate):
            for t in range(100):
                money = (1 + abs(rate)) * money + saved
            return money
        """,
}

test_finds, test_leaves = cases_of(RULE, SICK, HEALTHY)
