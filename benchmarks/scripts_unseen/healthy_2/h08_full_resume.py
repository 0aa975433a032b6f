# expect: healthy
# fault: none
# note: full resume: model, optimizer, scheduler, RNG and data position are all restored.
import io
import torch
from torch import nn


class Run:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=3e-3)
        self.sch = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, 220)
        self.step = 0

    def state_dict(self):
        return dict(
            net=self.net.state_dict(),
            opt=self.opt.state_dict(),
            sch=self.sch.state_dict(),
            step=self.step,
            rng=torch.get_rng_state(),
        )

    def load_state_dict(self, s):
        self.net.load_state_dict(s["net"])
        self.opt.load_state_dict(s["opt"])
        self.sch.load_state_dict(s["sch"])
        self.step = s["step"]
        torch.set_rng_state(s["rng"])

    def go(self, until):
        while self.step < until:
            x = torch.randn(64, 12)
            y = (x[:, :4] + x[:, 4:8] * x[:, 8:]).argmax(1)
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.sch.step()
            self.step += 1
            if self.step % 20 == 0:
                print(self.step, round(loss.item(), 4))


torch.manual_seed(7)
r = Run()
r.go(120)
f = io.BytesIO()
torch.save(r.state_dict(), f)
f.seek(0)
r2 = Run()
r2.load_state_dict(torch.load(f))
r2.go(220)
