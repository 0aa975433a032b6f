# expect: sick
# fault: the sinusoidal table [max_len, 1, d] is cut by x.size(0), but the input is [batch, time, d], so every token of a row gets the same code and the code depends on the place in the batch
# onset_step: 1
# says: (?i)(position)
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(5)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=512):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        x = x + self.pe[: x.size(0)]
        return self.dropout(x)


class OrderClassifier(nn.Module):
    """Which of two marker words comes first, and in which half of the sentence."""

    def __init__(self, vocab=30, d_model=32, classes=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.pos_encoder = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, 4, 64, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.decoder = nn.Linear(d_model, classes)
        self.scale = math.sqrt(d_model)

    def forward(self, tokens):
        x = self.embedding(tokens) * self.scale
        x = self.encoder(self.pos_encoder(x))
        return self.decoder(x.mean(dim=1))


def make(n, length=16, vocab=30):
    tokens = torch.randint(2, vocab, (n, length))
    spots = torch.rand(n, length).argsort(dim=1)[:, :2]
    tokens.scatter_(1, spots[:, :1], 0)
    tokens.scatter_(1, spots[:, 1:], 1)
    label = (spots[:, 0] < spots[:, 1]).long() + 2 * (spots.min(dim=1).values >= length // 4).long()
    return TensorDataset(tokens, label)


train, valid = DataLoader(make(1920), 32, shuffle=True), DataLoader(make(320), 32)
model = OrderClassifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(4):
    model.train()
    running = 0.0
    for tokens, label in train:
        optimizer.zero_grad()
        loss = criterion(model(tokens), label)
        loss.backward()
        optimizer.step()
        running += loss.item()
    model.eval()
    with torch.no_grad():
        good = sum((model(t).argmax(1) == l).sum().item() for t, l in valid)
    print(f"epoch {epoch + 1} loss {running / len(train):.4f} valid {good / 320:.3f}")
