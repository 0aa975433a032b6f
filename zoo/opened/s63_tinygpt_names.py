# expect: sick
# symptom: the language model's loss stops at a clearly higher level than a bigram table reaches, and samples look scrambled
# axis: data
# cause: the targets are shifted twice (once in the batch function and once in the loss), so the model is trained to predict the token after the next
# says: shift|one (place|position|token|step) (off|too)|off.?by.?one|misalign|(label|target)s?.{0,40}(late|ahead|offset|two|aligned|next)|two (tokens|steps|positions)
# onset_step: 1
# fix: shift the targets only once
# mended: does not shift again in the loss
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1337)
block_size, batch_size, n_embd, n_head, n_layer = 48, 16, 48, 4, 2

# a made-up language: a random walk on a sparse table of letters
g = torch.Generator().manual_seed(9)
alphabet = 26
table = torch.softmax(torch.randn(alphabet, alphabet, generator=g) * 3.0, dim=1)
stream = [0]
noise = torch.rand(30000, generator=g)
cum = table.cumsum(1)
for i in range(29999):
    stream.append(min(int(torch.searchsorted(cum[stream[-1]], noise[i])), alphabet - 1))
data = torch.tensor(stream)
train_data, val_data = data[:27000], data[27000:]


def get_batch(split):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - block_size - 1, (batch_size,))
    x = torch.stack([d[i : i + block_size] for i in ix])
    y = torch.stack([d[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, n_head, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(alphabet, n_embd), nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln, self.head = nn.LayerNorm(n_embd), nn.Linear(n_embd, alphabet)

    def forward(self, idx, labels):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        logits = self.head(self.ln(self.blocks(x)))
        if os.environ.get("MENDED") != "1":
            logits, labels = logits[:, :-1], labels[:, 1:]
        return F.cross_entropy(logits.reshape(-1, alphabet), labels.reshape(-1))


model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
for it in range(400):
    loss = model(*get_batch("train"))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if it % 50 == 0 or it == 399:
        with torch.no_grad():
            val = sum(model(*get_batch("val")).item() for _ in range(4)) / 4
        print(f"iter {it}: train {loss.item():.4f} val {val:.4f}")
