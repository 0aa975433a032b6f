# EXPECT: sick
# FAULT: blocks kept in a plain Python list, in no optimizer
# ONSET: 1
# SAYS: not in any optimizer|no optimizer|not registered|optimizer|ModuleList
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1337)

vocab, ctx, dim, n_layer, n_head = 24, 32, 48, 3, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, n_head, C // n_head).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(ctx, dim)
        self.blocks = [Block() for _ in range(n_layer)]
        self.ln_f = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        for b in self.blocks:
            x = b(x)
        return self.head(self.ln_f(x))


def get_batch(bs=16):
    # next token depends on the two before it
    s = torch.randint(0, vocab, (bs, ctx + 1))
    for t in range(2, ctx + 1):
        s[:, t] = (s[:, t - 1] + 2 * s[:, t - 2] + 1) % vocab
    return s[:, :-1], s[:, 1:]


model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
for i in range(120):
    x, y = get_batch()
    loss = F.cross_entropy(model(x).view(-1, vocab), y.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 20 == 0 or i == 119:
        print(f"iter {i}: loss {loss.item():.4f}")
