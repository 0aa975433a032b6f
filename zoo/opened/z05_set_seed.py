# expect: healthy
# symptom: states are saved and loaded, which looks like one that is forgotten
# axis: none
# mended: none
import os
import random
import tempfile

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR


def set_seed(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


def make_objects():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, opt, CosineAnnealingLR(opt, T_max=80)


def draw_batch(w):
    x = np.random.randn(32, 8).astype(np.float32)
    if random.random() < 0.5:
        x *= 1.2
    x = torch.from_numpy(x)
    return x, (x @ w).argmax(1)


def get_rng():
    return {"py": random.getstate(), "np": np.random.get_state(), "torch": torch.get_rng_state()}


def restore_rng(saved):
    random.setstate(saved["py"])
    np.random.set_state(saved["np"])
    torch.set_rng_state(saved["torch"])


def write_ckpt(path, epoch, model, opt, sched):
    torch.save(
        {
            "epoch": epoch,
            "model": model.state_dict(),
            "opt": opt.state_dict(),
            "sched": sched.state_dict(),
            "rng": get_rng(),
        },
        path,
    )


def read_ckpt(path, model, opt, sched):
    ckpt = torch.load(path, weights_only=False)
    model.load_state_dict(ckpt["model"])
    opt.load_state_dict(ckpt["opt"])
    sched.load_state_dict(ckpt["sched"])
    restore_rng(ckpt["rng"])
    return ckpt["epoch"] + 1


def session(path, w, last_epoch):
    set_seed(0)
    model, opt, sched = make_objects()
    start = read_ckpt(path, model, opt, sched) if os.path.exists(path) else 0
    for epoch in range(start, last_epoch):
        total = 0.0
        for _ in range(10):
            x, y = draw_batch(w)
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / 10:.4f} lr {sched.get_last_lr()[0]:.5f}")
        write_ckpt(path, epoch, model, opt, sched)


if __name__ == "__main__":
    w = torch.randn(8, 3, generator=torch.Generator().manual_seed(9))
    with tempfile.TemporaryDirectory() as tmp:
        ckpt_path = os.path.join(tmp, "ckpt.pt")
        session(ckpt_path, w, 5)
        session(ckpt_path, w, 8)
