# expect: sick
# symptom: after the resume the run is not what it was
# axis: harness
# cause: a state that the checkpoint holds is never loaded at the resume
# says: (never|not|without|forg).{0,60}(load|restor|read|resum)|(resum|restor|checkpoint|load).{0,120}(missing|left|anew|again|reset|stale|state)
# onset_step: 0
# fix: load the state at the resume
# mended: the same with the fix
import os
import tempfile

import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"

TOTAL = 100
WARMUP = 15


def lr_at(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return max(0.02, 1 - (step - WARMUP) / (TOTAL - WARMUP))


def make_data(n, seed, noise=0.5):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2]
    return x, y + noise * torch.randn(n, 1, generator=g)


def build():
    model = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 1))
    opt = torch.optim.Adam(model.parameters(), lr=6e-2)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)
    return model, opt, sched


def save(path, step, model, opt, sched):
    torch.save(
        {
            "step": step,
            "model": model.state_dict(),
            "optimizer": opt.state_dict(),
            "scheduler": sched.state_dict(),
        },
        path,
    )


def train(path, stop_at):
    torch.manual_seed(1)
    model, opt, sched = build()
    step = 0
    if os.path.exists(path):
        ckpt = torch.load(path)
        model.load_state_dict(ckpt["model"])
        opt.load_state_dict(ckpt["optimizer"])
        if MENDED:
            sched.load_state_dict(ckpt["scheduler"])
        step = ckpt["step"]
        print(f"resumed at step {step}")
    while step < stop_at:
        x, y = make_data(40, seed=1000 + step)
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        step += 1
        if step % 10 == 0:
            print(f"step {step:3d} lr {opt.param_groups[0]['lr']:.5f} loss {loss.item():.4f}")
    with torch.no_grad():
        x, y = make_data(400, seed=1, noise=0.0)
        print(f"loss on fresh points {nn.functional.mse_loss(model(x), y).item():.4f}")
    save(path, step, model, opt, sched)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "last.pt")
        train(path, 60)
        train(path, TOTAL)
