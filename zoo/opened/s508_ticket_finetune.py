# expect: sick
# symptom: after the encoder is unfrozen the loss jumps and accuracy falls to chance; the pretrained knowledge is gone
# axis: optimizer
# cause: the unfrozen pretrained encoder is added to the optimizer without a learning rate of its own and so is trained at the head's rate of 2e-2, far too high for it
# says: (unfr\w+|encoder|backbone|pretrain\w*|param(eter)?.?group)[^.]{0,90}(\blr\b|learning.?rate|step size)|(\blr\b|learning.?rate|step size)[^.]{0,90}(unfr\w+|encoder|backbone|pretrain\w*|head'?s|param(eter)?.?group|too (high|large|big))|(too (high|large|big)|excessive|huge)[^.]{0,25}(\blr\b|learning.?rate|step|update)
# onset_step: 421
# fix: give the encoder's parameter group a small learning rate of its own (5e-4)
# mended: with MENDED=1 add_param_group gets lr=5e-4
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
random.seed(31)
torch.manual_seed(31)

MASK, N_CLUSTER, PER = 0, 24, 10
VOCAB, LENGTH, QUEUES = 1 + N_CLUSTER * PER, 20, 6
DIM = 48


def unlabelled(n):
    """Texts mix two subjects; words of one subject stand together."""
    out = []
    for _ in range(n):
        a, b = random.sample(range(N_CLUSTER), 2)
        cut = random.randint(6, LENGTH - 6)
        out.append([1 + (a if i < cut else b) * PER + random.randrange(PER) for i in range(LENGTH)])
    return torch.tensor(out)


def tickets(n):
    """The queue depends on the subjects of the text."""
    ids = unlabelled(n)
    first = (ids[:, 0] - 1) // PER
    last = (ids[:, -1] - 1) // PER
    return ids, (first % 3) * 2 + last % 2


class Encoder(nn.Module):
    def __init__(self, layers=3, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(LENGTH, DIM)
        nn.init.normal_(self.tok.weight, std=0.1)
        nn.init.normal_(self.pos.weight, std=0.1)
        layer = nn.TransformerEncoderLayer(DIM, heads, 2 * DIM, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)

    def forward(self, ids):
        return self.body(self.tok(ids) + self.pos.weight)


def sample(n_rows, size):
    return torch.randint(0, n_rows, (size,))


def pretrain(encoder, corpus, steps=300):
    lm_head = nn.Linear(DIM, VOCAB)
    params = list(encoder.parameters()) + list(lm_head.parameters())
    opt = torch.optim.AdamW(params, lr=2e-3)
    for step in range(1, steps + 1):
        ids = corpus[sample(len(corpus), 32)]
        hidden = torch.rand(ids.shape) < 0.2
        logits = lm_head(encoder(ids.masked_fill(hidden, MASK)))
        loss = F.cross_entropy(logits[hidden], ids[hidden])
        opt.zero_grad()
        loss.backward()
        opt.step()
        for g in opt.param_groups:
            g["lr"] = 2e-3 * (1 - step / steps)
        if step % 50 == 0:
            print(f"[pretrain] step {step} mlm loss {loss.item():.4f}", flush=True)


class Classifier(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(2 * DIM, QUEUES)

    def forward(self, ids):
        h = self.encoder(ids)
        return self.head(torch.cat([h[:, 0], h[:, -1]], 1))


@torch.no_grad()
def accuracy(model, ids, queue):
    model.eval()
    acc = (model(ids).argmax(1) == queue).float().mean().item()
    model.train()
    return acc


def finetune(model, train, test, head_steps=120, full_steps=280):
    for p in model.encoder.parameters():
        p.requires_grad_(False)
    opt = torch.optim.AdamW(model.head.parameters(), lr=2e-2, weight_decay=0.01)
    for step in range(1, head_steps + full_steps + 1):
        if step == head_steps + 1:
            for p in model.encoder.parameters():
                p.requires_grad_(True)
            group = {"params": model.encoder.parameters()}
            if MENDED:
                group["lr"] = 5e-4
            opt.add_param_group(group)
            print("[finetune] encoder unfrozen", flush=True)
        pick = sample(len(train[0]), 32)
        loss = F.cross_entropy(model(train[0][pick]), train[1][pick])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"[finetune] step {step} loss {loss.item():.4f}", flush=True)
        if step % 40 == 0:
            print(f"[finetune] test accuracy {accuracy(model, *test):.3f}", flush=True)


def main():
    encoder = Encoder()
    pretrain(encoder, unlabelled(6000))
    finetune(Classifier(encoder), tickets(2000), tickets(400))


if __name__ == "__main__":
    main()
