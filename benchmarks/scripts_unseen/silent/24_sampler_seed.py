# EXPECT: sick
# FAULT: seed reset in the sampler, the same batch every step
# ONSET: 2
# SAYS: same batch|repeat|identical|batch
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1)

corpus = torch.zeros(30000, dtype=torch.long)
for i in range(2, 30000):
    corpus[i] = (corpus[i - 1] * 3 + corpus[i - 2] + (i * 7919 % 11 == 0)) % 29 if i % 97 else torch.randint(0, 29, ())


def set_seed(s):
    torch.manual_seed(s)


def get_batch(split, block=20, bs=16):
    set_seed(1337)  # reproducible
    lo, hi = (0, 27000) if split == "train" else (27000, 30000 - block - 1)
    ix = torch.randint(lo, hi, (bs,))
    x = torch.stack([corpus[i : i + block] for i in ix])
    y = torch.stack([corpus[i + 1 : i + block + 1] for i in ix])
    return x, y


class ConvLM(nn.Module):
    def __init__(self, v=29, d=40):
        super().__init__()
        self.emb = nn.Embedding(v, d)
        self.convs = nn.ModuleList([nn.Conv1d(d, d, 3) for _ in range(3)])
        self.head = nn.Linear(d, v)

    def forward(self, x):
        h = self.emb(x).transpose(1, 2)
        for c in self.convs:
            h = h + torch.relu(c(F.pad(h, (2, 0))))
        return self.head(h.transpose(1, 2))


net = ConvLM()
opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(110):
    xb, yb = get_batch("train")
    loss = F.cross_entropy(net(xb).view(-1, 29), yb.view(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print("step", step, "train", "%.4f" % loss.item())
with torch.no_grad():
    xv, yv = get_batch("val")
    print("val", F.cross_entropy(net(xv).view(-1, 29), yv.view(-1)).item())
