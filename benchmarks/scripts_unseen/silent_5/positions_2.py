# expect: sick
# fault: the learned position table is looked up with arange over shape[0], the batch axis of [batch, time] tokens, so each row gets one code for all of its tokens
# onset_step: 1
# says: (?i)(position)
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class TinyGPT(nn.Module):
    def __init__(self, vocab, block_size, dim=40, heads=4, depth=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.wpe = nn.Embedding(block_size, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, idx, targets=None):
        pos = torch.arange(idx.shape[0], device=idx.device)
        x = self.wte(idx) + self.wpe(pos).unsqueeze(1)
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


def corpus(n, vocab, gen):
    """Columns of fixed-width records: the alphabet in use depends on the column number."""
    width = 12
    col = torch.arange(n) % width
    base = (col * 2) % vocab
    jitter = torch.randint(0, 4, (n,), generator=gen)
    return (base + jitter) % vocab


def main():
    torch.manual_seed(77)
    gen = torch.Generator().manual_seed(77)
    vocab, block_size, batch = 18, 36, 20
    text = corpus(6000, vocab, gen)
    model = TinyGPT(vocab, block_size)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(221):
        starts = 12 * torch.randint(0, (len(text) - block_size - 1) // 12, (batch,), generator=gen)
        x = torch.stack([text[s : s + block_size] for s in starts])
        y = torch.stack([text[s + 1 : s + 1 + block_size] for s in starts])
        _, loss = model(x, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 40 == 0:
            print(f"step {step}: {loss.item():.4f}")


main()
