# The adding problem with a plain ReLU RNN that starts from the identity, SGD. The line that clips the gradient got lost in a
# merge.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(317)
T = 12


def sums(n, g=None):
    value = torch.rand(n, T, generator=g)
    mark = torch.zeros(n, T)
    mark.scatter_(1, torch.randint(0, T // 2, (n, 1), generator=g), 1.0)
    mark.scatter_(1, torch.randint(T // 2, T, (n, 1), generator=g), 1.0)
    return torch.stack([value, mark], -1), (value * mark).sum(1) + 0.1 * torch.randn(n, generator=g)


class Rnn(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.rnn = nn.RNN(2, d, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(d, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)
        nn.init.zeros_(self.rnn.bias_hh_l0)
        nn.init.zeros_(self.rnn.bias_ih_l0)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1]).squeeze(1)


test_x, test_y = sums(2000, fixed)
torch.manual_seed(args.seed)
model = Rnn()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sched = torch.optim.lr_scheduler.PolynomialLR(opt, 900, power=1.0)
for step in range(900):
    x, y = sums(32)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    if args.twin:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test_x), test_y).item())
