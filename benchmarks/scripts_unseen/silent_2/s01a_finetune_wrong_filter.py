# expect: sick
# fault: only biases and norms trainable
# onset_step: 0
# says: (?i)(frozen|freez|requires_grad|not train|never train|untrained|no gradient|only .*(bias|norm))
# note: the filter for "no weight decay" names was pasted into the freezing loop with the sign wrong, so every matrix is frozen while the author means full training.
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=160)
ap.add_argument("--lr", type=float, default=1e-3)
args = ap.parse_args()
torch.manual_seed(1)


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.norm1 = nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.norm2 = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 4 * d)
        self.fc2 = nn.Linear(4 * d, d)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Classifier(nn.Module):
    def __init__(self, vocab=200, d=48, n=2, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.randn(1, 24, d) * 0.02)
        self.blocks = nn.ModuleList([Block(d, 4) for _ in range(n)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, classes)

    def forward(self, ids):
        x = self.embed(ids) + self.pos
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x).mean(1))


def batch(bs=32):
    ids = torch.randint(0, 200, (bs, 24))
    y = (ids // 40).float().mode(1).values.long()
    return ids, y


model = Classifier()
# keep everything trainable except the things that should not be decayed
for name, p in model.named_parameters():
    p.requires_grad = any(k in name for k in ("bias", "norm"))

opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.lr, weight_decay=0.01)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)

for step in range(args.steps):
    ids, y = batch()
    loss = F.cross_entropy(model(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
