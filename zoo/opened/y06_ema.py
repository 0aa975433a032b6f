# expect: sick
# symptom: after the resume the run is not what it was
# axis: harness
# cause: a state that the checkpoint holds is never loaded at the resume
# says: (never|not|without|forg).{0,60}(load|restor|read|resum)|(resum|restor|checkpoint|load).{0,120}(missing|left|anew|again|reset|stale|state)
# onset_step: 0
# fix: load the state at the resume
# mended: the same with the fix
import copy
import io
import os
import torch
import torch.nn.functional as F
from torch import nn

MENDED = os.environ.get("MENDED") == "1"


class Ema:
    def __init__(self, model, decay=0.97):
        self.decay = decay
        self.shadow = copy.deepcopy(model).eval()
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)

    def state_dict(self):
        return self.shadow.state_dict()

    def load_state_dict(self, sd):
        self.shadow.load_state_dict(sd)


def moons(n, g):
    t = torch.rand(n, generator=g) * 3.1416
    y = torch.randint(0, 2, (n,), generator=g)
    s = 1 - 2 * y.float()
    x = torch.stack([torch.cos(t) * s + y, torch.sin(t) * s + 0.4 * y], 1)
    return x + 0.15 * torch.randn(n, 2, generator=g), y


def new_run():
    net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    return net, torch.optim.AdamW(net.parameters(), lr=1e-2), Ema(net)


def fit(net, opt, ema, steps, g):
    for k in range(steps):
        x, y = moons(64, g)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(net)
        if k % 15 == 14:
            print(f"  {k + 1:3d} loss {loss.item():.4f}")


torch.manual_seed(0)
g = torch.Generator().manual_seed(42)
xt, yt = moons(500, torch.Generator().manual_seed(7))

net, opt, ema = new_run()
fit(net, opt, ema, 90, g)
disk = io.BytesIO()
torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "ema": ema.state_dict(), "gen": g.get_state()}, disk)

print("restart")
disk.seek(0)
state = torch.load(disk)
net, opt, ema = new_run()
net.load_state_dict(state["net"])
opt.load_state_dict(state["opt"])
if MENDED:
    ema.load_state_dict(state["ema"])
g.set_state(state["gen"])
fit(net, opt, ema, 30, g)

with torch.no_grad():
    out = ema.shadow(xt)
    print(
        f"ema test loss {F.cross_entropy(out, yt).item():.4f}", f"acc {(out.argmax(1) == yt).float().mean().item():.3f}"
    )
