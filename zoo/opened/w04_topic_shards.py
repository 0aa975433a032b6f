# expect: sick
# symptom: the loss leaps with each text, or held-out scores are those of a guess
# axis: data
# cause: the stream builds a word index anew for each shard
# says: (vocab|tokeni[sz]er|word.?(index|id)|char.?(map|id)|\bids?\b|stoi|encod).{0,120}(anew|each|every|per|rebuil|differ|own|inconsisten|mismatch|not (shared|the same))|(anew|each|every|different|separate).{0,60}(vocab|tokeni[sz]er|\bids?\b)
# onset_step: 0
# fix: build one vocabulary over all texts
# mended: one index for all shards
import json
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

MENDED = os.environ.get("MENDED") == "1"

SEQ = 12
TOPICS = {
    "cook": ["onion", "butter", "pan", "salt", "oven", "dough", "spoon"],
    "sail": ["mast", "rope", "wind", "harbor", "deck", "anchor", "wave"],
    "farm": ["barn", "tractor", "field", "goat", "seed", "fence", "rain"],
    "city": ["tram", "tower", "street", "market", "bus", "cafe", "light"],
}
GLUE = ["then", "with", "near", "under", "after", "and"]


def dump_shards(root, docs_per_shard=40):
    r = random.Random(11)
    paths = []
    for name, words in TOPICS.items():
        path = os.path.join(root, name + ".jsonl")
        with open(path, "w") as f:
            for _ in range(docs_per_shard):
                k = r.randrange(len(words))
                toks = []
                for _ in range(40):
                    toks += [words[k], r.choice(GLUE)]
                    k = (k + r.choice([1, 1, 1, 2])) % len(words)
                f.write(json.dumps({"topic": name, "text": " ".join(toks)}) + "\n")
        paths.append(path)
    return paths


class ShardStream(IterableDataset):
    def __init__(self, paths, seq=SEQ):
        self.paths = paths
        self.seq = seq
        self.known = {}

    def __iter__(self):
        for path in self.paths:
            word_index = self.known if MENDED else {}
            with open(path) as f:
                for line in f:
                    words = json.loads(line)["text"].split()
                    ids = [word_index.setdefault(w, len(word_index)) for w in words]
                    for s in range(0, len(ids) - self.seq - 1, self.seq):
                        chunk = torch.tensor(ids[s : s + self.seq + 1])
                        yield chunk[:-1], chunk[1:]


class TinyTransformer(nn.Module):
    def __init__(self, vocab, d=48):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.randn(SEQ, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(d, vocab)
        self.register_buffer("mask", torch.triu(torch.full((SEQ, SEQ), float("-inf")), 1))

    def forward(self, x):
        h = self.tok(x) + self.pos[: x.size(1)]
        return self.head(self.enc(h, mask=self.mask))


torch.manual_seed(0)
with tempfile.TemporaryDirectory() as root:
    paths = dump_shards(root)
    loader = DataLoader(ShardStream(paths), batch_size=32)
    net = TinyTransformer(vocab=64)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    step = 0
    for epoch in range(4):
        for x, y in loader:
            loss = F.cross_entropy(net(x).transpose(1, 2), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 10 == 0:
                print("epoch", epoch, "step", step, "loss", round(loss.item(), 4))
