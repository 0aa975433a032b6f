# An encoder with normalization after the residual (post-norm), six layers, Adam. The config says "warmup: 3" and means
# epochs; the script takes it for steps.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
fixed = torch.Generator().manual_seed(307)
STEPS_PER_EPOCH = 60
warmup = 3 * STEPS_PER_EPOCH if args.twin else 3


def sequences(n, g=None):
    """One of 8 symbols comes more often than the others."""
    s = torch.randint(0, 8, (n, 12), generator=g)
    favourite = torch.randint(0, 8, (n,), generator=g)
    use = torch.rand(s.shape, generator=g) < 0.35
    return torch.where(use, favourite[:, None], s), favourite


class Encoder(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb, self.pos = nn.Embedding(8, d), nn.Parameter(torch.randn(12, d) * 0.1)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True, norm_first=False)
        self.body = nn.TransformerEncoder(layer, 6)
        self.head = nn.Linear(d, 8)

    def forward(self, s):
        return self.head(self.body(self.emb(s) + self.pos).mean(1))


test_s, test_y = sequences(1000, fixed)
torch.manual_seed(args.seed)
model = Encoder()
opt = torch.optim.Adam(model.parameters(), lr=1.3e-2, betas=(0.9, 0.98))
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min((k + 1) / warmup, (180 / max(k, 180)) ** 0.5))
for step in range(320):
    s, y = sequences(24)
    loss = nn.functional.cross_entropy(model(s), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % STEPS_PER_EPOCH == 0:
        print(f"epoch {step // STEPS_PER_EPOCH} loss {loss.item():.3f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test_s), test_y).item())
