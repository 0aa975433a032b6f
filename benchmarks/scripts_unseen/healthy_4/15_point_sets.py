# expect: healthy
# cause: none, batch size 1 with plain SGD, so the loss of single steps jumps over orders of size while its running mean falls
import torch
import torch.nn as nn

torch.manual_seed(15)


def cluster():
    """stars of one cluster, any number of them; the target is the scatter of the cluster in dex"""
    n = int(torch.randint(8, 60, ()))
    log_sigma = 1.2 * torch.rand(()) - 0.6
    stretch = torch.tensor([1.0, 0.5 + float(torch.rand(())), 1.0])
    return 10**log_sigma * stretch * torch.randn(n, 3), log_sigma


class StarSet(nn.Module):
    def __init__(self):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.rho = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, stars):
        return self.rho(self.phi(stars).mean(0)).squeeze()


held = [cluster() for _ in range(200)]
model = StarSet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
mean = None
for n in range(1, 501):
    stars, y = cluster()
    loss = (model(stars) - y) ** 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
    if n % 50 == 0:
        with torch.no_grad():
            rms = (sum((model(s) - t) ** 2 for s, t in held) / len(held)).sqrt().item()
        print(f"cluster {n} loss {loss.item():.6f} running {mean:.4f} held-out rms {rms:.3f} dex (spread 0.35)")
