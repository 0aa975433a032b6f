# expect: sick
# cause: The LambdaLR function returns an absolute learning rate although it is multiplied with the optimizer's own rate of 1e-3, so the true rate is about 1e-6 at most and nothing trains.
import math
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence

random.seed(3)
torch.manual_seed(3)

QUEUES = {
    "billing": "invoice refund charge card payment receipt price tax".split(),
    "network": "router wifi cable signal drop latency modem outage".split(),
    "login": "password account locked reset token email verify user".split(),
    "hardware": "screen battery keyboard fan broken noise charger laptop".split(),
}
FILLER = "hello my the is since please yesterday help not again still very with and on it was a".split()
names = list(QUEUES)
vocab = {w: i + 1 for i, w in enumerate(sorted(set(FILLER + sum(QUEUES.values(), []))))}


def make_ticket():
    queue = random.randrange(len(names))
    words = random.choices(FILLER, k=random.randint(8, 16))
    for _ in range(3):
        words.insert(random.randrange(len(words)), random.choice(QUEUES[names[queue]]))
    if random.random() < 0.4:
        other = random.choice(names)
        words.insert(0, random.choice(QUEUES[other]))
    return torch.tensor([vocab[w] for w in words]), queue


train = [make_ticket() for _ in range(3000)]
held = [make_ticket() for _ in range(400)]


def collate(items):
    return pad_sequence([t for t, _ in items], batch_first=True), torch.tensor([q for _, q in items])


class TicketRouter(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(vocab) + 1, 64, padding_idx=0)
        self.rnn = nn.GRU(64, 96, batch_first=True, bidirectional=True)
        self.out = nn.Linear(192, len(names))

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.out(h.masked_fill((ids == 0).unsqueeze(-1), -1e4).amax(1))


PEAK_LR, WARMUP, TOTAL = 1e-3, 40, 400


def lr_at(step):
    if step < WARMUP:
        return PEAK_LR * (step + 1) / WARMUP
    return PEAK_LR * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (TOTAL - WARMUP)))


model = TicketRouter()
opt = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)
for step in range(TOTAL):
    ids, queue = collate(random.sample(train, 32))
    loss = nn.functional.cross_entropy(model(ids), queue)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(f"step {step:4d} loss {loss.item():.4f}")

model.eval()
with torch.no_grad():
    ids, queue = collate(held)
    logits = model(ids)
print(
    f"held-out loss {nn.functional.cross_entropy(logits, queue):.4f} accuracy {(logits.argmax(1) == queue).float().mean():.3f}"
)
