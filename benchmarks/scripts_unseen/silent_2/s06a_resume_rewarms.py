# expect: sick
# fault: scheduler state lost on resume, warm-up starts again
# onset_step: 150
# says: (?i)(schedul|learning.?rate|\blr\b|warm.?up|resum|restart)
# note: weights and optimizer are restored but not the LambdaLR, so after the resume the rate warms up again instead of following the decay.
import os, tempfile, math
import torch, torch.nn as nn, torch.nn.functional as F

work = tempfile.mkdtemp()


def lr_lambda(step, warm=30, total=240):
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


class LSTMTagger(nn.Module):
    def __init__(self, v=50, d=32, t=6):
        super().__init__()
        self.e = nn.Embedding(v, d)
        self.l = nn.LSTM(d, d, batch_first=True, bidirectional=True)
        self.o = nn.Linear(2 * d, t)

    def forward(self, x):
        return self.o(self.l(self.e(x))[0])


def get_batch():
    x = torch.randint(0, 50, (16, 15))
    y = (x + x.roll(1, 1)) % 6
    return x, y


def session(stop, resume=None):
    model = LSTMTagger()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    step = 0
    if resume:
        c = torch.load(resume)
        model.load_state_dict(c["model"])
        opt.load_state_dict(c["opt"])
        for g in opt.param_groups:
            g.pop("initial_lr", None)
            g["lr"] = 5e-3
        step = c["step"]
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_lambda)
    while step < stop:
        x, y = get_batch()
        loss = F.cross_entropy(model(x).transpose(1, 2), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        step += 1
        if step % 20 == 0:
            print(f"{step} loss={loss.item():.4f} lr={sched.get_last_lr()[0]:.2e}")
    p = os.path.join(work, f"ck{step}.pt")
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, p)
    return p


torch.manual_seed(0)
p = session(150)
session(240, resume=p)
