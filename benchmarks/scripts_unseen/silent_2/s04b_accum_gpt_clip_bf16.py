# expect: sick
# fault: micro-batch losses added up before one step without a mean
# onset_step: 0
# says: (?i)(accumul|micro.?batch|divid|summed|sum of|not (averag|normali[sz])|effective (learning )?rate)
# note: the accumulating engine runs backward for each micro-batch without the 1/N factor while the rate of SGD is for the mean gradient.
import argparse as _src
import contextlib
import torch
import torch.nn as nn
import torch.nn.functional as F

text = open(_src.__file__).read()
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])


class CharLM(nn.Module):
    def __init__(self, V, d=48, T=32):
        super().__init__()
        self.T = T
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(T, d)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.tr = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.ln = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, V)

    def forward(self, x):
        T = x.size(1)
        mask = torch.full((T, T), float("-inf")).triu(1)
        h = self.tok(x) + self.pos(torch.arange(T))
        return self.lm_head(self.ln(self.tr(h, mask=mask)))


class Engine:
    def __init__(self, model, lr, grad_accum):
        self.model, self.n = model, grad_accum
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.micro = 0
        self.updates = 0

    @contextlib.contextmanager
    def accumulate(self):
        self.micro += 1
        yield self.micro % self.n == 0

    def backward(self, loss):
        loss.backward()

    def update(self):
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.updates += 1


torch.manual_seed(5)
eng = Engine(CharLM(len(chars)), lr=0.08, grad_accum=4)
while eng.updates < 70:
    ix = torch.randint(0, len(data) - 33, (8,))
    xy = torch.stack([data[i : i + 33] for i in ix.tolist()])
    with eng.accumulate() as boundary:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = eng.model(xy[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), xy[:, 1:].flatten())
        eng.backward(loss)
        if boundary:
            eng.update()
            if eng.updates % 10 == 0:
                print("update", eng.updates, "loss", round(loss.item(), 3))
