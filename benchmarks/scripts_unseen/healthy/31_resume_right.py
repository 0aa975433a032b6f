# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import io
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(27)
A = torch.randn(16, 16) / 4


def build():
    model = nn.Sequential(nn.Linear(16, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 16))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.98)
    return model, opt, sched


def fit(model, opt, sched, start, stop):
    for step in range(start, stop):
        x = torch.randn(64, 16)
        loss = ((model(x) - torch.tanh(x @ A) * 2) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.5f} lr {sched.get_last_lr()[0]:.5f}")


parts = build()
fit(*parts, 0, 40)
f = io.BytesIO()
torch.save(
    {
        "model": parts[0].state_dict(),
        "opt": parts[1].state_dict(),
        "sched": parts[2].state_dict(),
        "rng": torch.get_rng_state(),
    },
    f,
)
f.seek(0)
ck = torch.load(f)
model, opt, sched = build()
model.load_state_dict(ck["model"])
opt.load_state_dict(ck["opt"])
sched.load_state_dict(ck["sched"])
torch.set_rng_state(ck["rng"])
print("resumed")
fit(model, opt, sched, 40, 110)
