# expect: healthy
# symptom: resembles the fault that rows of unequal length are padded on one side and their labels or mask on the other, so labels belong to other places
# axis: none
# mended: none
import math
import random

import torch
from torch import nn

random.seed(2)
torch.manual_seed(2)
VOCAB, PAD_ID, SKIP, MAX_LEN = 30, 0, -100, 40


def sample():
    items = [random.randrange(3, VOCAB) for _ in range(random.randint(3, 8))]
    prompt = [1] + items + [2]
    answer = [max(items), min(items), 2]
    return prompt, answer


def collate(examples):
    longest = max(len(p) + len(a) for p, a in examples)
    ids, labels, mask = [], [], []
    for prompt, answer in examples:
        seq = prompt + answer
        fill = longest - len(seq)
        ids.append([PAD_ID] * fill + seq)
        labels.append([SKIP] * (fill + len(prompt)) + answer)
        mask.append([0] * fill + [1] * len(seq))
    mask = torch.tensor(mask)
    position = (mask.cumsum(1) - 1).clamp(min=0)
    return torch.tensor(ids), torch.tensor(labels), mask.bool(), position


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)

    def forward(self, x, allowed):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        att = q @ k.transpose(1, 2) / math.sqrt(q.size(-1))
        att = att.masked_fill(~allowed, float("-inf")).softmax(-1)
        return self.proj(att @ v)


class Decoder(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(MAX_LEN, d)
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.att = Attention(d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.head = nn.Linear(d, VOCAB)

    def forward(self, ids, mask, position):
        T = ids.size(1)
        causal = torch.ones(T, T).tril().bool()
        # the diagonal stays open so that filler rows have something to look at
        allowed = (causal & mask[:, None, :]) | torch.eye(T).bool()
        x = self.tok(ids) + self.pos(position)
        x = x + self.att(self.n1(x), allowed)
        x = x + self.ff(self.n2(x))
        return self.head(self.n3(x))


model = Decoder()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(50):
    ids, labels, mask, position = collate([sample() for _ in range(40)])
    logits = model(ids, mask, position)
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=SKIP)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print("step", step + 1, "loss", round(loss.item(), 4))
