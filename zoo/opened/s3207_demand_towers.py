# expect: sick
# symptom: after the restart from the checkpoint the loss jumps far up (or to NaN) and does not recover
# axis: harness
# cause: optimizer groups (rates, momentum) are restored by position, but resume builds the towers sorted
# says: (optim|momentum|state|rate|json|resum|group).*(order|position|permut|swap|wrong tower|sort|mismatch)
# onset_step: 260
# fix: write the config without sort_keys, so that towers and hence parameters keep their order on resume
# mended: the script applies that change if the environment has MENDED=1
import io
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(7)
MENDED = os.environ.get("MENDED") == "1"
STEPS, PREEMPT_AT, BATCH = 420, 260, 128

CONFIG = {
    "towers": {"weather": 8, "price": 8, "calendar": 8, "basket": 8},
    "tower_lr": {"weather": 8.0, "price": 2e-4, "calendar": 8.0, "basket": 5e-4},
    "hidden": 32,
    "lr": 0.02,
}
# raw magnitudes of the feature families as they arrive from the warehouse
UNITS = {"weather": 0.05, "price": 10.0, "calendar": 0.05, "basket": 6.0}


def make_table(n, seed):
    g = torch.Generator().manual_seed(seed)
    wg = torch.Generator().manual_seed(1234)
    feats, y = {}, torch.zeros(n)
    for name in ("weather", "price", "calendar", "basket"):
        x = torch.randn(n, 8, generator=g)
        w1, w2 = torch.randn(8, generator=wg), torch.randn(8, generator=wg)
        y = y + torch.tanh(x @ w1 * 0.5) + 0.3 * torch.sin(x @ w2 * 0.5)
        feats[name] = x * UNITS[name]
    y = y + 0.05 * torch.randn(n, generator=g)
    return feats, y


class DemandNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        h = cfg["hidden"]
        self.towers = nn.ModuleDict({name: nn.Linear(d, h) for name, d in cfg["towers"].items()})
        self.post = nn.Sequential(nn.SiLU(), nn.Linear(h, h), nn.SiLU())
        self.head = nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 1))

    def forward(self, feats):
        z = sum(self.post(tower(feats[name])) for name, tower in self.towers.items())
        return self.head(z).squeeze(-1)


def build(cfg):
    model = DemandNet(cfg)
    groups = [{"params": list(tower.parameters()), "lr": cfg["tower_lr"][name]} for name, tower in model.towers.items()]
    groups.append({"params": [*model.post.parameters(), *model.head.parameters()]})
    opt = torch.optim.SGD(groups, lr=cfg["lr"], momentum=0.9)
    return model, opt


def save(model, opt, cfg, step):
    buf = io.BytesIO()
    torch.save(
        {
            "model": model.state_dict(),
            "optim": opt.state_dict(),
            "config": json.dumps(cfg, sort_keys=not MENDED),
            "step": step,
        },
        buf,
    )
    return buf.getvalue()


def restore(blob):
    ck = torch.load(io.BytesIO(blob))
    cfg = json.loads(ck["config"])
    model, opt = build(cfg)
    model.load_state_dict(ck["model"])
    opt.load_state_dict(ck["optim"])
    return model, opt, cfg, ck["step"]


@torch.no_grad()
def score(model, feats, y):
    model.eval()
    mse = F.mse_loss(model(feats), y).item()
    model.train()
    return 1.0 - mse / y.var().item()


def main():
    train_x, train_y = make_table(6000, 1)
    valid_x, valid_y = make_table(1500, 2)
    cfg = CONFIG
    model, opt = build(cfg)
    g = torch.Generator().manual_seed(3)
    step, preempted = 0, False
    while step < STEPS:
        if step == PREEMPT_AT and not preempted:
            blob = save(model, opt, cfg, step)
            model, opt, cfg, step = restore(blob)
            preempted = True
            print(f"resumed from checkpoint at step {step}")
        idx = torch.randint(0, len(train_y), (BATCH,), generator=g)
        loss = F.mse_loss(model({k: v[idx] for k, v in train_x.items()}), train_y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step - PREEMPT_AT in (1, 2, 5, 10):
            print(f"step {step:4d} loss {loss.item():.4f}")
        step += 1
    print(f"final loss {loss.item():.4f} valid R2 {score(model, valid_x, valid_y):.4f}")


if __name__ == "__main__":
    main()
