# EXPECT: sick
# FAULT: encoder runs under no_grad in training
# ONSET: 1
# SAYS: no_grad|no gradient|gradient|detach|encoder|not trained
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(2024)
VOCAB = 60


def toy_reviews(n, T=24):
    """Label = which of two trigger words appears last."""
    ids = torch.randint(2, VOCAB, (n, T))
    y = torch.randint(0, 2, (n,))
    pos = torch.randint(T // 2, T, (n,))
    ids[torch.arange(n), pos] = y
    early = torch.randint(0, T // 2, (n,))
    ids[torch.arange(n), early] = torch.randint(0, 2, (n,))
    return ids, y


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 32)
        self.gru = nn.GRU(32, 48, batch_first=True)

    def forward(self, ids):
        out, _ = self.gru(self.emb(ids))
        return out.max(dim=1).values


class SentimentModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.classifier = nn.Linear(48, 2)

    @torch.no_grad()
    def encode(self, ids):
        return self.encoder(ids)

    def forward(self, ids):
        return self.classifier(self.encode(ids))


net = SentimentModel()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
lossf = nn.CrossEntropyLoss()
hits = 0
for step in range(1, 141):
    ids, y = toy_reviews(64)
    logits = net(ids)
    loss = lossf(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    hits += (logits.argmax(1) == y).sum().item()
    if step % 20 == 0:
        print(f"{step}: loss {loss.item():.4f} acc {hits / (64 * 20):.3f}")
        hits = 0
