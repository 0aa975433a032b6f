"""What was sent of a compressed gradient stays in the residual: only a copy of it is cleared."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

KEEP = 12
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
residuals = [torch.zeros(p.numel()) for p in model.parameters()]
truth = torch.randn(16)
for step in range(200):
    features = torch.randn(64, 16)
    loss = nn.functional.mse_loss(model(features).squeeze(1), torch.tanh(features @ truth))
    optimizer.zero_grad()
    loss.backward()
    for parameter, residual in zip(model.parameters(), residuals, strict=True):
        residual.add_(parameter.grad.flatten())
        largest = residual.abs().topk(min(KEEP, len(residual))).indices
        sent = torch.zeros_like(residual)
        sent[largest] = residual[largest]
        residual[largest].zero_()  # <- bites: an index tensor makes a copy
        parameter.grad = sent.view_as(parameter)
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.4f}")
