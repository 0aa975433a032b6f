# expect: healthy
# symptom: the learning rate jumps up repeatedly and the loss stops falling or goes up a little each time (resembles an unstable schedule)
# axis: schedule
# cause: healthy: cosine warm restarts send the learning rate back to its peak at steps 100 and 300, the loss is set back there for a while and ends lower; the router's balance loss keeps all experts in use
# says: none
# onset_step: none
# fix: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, CTX, DIM, EXPERTS = 24, 24, 48, 4


def corpus(n, seed):
    """Second-order chain: the next letter depends on the two before it."""
    table = np.random.default_rng(0).dirichlet(np.full(VOCAB, 0.05), size=(VOCAB, 6))
    rng = np.random.default_rng(seed)
    out = [0, 1]
    u = rng.random(n)
    cdf = table.cumsum(-1)
    for i in range(n):
        out.append(min(VOCAB - 1, int(np.searchsorted(cdf[out[-1], out[-2] % 6], u[i]))))
    return torch.tensor(out)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(DIM, 96), nn.GELU(), nn.Linear(96, DIM)) for _ in range(EXPERTS)]
        )

    def forward(self, x):
        flat = x.reshape(-1, DIM)
        probs = F.softmax(self.router(flat), -1)
        gate, pick = probs.topk(2, -1)
        gate = gate / gate.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            rows, slot = (pick == e).nonzero(as_tuple=True)
            out = out.index_add(0, rows, gate[rows, slot, None] * expert(flat[rows]))
        load = F.one_hot(pick, EXPERTS).float().mean((0, 1))
        self.load = load.detach()
        return out.view_as(x), EXPERTS * (load * probs.mean(0)).sum()


class MoELM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CTX, DIM)
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(DIM) for _ in range(3))
        self.attn = nn.MultiheadAttention(DIM, 4, batch_first=True)
        self.moe = MoE()
        self.head = nn.Linear(DIM, VOCAB)
        self.register_buffer("mask", torch.triu(torch.ones(CTX, CTX, dtype=torch.bool), 1))

    def forward(self, ids):
        x = self.emb(ids) + self.pos.weight
        h = self.ln1(x)
        x = x + self.attn(h, h, h, attn_mask=self.mask, need_weights=False)[0]
        m, aux = self.moe(self.ln2(x))
        return self.head(self.ln3(x + m)), aux


def batch(data, n):
    start = torch.randint(0, len(data) - CTX - 1, (n,))
    win = data[start[:, None] + torch.arange(CTX + 1)]
    return win[:, :-1], win[:, 1:]


def main():
    torch.manual_seed(17)
    train, val = corpus(60000, 1), corpus(6000, 2)
    model = MoELM()
    opt = torch.optim.AdamW(model.parameters(), lr=1.2e-2, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=100, T_mult=2, eta_min=1e-5)
    for step in range(1, 701):
        x, y = batch(train, 32)
        logits, aux = model(x)
        ce = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss = ce + 0.01 * aux
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 50 == 0 or step in (110, 310):
            load = " ".join(f"{v:.2f}" for v in model.moe.load.tolist())
            print(f"step {step} ce {ce.item():.4f} aux {aux.item():.3f} lr {sched.get_last_lr()[0]:.1e} load {load}")
    model.eval()
    with torch.no_grad():
        x, y = batch(val, 200)
        print(f"val ce {F.cross_entropy(model(x)[0].flatten(0, 1), y.flatten()).item():.4f}")


if __name__ == "__main__":
    main()
