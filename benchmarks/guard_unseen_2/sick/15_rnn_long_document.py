# Plain ReLU RNN, SGD with momentum, no clipping. Fault: at step 500 a batch was not split and not scaled (200 long where it
# is 20, values x60): the recurrence explodes and so does the gradient.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(25)


def sequences(n, length, g=None):
    x = torch.randn(n, length, 2, generator=g)
    fade = 0.9 ** torch.arange(length - 1, -1, -1.0)
    y = (fade * x[..., 0]).sum(1, keepdim=True) + x[:, -1, 1:]
    return x, y + torch.randn(n, 1, generator=g) * 0.5


class Rnn(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.inp, self.rec, self.out = nn.Linear(2, d), nn.Linear(d, d, bias=False), nn.Linear(d, 1)
        self.rec.weight.data.copy_(0.8 * torch.eye(d))

    def forward(self, x):
        h = x.new_zeros(len(x), self.rec.in_features)
        for t in range(x.shape[1]):
            h = torch.relu(self.inp(x[:, t]) + self.rec(h))
        return self.out(h)


test = sequences(2000, 20, fixed)
torch.manual_seed(args.seed)
model = Rnn()
opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for step in range(600):
    x, y = sequences(48, 20)
    if step == 500 and not args.twin:
        x, y = sequences(48, 200)
        x = x * 60
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"{step} {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test[0]), test[1]).item())
