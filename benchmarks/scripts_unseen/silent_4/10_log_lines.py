# expect: sick
# cause: The dataset already returns targets shifted by one and the model shifts logits and labels again in its loss, so it learns the token after the next.
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

random.seed(77)
torch.manual_seed(77)

LEVELS = ["INFO", "WARN", "ERROR", "DEBUG"]
PARTS = ["db", "cache", "auth", "queue", "mailer"]
VERBS = ["started", "stopped", "timed out", "restarted", "connected"]


def line():
    return f"[{random.choice(LEVELS)}] {random.choice(PARTS)}-{random.randrange(10)} {random.choice(VERBS)} in {random.randrange(100)} ms\n"


text = "".join(line() for _ in range(2500))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
ids = torch.tensor([stoi[c] for c in text])
split = int(0.9 * len(ids))


class Windows(Dataset):
    def __init__(self, data, block=64):
        self.data, self.block = data, block

    def __len__(self):
        return (len(self.data) - 1) // self.block

    def __getitem__(self, i):
        piece = self.data[i * self.block : (i + 1) * self.block + 1]
        return piece[:-1], piece[1:]


class CharLM(nn.Module):
    def __init__(self, vocab, d=64, heads=4, layers=2, block=64):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Embedding(block, d)
        layer = nn.TransformerEncoderLayer(
            d, heads, 4 * d, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.register_buffer("mask", torch.triu(torch.full((block, block), float("-inf")), 1))

    def forward(self, x, labels=None):
        t = x.shape[1]
        h = self.tok(x) + self.pos(torch.arange(t))
        h = self.blocks(h, mask=self.mask[:t, :t], is_causal=True)
        logits = self.head(self.norm(h))
        loss = None
        if labels is not None:
            shift_logits = logits[:, :-1].contiguous()
            shift_labels = labels[:, 1:].contiguous()
            loss = F.cross_entropy(shift_logits.view(-1, logits.size(-1)), shift_labels.view(-1))
        return logits, loss


train_dl = DataLoader(Windows(ids[:split]), batch_size=24, shuffle=True, drop_last=True)
model = CharLM(len(chars))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95))
step = 0
for epoch in range(6):
    for x, y in train_dl:
        _, loss = model(x, labels=y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
        if step % 40 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

model.eval()
with torch.no_grad():
    held = ids[split : split + 64 * 40].view(40, 64)
    logits, _ = model(held)
    nxt = (logits[:, :-1].argmax(-1) == held[:, 1:]).float().mean().item()
    out = held[:1, :10]
    for _ in range(50):
        out = torch.cat([out, model(out)[0][:, -1:].argmax(-1)], 1)
print(f"next-character accuracy on held-out lines {nxt:.3f}")
print(repr("".join(chars[i] for i in out[0])))
