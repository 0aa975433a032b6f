# expect: sick
# symptom: loss goes down a little at the start and then creeps along far above what the network can reach; accuracy stays low
# axis: optimizer
# cause: the parameter grouping helper keeps only names that end in ".weight" or ".bias", so the GRU's weight_ih_l0, weight_hh_l0 and its biases end up in no group and are never trained
# says: (gru|rnn|recurrent|weight_hh|weight_ih|parameter\w*|weights).{0,120}(not in|never|miss\w*|left out|omit\w*|skip\w*|absent|drop\w*|exclud\w*|outside|untrained|frozen|no group|fall through|not (trained|updated|optimi[sz]ed|passed|covered|registered|handed))|(optimi[sz]er|group\w*).{0,80}(miss\w*|omit\w*|never|lack\w*|without|leaves? out|skip\w*|not (hold|contain|include|cover|get|have)\w*).{0,80}(gru|recurrent|rnn|weight_|param\w*)
# onset_step: 0
# fix: let the grouping helper catch every parameter (e.g. decide by ndim with an else branch)
# mended: yes
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
KINDS, MOD = 8, 4


def sample(n, length, gen):
    """Every kind of token adds its own step to a counter modulo MOD; kind 0 resets it."""
    steps = torch.tensor([0, 1, 2, 3, 1, 0, 2, 3])
    tok = torch.randint(KINDS, (n, length), generator=gen)
    count = torch.zeros(n, dtype=torch.long)
    tags = []
    for t in range(length):
        count = torch.where(tok[:, t] == 0, torch.zeros_like(count), (count + steps[tok[:, t]]) % MOD)
        tags.append(count)
    return tok, torch.stack(tags, 1)


class Tagger(nn.Module):
    def __init__(self, dim=32, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(KINDS, dim)
        self.norm = nn.LayerNorm(dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, MOD))

    def forward(self, tok):
        h, _ = self.gru(self.norm(self.embed(tok)))
        return self.mlp(h)


def param_groups(model, weight_decay):
    """No decay for biases, norms and embeddings."""
    decay, plain = [], []
    tail_w, tail_b = ("weight", "bias")
    for name, p in model.named_parameters():
        if "norm" in name or "embed" in name or name.endswith("." + tail_b):
            plain.append(p)
        elif name.endswith("." + tail_w) or (MENDED and p.ndim > 1):
            decay.append(p)
        elif MENDED:
            plain.append(p)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


class Trainer:
    def __init__(self, model, lr=4e-3, steps=450, batch=64):
        self.model, self.steps, self.batch = model, steps, batch
        self.gen = torch.Generator().manual_seed(19)
        self.opt = torch.optim.AdamW(param_groups(model, 0.01), lr=lr)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, max_lr=lr, total_steps=steps, pct_start=0.1)

    def step(self, length):
        tok, tag = sample(self.batch, length, self.gen)
        loss = F.cross_entropy(self.model(tok).flatten(0, 1), tag.flatten())
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, length):
        tok, tag = sample(300, length, torch.Generator().manual_seed(5))
        return (self.model(tok).argmax(-1) == tag).float().mean().item()

    def fit(self, length=20):
        for i in range(self.steps):
            loss = self.step(length)
            if i % 15 == 0:
                print(f"step {i} loss {loss:.4f}")
            if i % 150 == 149:
                print(f"step {i} accuracy {self.accuracy(length):.3f}")


if __name__ == "__main__":
    torch.manual_seed(1)
    Trainer(Tagger()).fit()
