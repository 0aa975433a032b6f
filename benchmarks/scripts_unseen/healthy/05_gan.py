# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(123)

G = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9))
bce = nn.BCEWithLogitsLoss()


def real(n):
    return torch.randn(n, 2) @ torch.tensor([[1.0, 0.6], [0.0, 0.5]]) + torch.tensor([2.0, -1.0])


one, zero = torch.ones(64, 1), torch.zeros(64, 1)
for it in range(1, 151):
    fake = G(torch.randn(64, 4))
    d_loss = bce(D(real(64)), one) + bce(D(fake.detach()), zero)
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()

    g_loss = bce(D(fake), one)
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    if it % 25 == 0:
        print(f"it {it} D {d_loss.item():.3f} G {g_loss.item():.3f} mean {fake.mean(0).tolist()}")
