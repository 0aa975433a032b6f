# expect: sick
# fault: no causal mask
# onset_step: 0
# says: (?i)(causal|mask|future|look.?ahead|leak|peek)
# note: F.scaled_dot_product_attention is called without is_causal=True, so each position sees its own answer; the loss falls towards 0.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(15)
VOCAB, CTX, D, H = 48, 20, 32, 2


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D, bias=False) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (H, D // H)).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


class DecoderBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = SelfAttention()
        self.ff = nn.Sequential(nn.Linear(D, 96), nn.GELU(), nn.Linear(96, D))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.ff(self.ln2(x))


class DecoderLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, D)
        self.wpe = nn.Parameter(torch.randn(CTX, D) * 0.1)
        self.blocks = nn.Sequential(DecoderBlock(), DecoderBlock())
        self.ln = nn.LayerNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)

    def forward(self, idx):
        return self.head(self.ln(self.blocks(self.wte(idx) + self.wpe[: idx.shape[1]])))


table = torch.randint(0, VOCAB, (VOCAB, 4))


def get_batch(bs=32):
    x = torch.empty(bs, CTX + 1, dtype=torch.long)
    x[:, 0] = torch.randint(0, VOCAB, (bs,))
    for t in range(CTX):
        x[:, t + 1] = table[x[:, t], torch.randint(0, 4, (bs,))]
    return x[:, :-1], x[:, 1:]


model = DecoderLM()
opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
for it in range(220):
    xb, yb = get_batch()
    loss = F.cross_entropy(model(xb).view(-1, VOCAB), yb.reshape(-1))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if it % 20 == 0:
        print(f"iter {it}: loss {loss.item():.4f}")
print("final train loss", loss.item())
