# expect: sick
# fault: resume without the scheduler's state
# onset_step: 100
# says: (?i)(\bresum|schedul|\brestor|(learning )?rate .{0,60}(jump|rose|back|high|again|restart|differ)|checkpoint|\bload(ed|ing|s)?\b)
# note: model and optimizer are restored but not the scheduler, which starts its one-cycle again from the beginning in the second half of the run, rate back at its warm-up and later at its peak.
import os
import tempfile
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(4)
TOTAL = 200
true = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 5))


def data(n=32):
    x = torch.randn(n, 10)
    with torch.no_grad():
        y = true(3 * x).argmax(1)
    return x, y


def make():
    m = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    o = torch.optim.SGD(m.parameters(), lr=0.3, momentum=0.9)
    s = torch.optim.lr_scheduler.OneCycleLR(o, 0.3, total_steps=TOTAL + 1, pct_start=0.1)
    return m, o, s


def run(m, o, s, start, stop):
    for step in range(start, stop):
        x, y = data()
        loss = nn.functional.cross_entropy(m(x), y)
        o.zero_grad()
        loss.backward()
        o.step()
        s.step()
        if step % 20 == 0:
            print(f"{step} loss {loss.item():.4f} lr {s.get_last_lr()[0]:.4f}")


with tempfile.TemporaryDirectory() as d:
    path = os.path.join(d, "last.pt")
    model, opt, sched = make()
    run(model, opt, sched, 0, 100)
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "step": 100}, path)
    model, opt, sched = make()
    ck = torch.load(path)
    model.load_state_dict(ck["model"])
    opt.load_state_dict(ck["opt"])
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.3, total_steps=TOTAL + 1, pct_start=0.1)
    run(model, opt, sched, ck["step"], TOTAL)
x, y = data(2000)
print("final loss", nn.functional.cross_entropy(model(x), y).item())
