# expect: sick
# symptom: nothing explodes; the reconstruction error falls a little and stands still far above what the code book allows, and the codes in use shrink to a few
# axis: model
# cause: the straight-through line detaches the wrong difference (zq + (z - zq).detach()), so the encoder gets no gradient of the reconstruction
# says: (?i)detached-graph|detach|straight.?through|stop.?grad|(no|without) gradient.{0,60}encoder|encoder.{0,60}(no gradient|not (learn|train)|gets no|cut)|graph (is )?cut
# onset_step: 1
# fix: z + (zq - z).detach()
# mended: z + (zq - z).detach()
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(218)
FIX = os.environ.get("MENDED") == "1"
gen = torch.Generator().manual_seed(19)
shapes = torch.randn(16, 36, generator=gen)


def draw(n):
    i = torch.randint(0, 16, (n,), generator=gen)
    return shapes[i] + 0.2 * torch.randn(n, 36, generator=gen)


class VQ(nn.Module):
    def __init__(self, d=8, k=32):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, d))
        self.dec = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 36))
        self.code = nn.Parameter(0.5 * torch.randn(k, d))

    def forward(self, x):
        z = self.enc(x)
        idx = torch.cdist(z, self.code).argmin(1)
        zq = self.code[idx]
        commit = F.mse_loss(zq, z.detach()) + 0.25 * F.mse_loss(z, zq.detach())
        out = z + (zq - z).detach() if FIX else zq + (z - zq).detach()
        return self.dec(out), commit, idx


net = VQ()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(1, 401):
    x = draw(64)
    out, commit, idx = net(x)
    rec = F.mse_loss(out, x)
    loss = rec + commit
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        with torch.no_grad():
            q = F.mse_loss(net.dec(net.code[idx]), x)
        print(f"step {step} loss {loss.item():.4f} from the codes {q.item():.4f} codes {idx.unique().numel()}")
