# expect: sick
# fault: hand-written warm-up far too slow for the run
# onset_step: 0
# says: (?i)(warm.?up|(learning )?rate .{0,60}(tiny|small|\blow\b|slow|barely|never|far below)|schedul|\blr\b.{0,40}(\blow\b|tiny|small|never)|(hardly|barely|little|no) (progress|mov)|too slow)
# note: WARMUP_STEPS = 10_000 was copied from a large run; in the 180 steps here the rate comes to 1.8 % of its peak.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(5)

PEAK_LR = 1e-3
WARMUP_STEPS = 10_000
STEPS = 180


class TinyViT(nn.Module):
    def __init__(self, dim=32, patches=16, classes=8):
        super().__init__()
        self.proj = nn.Conv2d(1, dim, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, patches + 1, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        z = self.proj(x).flatten(2).transpose(1, 2)
        z = torch.cat([self.cls.expand(len(x), -1, -1), z], 1) + self.pos
        return self.head(self.enc(z)[:, 0])


protos = torch.randn(8, 1, 16, 16)


def get_batch(n=32):
    y = torch.randint(0, 8, (n,))
    return protos[y] + 0.8 * torch.randn(n, 1, 16, 16), y


net = TinyViT()
opt = torch.optim.AdamW(net.parameters(), lr=PEAK_LR, weight_decay=0.05)
for it in range(STEPS):
    lr = PEAK_LR * min(1.0, (it + 1) / WARMUP_STEPS)
    for g in opt.param_groups:
        g["lr"] = lr
    x, y = get_batch()
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 30 == 0:
        print(it, round(loss.item(), 4))
x, y = get_batch(256)
print("final acc", (net(x).argmax(1) == y).float().mean().item())
