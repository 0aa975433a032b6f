# expect: healthy
# fault: none, the sentence GRU takes sentences as its batch, and the document GRU takes the sentence vectors of one document as an unbatched sequence, so running over that axis is meant
# onset_step: none
# says: (?!)
import torch
from torch import nn

torch.set_num_threads(1)
gen = torch.Generator().manual_seed(42)
torch.manual_seed(42)

WORDS, SENTS, FEATS, KINDS = 7, 9, 10, 3


def document():
    """Topic of the document is the topic of whichever of its marked sentences comes last."""
    doc = torch.randn(SENTS, WORDS, FEATS, generator=gen) * 0.4
    marked = torch.randperm(SENTS, generator=gen)[:3].sort().values
    label = 0
    for s in marked.tolist():
        label = int(torch.randint(0, KINDS, (1,), generator=gen))
        w = int(torch.randint(0, WORDS, (1,), generator=gen))
        doc[s, w, label] += 3.0
    return doc, torch.tensor(label)


class DocReader(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.word_rnn = nn.GRU(FEATS, hidden, batch_first=True, bidirectional=True)
        self.sent_rnn = nn.GRU(2 * hidden, hidden)
        self.out = nn.Linear(hidden, KINDS)

    def forward(self, doc):
        states, _ = self.word_rnn(doc)
        vectors = states.max(dim=1).values
        _, last = self.sent_rnn(vectors)
        return self.out(last.squeeze(0))


docs = [document() for _ in range(360)]
train, test = docs[:300], docs[300:]
reader = DocReader()
opt = torch.optim.Adam(reader.parameters(), lr=4e-3)
ce = nn.CrossEntropyLoss()
ACCUM = 5

step, window = 0, []
for epoch in range(3):
    order = torch.randperm(len(train), generator=gen).tolist()
    for start in range(0, len(order), ACCUM):
        group = order[start : start + ACCUM]
        opt.zero_grad()
        value = 0.0
        for j in group:
            doc, label = train[j]
            loss = ce(reader(doc), label) / len(group)
            loss.backward()
            value += loss.item()
        opt.step()
        step += 1
        window.append(value)
        if step % 30 == 0:
            print(f"step {step} mean loss {sum(window) / len(window):.4f}")
            window.clear()

reader.eval()
with torch.no_grad():
    good = sum(int(reader(d).argmax() == l) for d, l in test)
print(f"test accuracy {good / len(test):.3f}")
