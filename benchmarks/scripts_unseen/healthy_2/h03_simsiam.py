# expect: healthy
# fault: none
# note: SimSiam with the stop-gradient on the projection; a negative loss is as designed.
import torch
import torch.nn as nn
import torch.nn.functional as F


class SimSiam(nn.Module):
    def __init__(self, d_in=32, d=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(d_in, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, d), nn.BatchNorm1d(d)
        )
        self.predictor = nn.Sequential(nn.Linear(d, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, d))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        return self.predictor(za), self.predictor(zb), za.detach(), zb.detach()


torch.manual_seed(2)
m = SimSiam()
opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 200)
C = torch.randn(20, 32) * 2
for step in range(200):
    x = C[torch.randint(0, 20, (64,))] + 0.3 * torch.randn(64, 32)
    pa, pb, za, zb = m(x + 0.4 * torch.randn_like(x), x + 0.4 * torch.randn_like(x))
    loss = -(F.cosine_similarity(pa, zb).mean() + F.cosine_similarity(pb, za).mean()) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    sch.step()
    if step % 25 == 0:
        print(step, f"loss {loss.item():.4f} std {F.normalize(za, dim=1).std(0).mean():.4f}")
