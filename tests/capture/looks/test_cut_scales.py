"""Scales that are cut off near zero, in the source of a script."""

from __future__ import annotations

from rule_of_source import cases_of

LIKELIHOOD = """
        loss = 0.5 * (torch.log(var) + (y - mu) ** 2 / var).mean()
"""

SICK = {
    "relu": """
        mu, raw = self.head(h).chunk(2, dim=-1)
        var = F.relu(raw) + 1e-6
        """
    + LIKELIHOOD,
    "clamp": """
        var = head(h).clamp(min=1e-8)
        """
    + LIKELIHOOD,
    "of torch": """
        raw = net(x)[:, 1:]
        sigma = torch.clamp(raw, min=1e-6)
        loss = -Normal(mu, sigma).log_prob(y).mean()
        """,
    "named floor": """
        var = torch.relu(self.var_head(h)) + EPS
        """
    + LIKELIHOOD,
    "a head that ends in a relu": """
        self.sigma = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1), nn.ReLU())
        scale = self.sigma(h) + 1e-4
        loss = -torch.distributions.Laplace(mu, scale).log_prob(y).mean()
        """,
    "a square": """
        w = self.width(last)
        scale = w.square() + 1e-8
        loss = -Laplace(loc, scale).log_prob(y).mean()
        """,
    "a power": """
        sigma = torch.pow(self.sigma(h), 2) + 1e-6
        loss = -Normal(mu, sigma).log_prob(y).mean()
        """,
    "concentrations": """
        raw = self.proj(h)
        conc = torch.clamp(raw, min=1e-4)
        loss = -Beta(conc[:, 0], conc[:, 1]).log_prob(y).mean()
        """,
    "a criterion": """
        criterion = nn.GaussianNLLLoss()
        variance = self.out(h).clamp_min(0.0)
        loss = criterion(mu, y, variance)
        """,
}

HEALTHY = {
    "square with a sensible floor": """
        var = self.head(h) ** 2 + 1e-3
        """
    + LIKELIHOOD,
    "square of a difference": """
        var = (x - mean) ** 2 + 1e-8
        """
    + LIKELIHOOD,
    "softplus": """
        var = F.softplus(self.head(h)) + 1e-6
        """
    + LIKELIHOOD,
    "floor under a softplus": """
        var = F.softplus(self.head(h)).clamp(min=1e-6)
        """
    + LIKELIHOOD,
    "exponential": """
        raw = self.head(h)
        var = raw.exp().clamp(min=1e-6)
        """
    + LIKELIHOOD,
    "a sensible floor": """
        var = self.head(h).clamp(min=0.1)
        """
    + LIKELIHOOD,
    "two bounds": """
        var = self.head(h).clamp(1e-6, 10.0)
        """
    + LIKELIHOOD,
    "a statistic": """
        std = x.std(0).clamp(min=1e-6)
        x = (x - mean(x)) / std
        """,
    "a norm": """
        scale = torch.relu(x.norm(dim=1)) + 1e-8
        x = x / scale
        """,
    "features": """
        h = F.relu(self.head(h)) + 1e-6
        z = torch.log(h)
        """,
    "used as no scale": """
        scale = F.relu(self.head(h)) + 1e-6
        out = h * scale
        """,
    "a relu without a floor": """
        width = F.relu(self.head(h))
        loss = (width / image_width).mean()
        """,
}

test_finds, test_leaves = cases_of("cut-off-scale", SICK, HEALTHY)
