# expect: sick
# fault: one-cycle scheduler counted in batches, stepped once an epoch
# onset_step: 0
# says: (?i)(schedul|warm.?up|(learning )?rate .{0,60}(tiny|small|low|slow|barely|never|far (from|below))|one.?cycle|lr .{0,40}(low|tiny|small|never))
# note: OneCycleLR gets total_steps=epochs*len(loader) but .step() is called at the end of an epoch, so the rate stays at max_lr/25 and never comes up.
from dataclasses import dataclass
import torch
from torch import nn

torch.set_num_threads(1)


@dataclass
class Cfg:
    vocab: int = 120
    classes: int = 6
    epochs: int = 6
    per_epoch: int = 25
    batch: int = 24
    peak: float = 8e-3


class BiGRU(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.emb = nn.Embedding(c.vocab, 24)
        self.rnn = nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, c.classes)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.out(h.mean(1))


def batch(c, gen):
    y = torch.randint(0, c.classes, (c.batch,), generator=gen)
    ids = torch.randint(0, c.vocab, (c.batch, 12), generator=gen)
    key = torch.randint(0, 20, (c.batch, 3), generator=gen) * c.classes + y[:, None]
    ids[:, 4:7] = key % c.vocab
    return ids, y


cfg = Cfg()
torch.manual_seed(0)
gen = torch.Generator().manual_seed(1)
model = BiGRU(cfg)
opt = torch.optim.Adam(model.parameters(), lr=cfg.peak)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.peak, total_steps=cfg.epochs * cfg.per_epoch + 1, pct_start=0.2)
for epoch in range(cfg.epochs):
    seen, right, run = 0, 0, 0.0
    for _ in range(cfg.per_epoch):
        ids, y = batch(cfg, gen)
        logits = model(ids)
        loss = nn.functional.cross_entropy(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        run += loss.item()
        seen += len(y)
        right += (logits.argmax(1) == y).sum().item()
    sched.step()
    print(f"epoch {epoch}: loss {run / cfg.per_epoch:.3f} final acc {right / seen:.3f}")
