# expect: sick
# fault: the KL weight jumps to 200, reconstruction is lost
# onset_step: 5
# says: (?i)(loss|gradient|kl|weight|progress|spike|diverg|collapse)
# note: beta after the warm phase is read as percent (200 instead of 2.0); the posterior collapses and the reconstruction goes back to the mean.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(21)
basis = torch.randn(3, 40)
enc = nn.Sequential(nn.Linear(40, 48), nn.ReLU(), nn.Linear(48, 6))
dec = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 40))
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=5e-3)
for step in range(160):
    x = torch.randn(64, 3) @ basis + 0.1 * torch.randn(64, 40)
    mu, lv = enc(x).chunk(2, 1)
    rec = dec(mu + torch.randn_like(mu) * (lv / 2).exp())
    mse = (rec - x).pow(2).sum(1).mean()
    kl = -0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum(1).mean()
    beta = 0.5
    if step >= 5:
        beta = 200
    loss = mse + beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"{step} loss {loss.item():.3f} mse {mse.item():.3f} kl {kl.item():.3f}")
