# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: tokens stay sorted by expert, so each row gets the result of another row
# says: permut|un-?sort|argsort|(original|wrong|sorted|grouped|another) order|not (put|sorted|scattered|written) back|(wrong|other|another|different) (row|sample|token)|(row|token|output|result)s?.{0,40}(mixed|misalign|shuffl|scrambl)
# onset_step: 0
# fix: put the results back into the order of the rows
# mended: the inverse order
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


class Expert(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.up = nn.Linear(d, hidden)
        self.down = nn.Linear(hidden, d)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, d=32, hidden=64, n_experts=4):
        super().__init__()
        self.n_experts = n_experts
        self.router = nn.Linear(d, n_experts)
        self.experts = nn.ModuleList([Expert(d, hidden) for _ in range(n_experts)])

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        probs = self.router(x).softmax(-1)
        weight, choice = probs.max(-1)
        order = torch.argsort(choice)
        counts = torch.bincount(choice, minlength=self.n_experts).tolist()
        chunks = torch.split(x[order], counts)
        outs = [expert(c) for expert, c in zip(self.experts, chunks)]
        y = torch.cat(outs, dim=0)
        if MENDED:
            y = y[torch.argsort(order)]
        y = y * weight.unsqueeze(-1)
        frac = torch.tensor(counts, dtype=x.dtype) / len(x)
        balance = self.n_experts * (frac * probs.mean(0)).sum()
        return y.view(shape), balance


class Block(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.ln1 = nn.LayerNorm(d)
        self.ln2 = nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
        self.moe = MoE(d)

    def forward(self, x, mask):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        y, aux = self.moe(self.ln2(x))
        return x + y, aux


class LM(nn.Module):
    def __init__(self, vocab=24, d=32, ctx=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Embedding(ctx, d)
        self.block = Block(d)
        self.head = nn.Linear(d, vocab)

    def forward(self, ids):
        t = ids.size(1)
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        x = self.tok(ids) + self.pos(torch.arange(t))
        x, aux = self.block(x, mask)
        return self.head(x), aux


def get_batch(b=32, t=17, vocab=24):
    seq = torch.randint(0, vocab, (b, t))
    for i in range(2, t):
        seq[:, i] = (seq[:, i - 1] * 3 + seq[:, i - 2] + 1) % vocab
    return seq[:, :-1], seq[:, 1:]


def main():
    torch.manual_seed(0)
    model = LM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(150):
        x, y = get_batch()
        logits, aux = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten()) + 0.01 * aux
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 25 == 0:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
