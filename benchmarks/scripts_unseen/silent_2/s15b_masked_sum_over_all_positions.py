# expect: sick
# fault: masked loss divided by all positions, padding included
# onset_step: 0
# says: (?i)(pad|mask|mean over|divid|numel|denominator|normali[sz]|zero(ed|s)? (loss|row|position|entr)|filler)
# note: per-step errors are multiplied by the mask and then .mean() is taken, so short sequences count for little and padding pulls the loss towards zero.
import torch
from torch import nn


class HFLikeOutput(dict):
    __getattr__ = dict.__getitem__


class EventModel(nn.Module):
    def __init__(self, feats=6, d=40):
        super().__init__()
        self.inp = nn.Linear(feats, d)
        self.mix = nn.TransformerEncoderLayer(d, 4, 80, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d, feats)

    def forward(self, values, attention_mask, targets=None):
        h = self.mix(self.inp(values), src_key_padding_mask=attention_mask == 0)
        pred = self.out(h)
        loss = None
        if targets is not None:
            err = (pred - targets).abs() * attention_mask[..., None]
            loss = err.mean()
        return HFLikeOutput(loss=loss, pred=pred)


def make_batch(bs=16, T=60):
    n = torch.where(torch.rand(bs) < 0.1, T, torch.randint(4, 10, (bs,)))
    m = (torch.arange(T)[None] < n[:, None]).float()
    v = torch.randn(bs, T, 6) * m[..., None]
    mean = v.sum(1, keepdim=True) / n[:, None, None]
    return {"values": v, "attention_mask": m, "targets": (v - mean) * m[..., None]}


torch.manual_seed(31)
model = EventModel()
optim = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(130):
    out = model(**make_batch())
    optim.zero_grad()
    out.loss.backward()
    optim.step()
    if step % 15 == 0:
        print(step, "loss", round(out.loss.item(), 5))
