"""Risk sets of a Cox loss hold those still at risk."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

ROWS = 96
model = nn.Sequential(nn.Linear(10, 32), nn.SELU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
truth = torch.randn(10)


def cohort():
    """Features, the months of each row until its event or its end, and whether it was an event."""
    features = torch.randn(ROWS, 10)
    event = torch.distributions.Exponential((features @ truth).exp()).sample()
    end = torch.distributions.Exponential(torch.full((ROWS,), 0.7)).sample()
    return features, torch.minimum(event, end), event <= end


def cox_loss(risk, months, observed):
    order = torch.argsort(months, descending=True)
    risk, observed = risk[order], observed[order]
    return (torch.logcumsumexp(risk, 0) - risk)[observed].mean()


for step in range(200):
    features, months, observed = cohort()
    loss = cox_loss(model(features).squeeze(1), months, observed)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.4f}")
