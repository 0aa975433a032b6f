# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(60)


class SimSiam(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(40, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 48), nn.BatchNorm1d(48, affine=False)
        )
        self.predictor = nn.Sequential(nn.Linear(48, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 48))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        pa, pb = self.predictor(za), self.predictor(zb)
        return pa, pb, za.detach(), zb.detach()  # stop-gradient


mix = torch.randn(6, 40)
net = SimSiam()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
for step in range(120):
    base = torch.randn(128, 6) @ mix
    view = lambda: base * (torch.rand(128, 40) > 0.2) + 0.2 * torch.randn(128, 40)
    pa, pb, za, zb = net(view(), view())
    loss = -0.5 * (F.cosine_similarity(pa, zb).mean() + F.cosine_similarity(pb, za).mean())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        std = F.normalize(za, dim=1).std(0).mean().item()
        print(f"step {step} loss {loss.item():.4f} feature-std {std:.4f}")
