# expect: sick
# fault: the collate function stacks time-major [time, batch, features] but the GRU tagger has batch_first=True, so it runs over the batch
# onset_step: 1
# says: (?i)(batch_first|mixed.?rows|over the rows|across the batch|axes)
import random

import torch
import torch.nn.functional as F
from torch.nn import GRU, Linear, Module, Dropout
from torch.utils.data import DataLoader

torch.set_num_threads(1)
torch.manual_seed(8)
random.seed(8)


def make_record(steps=26, feats=5):
    """A noisy signal with a running state: the tag is on after a pulse on channel 0 and off after one on channel 1."""
    sig = torch.randn(steps, feats) * 0.3
    tag = torch.zeros(steps, dtype=torch.long)
    state = 0
    for t in range(steps):
        u = random.random()
        if u < 0.12:
            sig[t, 0] += 2.0
            state = 1
        elif u < 0.24:
            sig[t, 1] += 2.0
            state = 0
        tag[t] = state
    return sig, tag


def collate(items):
    sigs, tags = zip(*items)
    return torch.stack(sigs, dim=1), torch.stack(tags, dim=1)


class Tagger(Module):
    def __init__(self, feats=5, hidden=48, layers=2, tags=2):
        super().__init__()
        self.gru = GRU(feats, hidden, layers, batch_first=True, dropout=0.1)
        self.drop = Dropout(0.1)
        self.proj = Linear(hidden, tags)

    def forward(self, sig):
        states, _ = self.gru(sig)
        return self.proj(self.drop(states))


def run_epoch(net, loader, opt=None):
    total, right, count = 0.0, 0, 0
    net.train(opt is not None)
    with torch.set_grad_enabled(opt is not None):
        for sig, tag in loader:
            logits = net(sig)
            loss = F.cross_entropy(logits.flatten(0, 1), tag.flatten())
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            total += loss.item() * tag.numel()
            right += (logits.argmax(-1) == tag).sum().item()
            count += tag.numel()
    return total / count, right / count


if __name__ == "__main__":
    records = [make_record() for _ in range(1300)]
    fit = DataLoader(records[:1120], batch_size=28, shuffle=True, collate_fn=collate)
    dev = DataLoader(records[1120:], batch_size=30, collate_fn=collate)
    tagger = Tagger()
    opt = torch.optim.Adam(tagger.parameters(), lr=3e-3)
    for epoch in range(1, 6):
        tr = run_epoch(tagger, fit, opt)
        dv = run_epoch(tagger, dev)
        print("epoch %d  fit loss %.4f acc %.3f | dev loss %.4f acc %.3f" % (epoch, *tr, *dv))
