# expect: sick
# symptom: training loss falls smoothly but stops far too high, and next-token accuracy in greedy evaluation is at chance
# axis: data
# cause: double label shift; the dataset already returns labels moved by one and the model's loss shifts logits and labels once more, so each position learns the token after next
# says: (double|twice|two|again|both|extra|already|second|once more).{0,60}shift|shift\w*.{0,80}(double|twice|two|again|both|extra|already|second|once more)|(token|position|label|target)s?.{0,60}(off[- ]by[- ]one|\+ ?2|plus two|after next|two (steps|ahead|tokens|positions))|(off[- ]by[- ]one|misalign\w*).{0,80}(label|target|token|logit)|(label|target)s?.{0,60}misalign
# onset_step: 1
# fix: shift only once: labels = input ids in the dataset, or no shift in the loss
# mended: the dataset returns labels equal to the input ids, the model shifts once
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)

VOCAB = 40
CTX = 40


class TextStream(Dataset):
    """second-order walk with noisy branches, a stand-in for tokenised text"""

    def __init__(self, n=40000, seed=0):
        tab = np.random.default_rng(77)
        self.branch = tab.integers(0, VOCAB, (VOCAB, 3))
        rng = np.random.default_rng(seed)
        ids = [0]
        for _ in range(n):
            u = rng.random()
            k = 0 if u < 0.65 else 1 if u < 0.9 else 2
            ids.append(int(self.branch[ids[-1], k]))
        self.ids = torch.tensor(ids)

    def __len__(self):
        return (len(self.ids) - CTX - 1) // CTX

    def __getitem__(self, i):
        s = i * CTX
        x = self.ids[s : s + CTX]
        y = x.clone() if MENDED else self.ids[s + 1 : s + CTX + 1]
        return {"input_ids": x, "labels": y}


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.pr = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.o(a)
        return x + self.pr(F.gelu(self.fc(self.n2(x))))


class CausalLM(nn.Module):
    def __init__(self, d=64, layers=2, heads=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, d), nn.Embedding(CTX, d)
        self.h = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.05)

    def forward(self, input_ids, labels=None):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.size(1)))
        for blk in self.h:
            x = blk(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if labels is not None:
            shift_logits = logits[:, :-1].reshape(-1, VOCAB)
            shift_labels = labels[:, 1:].reshape(-1)
            loss = F.cross_entropy(shift_logits, shift_labels)
        return loss, logits


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    ids = torch.stack([data[i]["input_ids"] for i in range(64)])
    _, logits = model(ids)
    acc = (logits[:, :-1].argmax(-1) == ids[:, 1:]).float().mean().item()
    model.train()
    return acc


def main():
    train, test = TextStream(40000, 0), TextStream(6000, 1)
    loader = DataLoader(train, batch_size=20, shuffle=True, drop_last=True)
    model = CausalLM()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    total = 8 * len(loader)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=total, pct_start=0.1)
    step, t0 = 0, time.time()
    for epoch in range(8):
        for batch in loader:
            loss, _ = model(**batch)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f} t {time.time() - t0:.1f}s", flush=True)
        print(f"epoch {epoch} eval next-token accuracy {evaluate(model, test):.3f}")


main()
