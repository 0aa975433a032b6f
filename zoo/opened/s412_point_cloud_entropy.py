# expect: sick
# symptom: training goes well for 100 steps and accuracy nears 100%, then the logged loss becomes nan although cross-entropy is fine; the loss scale collapses to 0 and in the end the weights are nan too
# axis: precision
# cause: the entropy term takes the log of a softmax computed in float16 inside autocast; once the model is confident a probability underflows to 0 and 0*log(0) is nan
# says: (log|entropy|softmax|prob\w*).{0,60}(fp16|float16|half|autocast|underflow|zero|\b0\b)|(fp16|float16|half|autocast|underflow\w*).{0,60}(log|entropy|softmax|prob)|log\(0\)|0 ?\* ?(log|-?inf)
# onset_step: 100
# fix: compute the entropy from log_softmax of the float32 logits
# mended: the entropy uses log_softmax on logits.float(); the run stays finite to the end and accuracy is near 100%
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(11)
torch.set_num_threads(1)

POINTS, CLASSES, DIM = 16, 8, 32
STEPS, BATCH = 450, 32
BETA, SCALE = 0.02, 16.0


class PointEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, DIM), nn.ReLU(), nn.Linear(DIM, DIM), nn.ReLU())
        self.glob = nn.Sequential(nn.Linear(2 * DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM))
        self.centres = nn.Parameter(torch.randn(CLASSES, DIM))

    def forward(self, pts):
        h = self.local(pts)
        z = self.glob(torch.cat([h.mean(1), h.amax(1)], -1))
        z = F.normalize(z.float(), dim=-1)
        return F.linear(z, SCALE * F.normalize(self.centres, dim=-1))


AXES = torch.randn(CLASSES, 3, 3)
AXES = AXES / AXES.flatten(1).norm(dim=1)[:, None, None]


def make_batch(n):
    y = torch.randint(0, CLASSES, (n,))
    x = torch.randn(n, POINTS, 3).clamp(-2, 2) @ (1.5 * AXES[y]) + AXES[y].sum(1, keepdim=True)
    return x + 0.02 * torch.randn(n, POINTS, 3), y


def mean_entropy(logits):
    if MENDED:
        logp = F.log_softmax(logits.float(), dim=-1)
        return -(logp.exp() * logp).sum(-1).mean()
    p = torch.softmax(logits, dim=-1)
    return -(p * torch.log(p)).sum(-1).mean()


@torch.no_grad()
def accuracy(model):
    model.eval()
    x, y = make_batch(400)
    with torch.autocast("cpu", dtype=torch.float16):
        acc = (model(x).argmax(-1) == y).float().mean().item()
    model.train()
    return acc


def main():
    model = PointEncoder()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 40))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    t0 = time.time()
    for step in range(1, STEPS + 1):
        x, y = make_batch(BATCH)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x)
            ce = F.cross_entropy(logits.float(), y)
            loss = ce - BETA * mean_entropy(logits)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        sched.step()
        if step == 1 or step % 30 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} ce {ce.item():.4f} scale {scaler.get_scale():.3g}")
    print(f"final accuracy {accuracy(model):.3f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
