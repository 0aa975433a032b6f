# expect: healthy
# symptom: resembles a wrong beta and an overpowering discriminator: betas (0.5, 0.9), discriminator at twice the rate
# note: usual settings of a GAN (two time scales); the losses stay balanced, the samples move towards the ring (distance 2 to 0.44)
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(8)
g = torch.Generator().manual_seed(1)
ang = 6.2832 * torch.rand(64 * 400, generator=g)
data = torch.stack([ang.cos(), ang.sin()], 1) * 2 + 0.05 * torch.randn(len(ang), 2, generator=g)
gen = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
disc = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
og = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.9))
od = torch.optim.Adam(disc.parameters(), lr=2e-3, betas=(0.5, 0.9))
for step, (real,) in enumerate(DataLoader(TensorDataset(data), batch_size=64, shuffle=True), 1):
    fake = gen(torch.randn(64, 4))
    dl = F.softplus(-disc(real)).mean() + F.softplus(disc(fake.detach())).mean()
    od.zero_grad()
    dl.backward()
    od.step()
    gl = F.softplus(-disc(fake)).mean()
    og.zero_grad()
    gl.backward()
    og.step()
    if step % 20 == 0:
        print(f"step {step} d {dl.item():.3f} g {gl.item():.3f} off {(fake.norm(dim=1) - 2).abs().mean().item():.3f}")
