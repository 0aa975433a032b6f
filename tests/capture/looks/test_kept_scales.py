from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "norm": """
        for x, y in loader:
            scaler.scale(loss_of(x, y)).backward()
            grad_norm = norm_of(model)
            if not math.isfinite(grad_norm):
                optimizer.zero_grad()
                continue
            scaler.step(optimizer)
            scaler.update()
    """,
}
HEALTHY = {
    "updated on the way": """
        for x, y in loader:
            scaler.scale(loss_of(x, y)).backward()
            if not grads_finite(model):
                scaler.step(optimizer)
                scaler.update()
                continue
            scaler.step(optimizer)
            scaler.update()
    """,
    "accumulates": """
        for number, (x, y) in enumerate(loader):
            scaler.scale(loss_of(x, y) / 4).backward()
            if (number + 1) % grad_accum:
                continue
            scaler.step(optimizer)
            scaler.update()
    """,
    "a bad loss": """
        for x, y in loader:
            loss = loss_of(x, y)
            if not torch.isfinite(loss):
                continue
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    """,
}

test_finds, test_leaves = cases_of("kept-scale", SICK, HEALTHY)
