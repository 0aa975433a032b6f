# expect: healthy
# symptom: resembles the fault that the recurrence multiplies its state by a factor above 1 in every step, so the state grows exponentially
# axis: none
# mended: none
import torch
from torch import nn

VOCAB, LENGTH, BATCH = 14, 20, 40
torch.manual_seed(71)


class RunningWeights(nn.Module):
    """Attention-free mixing: exp(key) weighted running mean over the past."""

    def __init__(self, dim):
        super().__init__()
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.recv = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)
        self.lag = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        k, v = self.key(x), self.value(x)
        r = torch.sigmoid(self.recv(x))
        num = torch.zeros_like(v[:, 0])
        den = torch.zeros_like(num)
        top = torch.full_like(num, -1e9)
        step_decay = -nn.functional.softplus(self.lag)
        out = []
        for t in range(x.shape[1]):
            new_top = torch.maximum(top + step_decay, k[:, t])
            old_w = torch.exp(top + step_decay - new_top)
            new_w = torch.exp(k[:, t] - new_top)
            num = old_w * num + new_w * v[:, t]
            den = old_w * den + new_w
            top = new_top
            out.append(num / den)
        return self.proj(r * torch.stack(out, dim=1))


class Model(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = RunningWeights(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, dim))
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        x = self.emb(ids)
        x = x + self.mix(self.ln1(x))
        x = x + self.ffn(self.ln2(x))
        return self.head(x)


def batch():
    # each token is the previous one plus a stride that is fixed per row
    first = torch.randint(0, VOCAB, (BATCH, 1))
    stride = torch.randint(1, 4, (BATCH, 1))
    return (first + stride * torch.arange(LENGTH + 1)) % VOCAB


model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
for step in range(1, 46):
    ids = batch()
    logits = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 9 == 0:
        print(f"step {step} loss {loss.item():.4f}")
