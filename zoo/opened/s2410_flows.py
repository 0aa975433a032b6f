# expect: sick
# symptom: loss falls in the dense phase, then swings more and more and climbs back to chance level once the gradients are sparsified
# axis: optimizer
# cause: The error-feedback memory of the top-k gradient compressor is never cleared for the coordinates that were sent, so the same gradient is accumulated and applied again and again.
# says: (?=.*(error[- ]?feedback|residual|memory|accumulat|leftover|carr(y|ied)|unsent|backlog|compress|top-?k|sparsif))(?=.*((not|never|n't|without|fails? to|no|instead of)\b.*(clear|zero|reset|subtract|remov|eras|empt|flush|delet|drain)|(no-?op|copy|temporary)|(again and again|repeated|re-?sen[dt]|re-?appl|double[- ]count|over and over)|(sent|transmitted|shipped).*(remain|stay|kept|keep|still)|(remain|stay|kept|keep|still).*(sent|transmitted|shipped))).*
# onset_step: 102
# fix: zero the transmitted coordinates in the memory itself (indexed assignment, not .zero_() on an indexed copy)
# mended: yes
"""Network-flow classifier trained by four simulated data-parallel workers.

After a dense warm-up every worker ships only the largest gradient entries and
carries the rest over to later steps, as one does on slow interconnects.
"""

import os
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=520)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--batch", type=int, default=384, help="per worker")
parser.add_argument("--lr", type=float, default=0.15)
parser.add_argument("--dense-steps", type=int, default=100)
parser.add_argument("--keep", type=float, default=0.08)
args = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(21)

PORTS, PROTOS, NUM, CLASSES = 60, 5, 12, 6


def make_flows(n):
    port = torch.randint(0, PORTS, (n,))
    proto = torch.randint(0, PROTOS, (n,))
    num = torch.randn(n, NUM)
    num[:, :3] = torch.log1p(num[:, :3].exp())
    g = torch.Generator().manual_seed(77)
    wp = torch.randn(PORTS, CLASSES, generator=g)
    wq = torch.randn(PROTOS, CLASSES, generator=g)
    w1 = torch.randn(NUM, 16, generator=g)
    w2 = torch.randn(16, CLASSES, generator=g)
    logits = 1.2 * wp[port] + 1.2 * wq[proto] + torch.tanh(num @ w1 / 2) @ w2
    y = (2.0 * logits + torch.distributions.Gumbel(0, 1).sample(logits.shape)).argmax(1)
    return port, proto, num, y


class FlowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.port = nn.Embedding(PORTS, 16)
        self.proto = nn.Embedding(PROTOS, 8)
        self.norm = nn.LayerNorm(16 + 8 + NUM)
        self.fc1 = nn.Linear(16 + 8 + NUM, 128)
        self.fc2 = nn.Linear(128, 64)
        self.fc3 = nn.Linear(64, CLASSES)

    def forward(self, port, proto, num):
        h = self.norm(torch.cat([self.port(port), self.proto(proto), num], 1))
        h = torch.relu(self.fc1(h))
        return self.fc3(torch.relu(self.fc2(h)))


class TopKCompressor:
    def __init__(self, params, keep):
        self.keep = keep
        self.memory = [torch.zeros_like(p) for p in params]

    def __call__(self, grads):
        sent = []
        for mem, g in zip(self.memory, grads):
            mem.add_(g)
            flat = mem.view(-1)
            k = max(1, int(self.keep * flat.numel()))
            idx = flat.abs().topk(k).indices
            packet = torch.zeros_like(flat)
            packet[idx] = flat[idx]
            if os.environ.get("MENDED") == "1":
                flat[idx] = 0.0
            else:
                flat[idx].zero_()
            sent.append(packet.view_as(g))
        return sent


train = make_flows(12000)
test = make_flows(2000)
model = FlowNet()
params = list(model.parameters())
workers = [TopKCompressor(params, args.keep) for _ in range(args.workers)]
opt = torch.optim.SGD(params, lr=args.lr, momentum=0.0)
sched = torch.optim.lr_scheduler.MultiStepLR(opt, [380, 470], gamma=0.4)
shards = torch.randperm(12000).chunk(args.workers)
ce = nn.CrossEntropyLoss()


@torch.no_grad()
def accuracy():
    *x, y = test
    return (model(*x).argmax(1) == y).float().mean().item()


for step in range(1, args.steps + 1):
    total, mean_loss = [torch.zeros_like(p) for p in params], 0.0
    for shard, compress in zip(shards, workers):
        pick = shard[torch.randint(len(shard), (args.batch,))]
        *x, y = [t[pick] for t in train]
        loss = ce(model(*x), y)
        grads = torch.autograd.grad(loss, params)
        if step > args.dense_steps:
            grads = compress(grads)
        for t, g in zip(total, grads):
            t.add_(g, alpha=1.0 / args.workers)
        mean_loss += loss.item() / args.workers
    for p, t in zip(params, total):
        p.grad = t
    opt.step()
    sched.step()
    if step % 20 == 0 or step == 1:
        print("[%4d/%d] loss %.4f" % (step, args.steps, mean_loss), flush=True)
    if step % 100 == 0:
        print("          test accuracy %.3f" % accuracy(), flush=True)
