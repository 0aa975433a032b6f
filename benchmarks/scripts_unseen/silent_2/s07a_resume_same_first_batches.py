# expect: sick
# fault: resume replays the first batches of the epoch
# onset_step: 60
# says: (?i)(replay|repeat|seen (again|before|twice)|same (batch|data|sample|order|seed)|duplicat|sampler|shuffl|\brng\b|resum|data order)
# note: seed 1337 is set at the top of each launch and the loader starts from its beginning, so the resumed run sees the same first batches again and never the rest.
import io
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

gen = torch.Generator().manual_seed(99)
X = torch.randn(6400, 3, 8, 8, generator=gen)
Y = (X.mean((2, 3)) @ torch.randn(3, 4, generator=gen)).argmax(1)
ds = TensorDataset(X, Y)


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 4)
    )


def run(max_steps, ck=None):
    torch.manual_seed(1337)
    model = make_model()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    if ck is not None:
        ck.seek(0)
        s = torch.load(ck)
        model.load_state_dict(s["model"])
        opt.load_state_dict(s["opt"])
        step = s["step"]
    torch.manual_seed(1337)
    loader = DataLoader(ds, batch_size=64, shuffle=True)
    for x, y in loader:
        if step >= max_steps:
            break
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 10 == 0:
            print("step", step, "loss", round(loss.item(), 4))
    out = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, out)
    return out


ck = run(60)
run(120, ck)
