# EXPECT: sick
# FAULT: resumed without optimizer state and without scheduler state
# ONSET: 71
# SAYS: optimizer state|resume|state|schedule|learning rate
import io
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(27)
TOTAL = 100
A = torch.randn(16, 16) / 4


def data(bs=64):
    x = torch.randn(bs, 16)
    return x, torch.tanh(x @ A) * 2


def build():
    model = nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 16))
    opt = torch.optim.Adam(model.parameters(), lr=3e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=TOTAL)
    return model, opt, sched


def save(model, opt, sched, step):
    buf = io.BytesIO()
    torch.save({"model": model.state_dict(), "step": step}, buf)
    return buf


def resume(buf):
    buf.seek(0)
    ck = torch.load(buf)
    model, opt, sched = build()
    model.load_state_dict(ck["model"])
    return model, opt, sched, ck["step"]


def fit(model, opt, sched, start, stop):
    for step in range(start, stop):
        x, y = data()
        loss = ((model(x) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 5 == 0:
            print(f"step {step}: {loss.item():.5f}")


model, opt, sched = build()
fit(model, opt, sched, 0, 70)
ckpt = save(model, opt, sched, 70)

# --- job got preempted, second allocation picks up ---
model, opt, sched, start = resume(ckpt)
print("resumed at", start)
fit(model, opt, sched, start, TOTAL)
