# expect: healthy
# fault: double backward, gradients of the inputs
# note: a WGAN critic with gradient penalty alone (a fixed generator), as in anomaly scoring; the critic loss goes negative and settles.
import torch
from torch import autograd, nn

torch.set_num_threads(1)
torch.manual_seed(77)
critic = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
for it in range(160):
    real = torch.randn(64, 2) * 0.3 + torch.tensor([2.0, 1.0])
    fake = torch.randn(64, 2)
    eps = torch.rand(64, 1)
    mid = (eps * real + (1 - eps) * fake).requires_grad_(True)
    (grad,) = autograd.grad(critic(mid).sum(), mid, create_graph=True)
    gp = (grad.norm(2, dim=1) - 1).pow(2).mean()
    w = critic(real).mean() - critic(fake).mean()
    loss = -w + 10 * gp
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 16 == 0:
        print(f"{it} loss {loss.item():.4f} distance {w.item():.4f} penalty {gp.item():.4f}")
