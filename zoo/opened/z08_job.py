# expect: healthy
# symptom: states are saved and loaded, which looks like one that is forgotten
# axis: none
# mended: none
import os
import tempfile
import torch
from torch import nn

torch.manual_seed(2)
W = torch.randn(12, 4)


def split(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 12, generator=g)
    y = (x @ W + torch.randn(n, 4, generator=g)).argmax(1)
    return x, y


class Job:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, 2e-2, total_steps=120)
        self.gen = torch.Generator().manual_seed(0)
        self.epoch, self.best = 0, float("inf")

    def snapshot(self):
        return dict(
            net=self.net.state_dict(),
            opt=self.opt.state_dict(),
            sched=self.sched.state_dict(),
            gen=self.gen.get_state(),
            epoch=self.epoch,
            best=self.best,
        )

    def restore(self, net, opt, sched, gen, epoch, best):
        self.net.load_state_dict(net)
        self.opt.load_state_dict(opt)
        self.sched.load_state_dict(sched)
        self.gen.set_state(gen)
        self.epoch, self.best = epoch, best

    def val_loss(self, x, y):
        with torch.no_grad():
            return nn.functional.cross_entropy(self.net(x), y).item()


train_x, train_y = split(300, 1)
val_x, val_y = split(200, 2)
tmp = tempfile.mkdtemp()
last, best = os.path.join(tmp, "last.pt"), os.path.join(tmp, "best.pt")


def work(job, until):
    while job.epoch < until:
        total = 0.0
        for idx in torch.randperm(300, generator=job.gen).split(30):
            loss = nn.functional.cross_entropy(job.net(train_x[idx]), train_y[idx])
            job.opt.zero_grad()
            loss.backward()
            job.opt.step()
            job.sched.step()
            total += loss.item() / 10
        job.epoch += 1
        v = job.val_loss(val_x, val_y)
        print(f"epoch {job.epoch} train loss {total:.4f} val loss {v:.4f}")
        if v < job.best:
            job.best = v
            torch.save(job.snapshot(), best)
        torch.save(job.snapshot(), last)


work(Job(), 7)
second = Job()
second.restore(**torch.load(last))
work(second, 12)

final = Job()
final.net.load_state_dict(torch.load(best)["net"])
print(f"best snapshot val loss {final.val_loss(val_x, val_y):.4f}")
for f in (last, best):
    os.remove(f)
os.rmdir(tmp)
