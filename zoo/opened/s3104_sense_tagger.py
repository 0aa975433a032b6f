# expect: sick
# symptom: the loss comes down a little and then stays on a plateau; tags of ambiguous words stay at guess level
# axis: model
# cause: attention is built without batch_first for [batch, time, dim] input, so it mixes sentences, not tokens
# says: batch.?first|(?=.*(attention|attend|mix))(?=.*(batch (dim|ax)|across|other sent|sequence.first|transpos))
# onset_step: 0
# fix: construct nn.MultiheadAttention with batch_first=True
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(21)
MENDED = os.environ.get("MENDED") == "1"

N_TOPIC, N_AMBIG, N_PLAIN, LENGTH = 4, 12, 40, 16
TOPIC0, AMBIG0, PLAIN0 = 0, N_TOPIC, N_TOPIC + N_AMBIG
VOCAB = N_TOPIC + N_AMBIG + N_PLAIN
N_TAGS = 6


def build_corpus(n, seed):
    """Sentences with one topic word; words like 'bank' or 'pitch' take their sense from the topic."""
    g = torch.Generator().manual_seed(seed)
    sense = torch.randint(0, N_TAGS, (N_AMBIG, N_TOPIC), generator=torch.Generator().manual_seed(0))
    fixed = torch.arange(N_PLAIN) % N_TAGS
    toks = torch.randint(PLAIN0, VOCAB, (n, LENGTH), generator=g)
    amb = torch.rand(n, LENGTH, generator=g) < 0.4
    toks = torch.where(amb, torch.randint(AMBIG0, PLAIN0, (n, LENGTH), generator=g), toks)
    topic = torch.randint(0, N_TOPIC, (n,), generator=g)
    where = torch.randint(0, LENGTH, (n,), generator=g)
    toks[torch.arange(n), where] = TOPIC0 + topic
    tags = torch.zeros(n, LENGTH, dtype=torch.long)
    is_amb = (toks >= AMBIG0) & (toks < PLAIN0)
    is_plain = toks >= PLAIN0
    row = topic[:, None].expand(n, LENGTH)
    tags[is_amb] = sense[toks[is_amb] - AMBIG0, row[is_amb]]
    tags[is_plain] = fixed[toks[is_plain] - PLAIN0]
    return toks, tags, is_amb


class Block(nn.Module):
    def __init__(self, dim, heads, **attn_kw):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, **attn_kw)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.ff(self.ln2(x))


class SenseTagger(nn.Module):
    def __init__(self, dim=48, heads=4, depth=2):
        super().__init__()
        kw = dict(batch_first=True) if MENDED else {}
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(LENGTH, dim))
        self.blocks = nn.ModuleList([Block(dim, heads, **kw) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, N_TAGS)

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for blk in self.blocks:
            x = blk(x)
        return self.out(self.norm(x))


@torch.no_grad()
def report(model, toks, tags, is_amb):
    model.eval()
    hit = torch.cat([model(t).argmax(-1) for t in toks.split(32)]) == tags
    model.train()
    return hit.float().mean().item(), hit[is_amb].float().mean().item()


def main():
    toks, tags, _ = build_corpus(4000, 1)
    test = build_corpus(640, 2)
    loader = DataLoader(TensorDataset(toks, tags), batch_size=32, shuffle=True, drop_last=True)
    model = SenseTagger()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    step = 0
    for epoch in range(4):
        for ids, y in loader:
            loss = F.cross_entropy(model(ids).reshape(-1, N_TAGS), y.reshape(-1))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            step += 1
        acc, amb = report(model, *test)
        print(f"epoch {epoch} tag accuracy {acc:.3f} ambiguous words {amb:.3f}")
    print(f"final loss {loss.item():.4f} tag accuracy {acc:.3f} ambiguous words {amb:.3f}")


if __name__ == "__main__":
    main()
