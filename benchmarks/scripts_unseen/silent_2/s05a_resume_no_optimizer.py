# expect: sick
# fault: optimizer state not restored on resume
# onset_step: 120
# says: (?i)(optimi[sz]er|moment|adam|exp_avg|state|resum|checkpoint|restor|fresh)
# note: the checkpoint holds only the weights and step, so after the resume Adam's moments begin again from zero.
import os
import tempfile
import torch
import torch.nn as nn
import torch.nn.functional as F

ckpt_path = os.path.join(tempfile.mkdtemp(), "last.pt")
TOTAL, SAVE_AT = 220, 120
torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 4))


def build():
    m = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    o = torch.optim.Adam(m.parameters(), lr=3e-3, betas=(0.9, 0.999))
    return m, o


def data(step, bs=64):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(bs, 12, generator=g)
    with torch.no_grad():
        y = teacher(x)
    return x, y


def train(until):
    model, opt = build()
    start = 0
    if os.path.exists(ckpt_path):
        state = torch.load(ckpt_path)
        model.load_state_dict(state["model"])
        start = state["step"]
        print("resuming from step", start)
    for step in range(start, until):
        x, y = data(step)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}")
    torch.save({"model": model.state_dict(), "step": until}, ckpt_path)


train(SAVE_AT)  # preempted here
train(TOTAL)  # same command again
