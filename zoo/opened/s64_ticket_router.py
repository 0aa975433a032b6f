# expect: sick
# symptom: the classifier of support tickets learns only a little; the loss levels off high and the accuracy stays far below what the text allows
# axis: data
# cause: the vocabulary is built from lower-cased words but the tickets are looked up in their original case, so most words become <unk>
# says: unk|out.of.vocab|oov|vocab|lower.?cas|\bcas(e|ing)\b|token(i[sz]|.{0,30}(same|identical|single id|collaps))|(most|nearly all|same|one|single).{0,30}(token|id\b|index)
# onset_step: 1
# fix: lower-case the words at look-up as well
# mended: lower-cases the words in encode()
import os
import random
from collections import Counter

import torch
from torch import nn

random.seed(3)
torch.manual_seed(3)
PAD, UNK = 0, 1
TEAMS = ["Billing", "Network", "Hardware", "Accounts", "Sales", "Legal"]
syll = ["ba", "ko", "ri", "mu", "ten", "lo", "sha", "vi", "dor", "pel", "nu", "gra"]
words = sorted({"".join(random.choices(syll, k=3)) for _ in range(500)})
random.shuffle(words)
topic = {t: words[i * 30 : i * 30 + 30] for i, t in enumerate(TEAMS)}
common = words[200:320]


def write_ticket(team):
    n = random.randint(8, 20)
    ws = [random.choice(topic[team]) if random.random() < 0.25 else random.choice(common) for _ in range(n)]
    if random.random() < 0.35:
        other = random.choice(TEAMS)
        ws[0] = random.choice(topic[other])
    # people and systems write tickets in many ways
    return " ".join(w.upper() if (r := random.random()) < 0.25 else w.title() if r < 0.97 else w for w in ws)


corpus = [(write_ticket(t), i) for i, t in enumerate(TEAMS) for _ in range(700)]
random.shuffle(corpus)
counts = Counter(w for text, _ in corpus for w in text.lower().split())
stoi = {w: i + 2 for i, (w, _) in enumerate(counts.most_common(600))}


def encode(text, length=20):
    pieces = text.lower().split() if os.environ.get("MENDED") == "1" else text.split()
    ids = [stoi.get(w, UNK) for w in pieces][:length]
    return ids + [PAD] * (length - len(ids))


ids = torch.tensor([encode(t) for t, _ in corpus])
lab = torch.tensor([c for _, c in corpus])
tr, va = slice(0, 3600), slice(3600, None)


class Router(nn.Module):
    def __init__(self, vocab, d=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, d, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0.1, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(d, len(TEAMS))

    def forward(self, x):
        pad = x == PAD
        h = self.enc(self.emb(x), src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).float()
        return self.out((h * keep).sum(1) / keep.sum(1))


model = Router(len(stoi) + 2)
optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(5):
    order = torch.randperm(3600)
    model.train()
    for k in range(0, 3600, 48):
        b = order[k : k + 48]
        loss = nn.functional.cross_entropy(model(ids[tr][b]), lab[tr][b])
        optim.zero_grad()
        loss.backward()
        optim.step()
        if k % 1200 == 0:
            print(f"epoch {epoch} ticket {k}: loss {loss.item():.3f}")
    model.eval()
    with torch.no_grad():
        acc = (model(ids[va]).argmax(1) == lab[va]).float().mean()
    print(f"epoch {epoch}: validation accuracy {acc:.3f}")
