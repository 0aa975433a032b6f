# expect: sick
# symptom: loss leaps from step 120 on, just after the resume, and is NaN within ten steps
# axis: optimizer
# cause: after the resume the optimizer state comes from an older run whose loss was weighted 30 times: its momentum does not belong to these weights
# says: (?i)(optimi[sz]er|adam|sgd).{0,40}(state|buffer|moment)|stale (optimi|moment|state|buffer)|(moments?|momentum)\b.{0,60}(belong|other|older|another|restored|resum|stale|loaded)|exp_avg
# onset_step: 120
# fix: load the optimizer state saved along with the weights
# mended: MENDED=1 python s33_two_stage_lm.py
import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(35)
V, T = 14, 16
OPT_FILE = "joint.opt" if os.environ.get("MENDED") == "1" else "probe.opt"


def corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    first, hop = torch.randint(0, V, (n, 1), generator=g), torch.randint(1, 5, (n, 1), generator=g)
    ids = (first + hop * torch.arange(T + 1)) % V
    noise = torch.rand(n, T + 1, generator=g) < 0.08
    return torch.where(noise, torch.randint(0, V, (n, T + 1), generator=g), ids)


class GPT(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(T, d)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.head = nn.Linear(d, V)
        self.register_buffer("mask", torch.triu(torch.full((T, T), float("-inf")), 1))

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        for b in self.blocks:
            x = b(x, src_mask=self.mask)
        return self.head(x)


def ce(model, ids):
    return nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])


def new():
    model = GPT()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


with tempfile.TemporaryDirectory() as tmp:
    box = Path(tmp)
    model, opt = new()
    for (ids,) in DataLoader(TensorDataset(corpus(8 * 8, 1)), batch_size=8):
        opt.zero_grad()
        with torch.enable_grad():
            (30 * ce(model, ids)).backward()
        for group in opt.param_groups:
            group["lr"] = 0.0
        opt.step()
    for group in opt.param_groups:
        group["lr"] = 0.1
    torch.save(opt.state_dict(), box / "probe.opt")

    model, opt = new()
    loader = DataLoader(TensorDataset(corpus(32 * 260, 2)), batch_size=32)
    for step, (ids,) in enumerate(loader, 1):
        if step == 119:
            torch.save(model.state_dict(), box / "joint.pt")
            torch.save(opt.state_dict(), box / "joint.opt")
            model, opt = new()
            model.load_state_dict(torch.load(box / "joint.pt"))
            opt.load_state_dict(torch.load(box / OPT_FILE))
        loss = ce(model, ids)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0 or 117 < step < 124:
            print(f"step {step} loss {loss.item():.4f}")
