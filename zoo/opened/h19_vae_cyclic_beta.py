# expect: healthy
# symptom: resembles posterior collapse: the loss steps up at steps 60 and 120
# note: the KL weight rises in stages to 1; the objective changes, the reconstruction stays far better than the mean picture
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(43)
g = torch.Generator().manual_seed(27)
x = torch.tanh(torch.randn(64 * 260, 3, generator=g) @ torch.randn(3, 36, generator=g)) + 0.05 * torch.randn(
    64 * 260, 36, generator=g
)
enc = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 6))
dec = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 36))
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=4e-3)
for step, (xb,) in enumerate(DataLoader(TensorDataset(x), batch_size=64, shuffle=True), 1):
    beta = 0.05 if step < 60 else 0.3 if step < 120 else 1.0
    mu, lv = enc(xb).chunk(2, 1)
    rec = (dec(mu + torch.randn_like(mu) * (lv / 2).exp()) - xb).pow(2).sum(1).mean()
    kl = -0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum(1).mean()
    loss = rec + beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.3f} rec {rec.item():.3f} kl {kl.item():.3f}")
