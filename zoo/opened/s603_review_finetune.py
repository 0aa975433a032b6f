# expect: sick
# symptom: after the backbone is unfrozen the loss stays on the plateau of the head-only phase; fine-tuning gives no more than the linear probe
# axis: optimizer
# cause: the optimizer was built from the parameters that required grad at that time (the head only), and the backbone that is unfrozen later is never added to it
# says: ((optimi[sz]er|param.?group).{0,200}(not (in|added|given|passed|registered|include|part|contain|hold|know|cover)|never (added|given|passed|updated|saw|told|received|contain|include)|only.{0,30}head|missing|lack|without|omit|does ?n.t (hold|contain|include|know|own|cover)|absent|left out|stale))|((unfro[sz]en|unfreez\w*|backbone|encoder|trainable|param\w*).{0,100}(not|never|n.t|missing|absent|outside|left out).{0,40}(optimi[sz]er|param.?group|update|step))
# onset_step: 321
# fix: on unfreezing call optimizer.add_param_group with the backbone's parameters
# mended: unfreeze() adds the backbone as a new param group
import copy
import logging
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("finetune")
torch.set_num_threads(1)
torch.manual_seed(42)
random.seed(42)

POS = ["good", "great", "lovely", "superb", "fun", "charming"]
NEG = ["bad", "awful", "dull", "poor", "boring", "weak"]
NOUN = ["film", "plot", "cast", "music", "ending", "script", "camera", "pace"]
FILL = ["the", "was", "and", "i", "think", "really", "this", "of", "it", "quite", "but", "then"]
WORDS = ["[PAD]", "[MASK]", "[CLS]", "not"] + POS + NEG + NOUN + FILL
ID = {w: i for i, w in enumerate(WORDS)}
LEN = 20


def review():
    """A few clauses; the verdict is that of the majority, where 'not' turns a clause round."""
    toks, score = ["[CLS]"], 0
    for _ in range(3):
        pos, neg = random.random() < 0.5, random.random() < 0.2
        toks += [random.choice(FILL), random.choice(NOUN), "was"]
        if neg:
            toks.append("not")
        toks.append(random.choice(POS if pos else NEG))
        score += 1 if pos != neg else -1
    toks += ["[PAD]"] * (LEN - len(toks))
    return [ID[t] for t in toks[:LEN]], int(score > 0)


def make(n):
    rows = [review() for _ in range(n)]
    return torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])


class Encoder(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(WORDS), d), nn.Parameter(torch.randn(LEN, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 4 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        return self.norm(self.layers(self.tok(x) + self.pos, src_key_padding_mask=x == 0))


class Classifier(nn.Module):
    def __init__(self, encoder, d=32):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(d, 2)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


def pretrain(steps=120):
    enc = Encoder()
    mlm = nn.Linear(32, len(WORDS))
    opt = torch.optim.AdamW(list(enc.parameters()) + list(mlm.parameters()), lr=2e-3)
    x, _ = make(4000)
    for s in range(steps):
        b = x[torch.randint(len(x), (64,))]
        m = (torch.rand(b.shape) < 0.2) & (b > 2)
        loss = F.cross_entropy(mlm(enc(b.masked_fill(m, 1)))[m], b[m])
        opt.zero_grad()
        loss.backward()
        opt.step()
    log.info("masked-token loss after pretraining %.3f", loss.item())
    return enc


class FineTuner:
    def __init__(self, model, unfreeze_at, total):
        self.model, self.unfreeze_at, self.total = model, unfreeze_at, total
        for p in model.encoder.parameters():
            p.requires_grad = False
        self.opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2)

    def unfreeze(self):
        for p in self.model.encoder.parameters():
            p.requires_grad = True
        if os.environ.get("MENDED") == "1":
            self.opt.add_param_group({"params": list(self.model.encoder.parameters()), "lr": 1e-3})
        n = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        log.info("unfroze the encoder: %d trainable parameters", n)

    @torch.no_grad()
    def accuracy(self, loader):
        self.model.eval()
        ok = [(self.model(x).argmax(-1) == y).float() for x, y in loader]
        self.model.train()
        return torch.cat(ok).mean().item()

    def fit(self, loader, val):
        step = 0
        while step < self.total:
            for x, y in loader:
                if step == self.unfreeze_at:
                    self.unfreeze()
                loss = F.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                step += 1
                if step % 50 == 0:
                    log.info("step %d loss %.4f val acc %.3f", step, loss.item(), self.accuracy(val))
                if step == self.total:
                    break


encoder = pretrain()
train = DataLoader(TensorDataset(*make(6000)), batch_size=48, shuffle=True)
val = DataLoader(TensorDataset(*make(1000)), batch_size=250)
tuner = FineTuner(Classifier(copy.deepcopy(encoder)), unfreeze_at=200, total=650)
tuner.fit(train, val)
log.info("final accuracy %.3f", tuner.accuracy(val))
