# expect: sick
# fault: padding counted in the loss
# onset_step: 0
# says: (?i)(\bpad|ignore_index|filler)
# note: captions of 2 to 6 words are padded to 30 with id 0 and the loss has no ignore_index, so that four fifths of the loss is padding.
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.set_num_threads(1)
PAD, BOS, EOS, VOCAB, MAXLEN = 0, 1, 2, 50, 30


def collate(items):
    feats = torch.stack([f for f, _ in items])
    toks = pad_sequence(
        [c for _, c in items] + [torch.zeros(MAXLEN, dtype=torch.long)], batch_first=True, padding_value=PAD
    )[:-1]
    return feats, toks


class Captions(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(5)
        self.feats = torch.randn(n, 12, generator=g)
        w = torch.randn(12, 6, generator=g)
        codes = (self.feats @ w).argsort(1)
        lens = torch.randint(2, 7, (n,), generator=g)
        self.caps = [
            torch.cat(
                [torch.tensor([BOS]), 3 + codes[i, : lens[i]] * 7 + torch.arange(lens[i].item()), torch.tensor([EOS])]
            )
            for i in range(n)
        ]

    def __len__(self):
        return len(self.caps)

    def __getitem__(self, i):
        return self.feats[i], self.caps[i]


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.init = nn.Linear(12, 48)
        self.emb = nn.Embedding(VOCAB, 24, padding_idx=PAD)
        self.gru = nn.GRU(24, 48, batch_first=True)
        self.out = nn.Linear(48, VOCAB)

    def forward(self, f, toks):
        h0 = torch.tanh(self.init(f))[None]
        return self.out(self.gru(self.emb(toks), h0)[0])


torch.manual_seed(0)
loader = torch.utils.data.DataLoader(Captions(1200), batch_size=24, shuffle=True, collate_fn=collate)
model = Captioner()
criterion = nn.CrossEntropyLoss()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(3):
    for i, (f, toks) in enumerate(loader):
        logits = model(f, toks[:, :-1])
        loss = criterion(logits.reshape(-1, VOCAB), toks[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if i % 10 == 0:
            print(f"epoch {epoch} it {i} loss {loss.item():.4f}")
f, toks = next(iter(loader))
print(
    "final real-token loss",
    nn.functional.cross_entropy(
        model(f, toks[:, :-1]).reshape(-1, VOCAB), toks[:, 1:].reshape(-1), ignore_index=PAD
    ).item(),
)
