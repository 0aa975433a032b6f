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
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(6)
X = torch.randn(512, 10)
Y = X[:, :2].prod(1, keepdim=True) + 0.5 * X[:, 2:3]


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(10, 32)
        self.mid = nn.Linear(32, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        return self.out(torch.relu(self.mid(h)))


def setup():
    model = Regressor()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28, growth_interval=40)
    return model, optimizer, scaler


def train_steps(model, optimizer, scaler, first, last):
    kept = 0
    for it in range(first, last):
        sel = torch.randint(0, 512, (32,))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            pred = model(X[sel])
            loss = nn.functional.mse_loss(pred.float(), Y[sel])
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        kept += scaler.get_scale() >= before
        if it % 8 == 0:
            print(f"it {it:3d} loss {loss.item():.4f} scale {scaler.get_scale():.0f}")
    return kept


def checkpoint(path, it, **parts):
    blob = {name: part.state_dict() for name, part in parts.items()}
    blob["it"] = it
    torch.save(blob, path)


fd, path = tempfile.mkstemp(suffix=".pt")
os.close(fd)
model, optimizer, scaler = setup()
n1 = train_steps(model, optimizer, scaler, 0, 64)
checkpoint(path, 64, model=model, optimizer=optimizer, scaler=scaler)
del model, optimizer, scaler

model, optimizer, scaler = setup()
blob = torch.load(path)
model.load_state_dict(blob["model"])
optimizer.load_state_dict(blob["optimizer"])
if MENDED:
    scaler.load_state_dict(blob["scaler"])
n2 = train_steps(model, optimizer, scaler, blob["it"], 100)
os.remove(path)

with torch.no_grad():
    print(f"final loss {nn.functional.mse_loss(model(X), Y).item():.4f} updates {n1 + n2}")
