# expect: sick
# fault: resume with the moments of other parameters
# onset_step: 90
# says: (?i)(\bmoments?\b|optimi[sz]er.{0,10}state|state.{0,40}(other|wrong|swap|mismatch|order)|exp_avg|\bresum|\brestor|checkpoint|\bload(ed|ing|s)?\b)
# note: the resuming script gives the optimizer the two towers in another order than the first run; their tensors have the same shapes, so load_state_dict gives each tower the moments of the other without complaint.
import tempfile
import torch
from torch import nn

torch.set_num_threads(1)
D = 24


def tower():
    return nn.Sequential(nn.Linear(D, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))


class CoarseFine(nn.Module):
    def __init__(self):
        super().__init__()
        self.coarse, self.fine = tower(), tower()

    def forward(self, x):
        return 5.0 * self.coarse(x) + 0.1 * self.fine(x)


torch.manual_seed(16)
w = torch.randn(D, 3) / 4


def step(model, opt):
    x = torch.randn(48, D)
    y = 2 * torch.tanh(x @ w[:, :1]) + torch.sin(x @ w[:, 1:2]) + 0.1 * (x @ w[:, 2:])
    loss = (model(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


first = CoarseFine()
opt = torch.optim.Adam([*first.coarse.parameters(), *first.fine.parameters()], lr=8e-3)
for i in range(90):
    l = step(first, opt)
    if i % 15 == 0:
        print(i, f"{l:.4f}")
with tempfile.NamedTemporaryFile(suffix=".pt") as f:
    torch.save({"m": first.state_dict(), "o": opt.state_dict()}, f.name)
    blob = torch.load(f.name)
model = CoarseFine()
model.load_state_dict(blob["m"])
opt = torch.optim.Adam([*model.fine.parameters(), *model.coarse.parameters()], lr=8e-3)
opt.load_state_dict(blob["o"])
for i in range(90, 180):
    l = step(model, opt)
    if i % 15 == 0 or 90 <= i < 95:
        print(i, f"{l:.4f}")
print("final loss", l)
