# EXPECT: sick
# FAULT: padding counted in the loss
# ONSET: 1
# SAYS: pad|ignore_index
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.set_num_threads(1)
torch.manual_seed(71)
PAD = 0
N_TAGS = 9
N_WORDS = 80
tag_of = torch.randint(1, N_TAGS, (N_WORDS,))


def make_sentence():
    # most are short, a few are very long
    n = int(torch.distributions.Exponential(1 / 6.0).sample().clamp(3, 60))
    w = torch.randint(1, N_WORDS, (n,))
    tags = tag_of[w].clone()
    # verbs (3) after determiner (1) become nouns (2)
    for i in range(1, n):
        if tags[i] == 3 and tags[i - 1] == 1:
            tags[i] = 2
    return w, tags


def collate(items):
    ws, ts = zip(*items)
    return pad_sequence(ws, batch_first=True, padding_value=PAD), pad_sequence(ts, batch_first=True, padding_value=PAD)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(N_WORDS, 24, padding_idx=PAD)
        self.lstm = nn.LSTM(24, 32, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(64, N_TAGS)

    def forward(self, w):
        return self.fc(self.lstm(self.emb(w))[0])


data = [make_sentence() for _ in range(1600)]
loader = DataLoader(data, batch_size=32, shuffle=True, collate_fn=collate)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()
step = 0
for epoch in range(2):
    for words, tags in loader:
        scores = model(words)
        loss = loss_fn(scores.view(-1, N_TAGS), tags.view(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
