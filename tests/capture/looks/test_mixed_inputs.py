"""Inputs that are mixed without their labels, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "unmixed-labels"
SICK = {
    "mixup": """
        order = torch.randperm(len(x))
        x = lam * x + (1 - lam) * x[order]
        loss = cross_entropy(model(x), y)
        """,
    "cutmix": """
        order = torch.randperm(len(x))
        x[:, :, a:b, c:d] = x[order, :, a:b, c:d]
        loss = cross_entropy(model(x), y)
        """,
    "another order": """
        order = torch.randperm(len(x))
        mixed = x * lam + x[order] * (1 - lam)
        other = torch.randperm(len(x))
        loss = lam * ce(model(mixed), y) + (1 - lam) * ce(model(mixed), y[other])
        """,
    "exchanged weights": """
        order = torch.randperm(len(x))
        x = lam * x + (1 - lam) * x[order]
        y_a, y_b = y, y[order]
        loss = lam * ce(model(x), y_b) + (1 - lam) * ce(model(x), y_a)
        """,
}
HEALTHY = {
    "both labels": """
        order = torch.randperm(len(x))
        x = lam * x + (1 - lam) * x[order]
        y_a, y_b = y, y[order]
        loss = lam * ce(model(x), y_a) + (1 - lam) * ce(model(x), y_b)
        """,
    "labels that are mixed": """
        order = torch.randperm(len(x))
        x = lam * x + (1 - lam) * x[order]
        y = lam * y + (1 - lam) * y[order]
        """,
    "the order is returned": """
        def mixup(x, lam):
            order = torch.randperm(len(x))
            return lam * x + (1 - lam) * x[order], order
        """,
    "a penalty between real and generated": """
        between = eps * real + (1 - eps) * fake
        order = torch.randperm(4)
        """,
    "an average that moves": """
        mean = decay * mean + (1 - decay) * x[0]
        order = torch.randperm(4)
        """,
    "noise of other rows": """
        order = torch.randperm(len(x))
        x = x + 0.1 * x[order]
        """,
}

test_the_mistake, test_what_resembles_it = cases_of(RULE, SICK, HEALTHY)
