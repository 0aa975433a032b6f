# expect: healthy
# symptom: resembles frozen or not-trained parameters: over 90 percent of the weights have requires_grad=False, the up-projections start at zero, so half of the adapter gets zero gradient in the first step
# axis: model
# cause: none
# says: none
# onset_step: 0
# fix: none
# mended: not needed; test accuracy of the student on the new task goes from 0.55 to 0.70 (teacher 0.71)
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(51)

DIN, C, BATCH, RANK, TEMP = 24, 10, 128, 4, 2.0
PRE, ADAPT = 300, 350


def make_task(seed, base=None, shift=0.0):
    g = torch.Generator().manual_seed(seed)
    w1 = torch.randn(DIN, 48, generator=g) / DIN**0.5 * 1.5
    w2 = torch.randn(48, C, generator=g)
    if base is not None:
        w1, w2 = base[0] + shift * w1, base[1] + shift * w2
    return w1, w2


def sample(task, n, g):
    x = torch.randn(n, DIN, generator=g)
    return x, (torch.tanh(x @ task[0]) @ task[1]).argmax(-1)


class LowRank(nn.Module):
    def __init__(self, base, rank=RANK, alpha=8.0):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.a.T) @ self.b.T


class Net(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.f1, self.f2, self.f3 = nn.Linear(DIN, h), nn.Linear(h, h), nn.Linear(h, h)
        self.n1, self.n2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.head = nn.Linear(h, C)

    def forward(self, x):
        x = F.gelu(self.f1(x))
        x = x + F.gelu(self.f2(self.n1(x)))
        x = x + F.gelu(self.f3(self.n2(x)))
        return self.head(x)


def fit(model, task, steps, g, lr=2e-3):
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    for step in range(1, steps + 1):
        x, y = sample(task, BATCH, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(-1) == y).float().mean().item()


g = torch.Generator().manual_seed(1)
old = make_task(100)
new = make_task(101, base=old, shift=0.35)
x_te, y_te = sample(new, 2000, g)

teacher, student = Net(192), Net(160)
print(f"teacher fit {fit(teacher, new, PRE, g):.4f}")
print(f"student fit on the old task {fit(student, old, PRE, g):.4f}")
teacher.eval().requires_grad_(False)

for name in ("f1", "f2", "f3"):
    setattr(student, name, LowRank(getattr(student, name)))
for mod in (student.n1, student.n2, student.head):
    mod.requires_grad_(False)
trainable = [p for p in student.parameters() if p.requires_grad]
n_all = sum(p.numel() for p in student.parameters())
print(f"trainable {sum(p.numel() for p in trainable)} of {n_all}")
print(f"before: student acc {accuracy(student, x_te, y_te):.3f}  teacher acc {accuracy(teacher, x_te, y_te):.3f}")

opt = torch.optim.AdamW(trainable, lr=4e-3, weight_decay=0.0)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, ADAPT)
for step in range(1, ADAPT + 1):
    x, y = sample(new, BATCH, g)
    with torch.no_grad():
        soft = F.log_softmax(teacher(x) / TEMP, -1)
    logits = student(x)
    kd = F.kl_div(F.log_softmax(logits / TEMP, -1), soft, log_target=True, reduction="batchmean") * TEMP**2
    loss = kd + 0.3 * F.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(trainable, 1.0)
    opt.step()
    sched.step()
    if step % 25 == 0 or step == 1:
        print(f"step {step:4d}  loss {loss.item():.4f}  kd {kd.item():.4f}  acc {accuracy(student, x_te, y_te):.3f}")
print(f"final student acc {accuracy(student, x_te, y_te):.3f}  teacher acc {accuracy(teacher, x_te, y_te):.3f}")
