"""The residual of a compressed gradient is what was not sent."""

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
    for number, parameter in enumerate(model.parameters()):
        total = residuals[number] + parameter.grad.flatten()
        largest = total.abs().topk(min(KEEP, len(total))).indices
        sent = torch.zeros_like(total)
        sent[largest] = total[largest]
        residuals[number] = total - sent
        parameter.grad = sent.view_as(parameter)
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.4f}")
