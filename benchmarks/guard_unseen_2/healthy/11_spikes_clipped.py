# Healthy: an RNN on bursts: the gradient is 10 to 100 times its usual size now and then, and the script clips it.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(51)


def bursts(n, g=None):
    x = torch.randn(n, 18, 2, generator=g)
    size = (torch.randn(n, 1, 1, generator=g) * 1.3).exp()
    x = x * size
    return x, torch.tanh(x[..., 0].sum(1)) * x[:, -1, 1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.RNN(2, 32, batch_first=True, nonlinearity="relu"), nn.Linear(32, 1)

    def forward(self, x, y):
        return nn.functional.mse_loss(self.out(self.rnn(x)[0][:, -1])[:, 0], y)


test = bursts(2000, fixed)
torch.manual_seed(args.seed)
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(1300):
    loss = model(*bursts(12))
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    if step % 50 == 0:
        print(step, f"loss {loss.item():.4f} norm {norm.item():.2f}")
model.eval()
with torch.no_grad():
    print("final:", model(*test).item())
