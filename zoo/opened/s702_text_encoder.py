# expect: sick
# symptom: loss comes down during the first steps, then goes back up to ln(4)=1.386 and stays there; the classifier predicts one class
# axis: optimizer
# cause: the peak learning rate (2e-2 with AdamW) is far too high for this transformer encoder
# says: (learning.?rate|\blr\b|step.?size).{0,50}(too|much|far|overly|very)?.{0,12}\b(high|large|big|aggressive|hot|excessive)|(too|overly|excessively|very) (high|large|big|aggressive)\W.{0,20}(learning.?rate|\blr\b|step.?size)|(updates?|steps?) (is |are |were )?(far |much )?too (large|big)|(reduce|lower|decrease|cut).{0,25}(learning.?rate|\blr\b)
# onset_step: 40
# fix: lower the learning rate to 5e-4
# mended: with MENDED=1 the peak learning rate is 5e-4
import logging
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("intent")

torch.set_num_threads(1)
torch.manual_seed(1234)

VOCAB, SEQ, N_CLASS = 160, 16, 4
CONF = {
    "peak_lr": 5e-4 if os.environ.get("MENDED") == "1" else 2e-2,
    "warmup": 120,
    "steps": 300,
    "batch": 32,
    "d_model": 64,
    "layers": 4,
}


def make_split(n, gen):
    """Requests of 16 tokens. An action word and an object word together decide the intent."""
    x = torch.randint(20, VOCAB, (n, SEQ), generator=gen)
    a = torch.randint(0, 2, (n,), generator=gen)
    b = torch.randint(0, 2, (n,), generator=gen)
    pos = torch.stack([torch.randperm(SEQ - 1, generator=gen)[:4] + 1 for _ in range(n)])
    rows = torch.arange(n)
    x[rows, pos[:, 0]] = 2 + a * 5 + torch.randint(0, 5, (n,), generator=gen)
    x[rows, pos[:, 2]] = 12 + b * 4 + torch.randint(0, 4, (n,), generator=gen)
    x[:, 0] = 1
    y = a * 2 + (a ^ b)
    return x, y


class IntentEncoder(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(torch.randn(SEQ, d) * 0.02)
        layer = nn.TransformerEncoderLayer(
            d, 4, dim_feedforward=4 * d, dropout=0.1, activation="gelu", batch_first=True
        )
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pool = nn.Linear(d, d)
        self.cls = nn.Linear(d, N_CLASS)
        nn.init.normal_(self.tok.weight, std=0.1)

    def forward(self, x):
        h = self.enc(self.tok(x) + self.pos)
        return self.cls(torch.tanh(self.pool(h[:, 0])))


def lr_lambda(step):
    if step < CONF["warmup"]:
        return (step + 1) / CONF["warmup"]
    t = (step - CONF["warmup"]) / (CONF["steps"] - CONF["warmup"])
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * t))


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    pred = model(x).argmax(-1)
    model.train()
    return (pred == y).float().mean().item(), torch.bincount(pred, minlength=N_CLASS).tolist()


def main():
    gen = torch.Generator().manual_seed(99)
    x_tr, y_tr = make_split(6000, gen)
    x_va, y_va = make_split(500, gen)
    model = IntentEncoder(CONF["d_model"], CONF["layers"])
    opt = torch.optim.AdamW(model.parameters(), lr=CONF["peak_lr"], weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_lambda)
    running = None
    for step in range(1, CONF["steps"] + 1):
        idx = torch.randint(0, len(x_tr), (CONF["batch"],))
        loss = F.cross_entropy(model(x_tr[idx]), y_tr[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        if step % 20 == 0 and step <= 100 or step % 100 == 0:
            acc, counts = evaluate(model, x_va, y_va)
            log.info("step %d loss %.4f val acc %.3f predicted %s", step, running, acc, counts)


if __name__ == "__main__":
    main()
