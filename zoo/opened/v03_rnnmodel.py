# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: the state of a recurrent layer is carried from one batch to the next although the batches are unrelated
# says: (hidden|state|memory|carr).{0,160}
# onset_step: 0
# fix: begin each batch with a new state
# mended: the same with the fix
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"

random.seed(11)
torch.manual_seed(11)

VOCAB = ["(", ")", "a", "b"]
MAX_DEPTH = 4
DOC_LEN = 21


def write_document():
    depth, doc = 0, []
    while len(doc) < DOC_LEN:
        if depth == 0:
            tok = 0
        elif depth == MAX_DEPTH:
            tok = 1
        else:
            tok = random.choice([0, 1, 0, 1, 2 + depth % 2])
        depth += (tok == 0) - (tok == 1)
        doc.append(tok)
    return doc


def repackage_hidden(h):
    """Wraps hidden states in new tensors."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp=12, nhid=40):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid = nhid

    def forward(self, tokens, hidden):
        emb = self.encoder(tokens)
        output, hidden = self.rnn(emb, hidden)
        return self.decoder(output), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(1, bsz, self.nhid), weight.new_zeros(1, bsz, self.nhid))


docs = torch.tensor([write_document() for _ in range(1200)])
valid = torch.tensor([write_document() for _ in range(200)])
bsz = 40
model = RNNModel(len(VOCAB))
optim = torch.optim.Adam(model.parameters(), lr=8e-3)


def evaluate():
    model.eval()
    with torch.no_grad():
        data = valid.t()
        logits, _ = model(data[:-1], model.init_hidden(valid.size(0)))
        return F.cross_entropy(logits.flatten(0, 1), data[1:].flatten()).item()


def train_epoch():
    model.train()
    order = torch.randperm(docs.size(0))
    hidden = model.init_hidden(bsz)
    total = 0.0
    for i in range(0, docs.size(0), bsz):
        data = docs[order[i : i + bsz]].t()
        hidden = model.init_hidden(bsz) if MENDED else repackage_hidden(hidden)
        logits, hidden = model(data[:-1], hidden)
        loss = F.cross_entropy(logits.flatten(0, 1), data[1:].flatten())
        optim.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optim.step()
        total += loss.item()
    return total / (docs.size(0) // bsz)


for epoch in range(1, 8):
    train_loss = train_epoch()
    print("| epoch {:2d} | train loss {:.4f} | valid loss {:.4f}".format(epoch, train_loss, evaluate()))
