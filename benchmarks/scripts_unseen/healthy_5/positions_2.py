# expect: healthy
# fault: none, tokens are flattened to [batch*time, d] before the table is added, and arange over size(0) modulo the length gives each token's place in its own row
# onset_step: none
# says: (?!)
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(50)

LENGTH, VOCAB = 18, 12


class FlatEmbed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.word = nn.Embedding(VOCAB, dim)
        self.place = nn.Embedding(LENGTH, dim)

    def forward(self, flat):
        x = self.word(flat)
        where = torch.arange(x.size(0)) % LENGTH
        return x + self.place(where)


class Inverter(nn.Module):
    """Writes the input sequence backwards, one token per place."""

    def __init__(self, dim=36, heads=3):
        super().__init__()
        self.embed = FlatEmbed(dim)
        layer = nn.TransformerEncoderLayer(
            dim, heads, dim_feedforward=72, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.query = nn.Parameter(torch.randn(LENGTH, dim) * 0.1)
        self.cross = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        b, t = tokens.shape
        x = self.embed(tokens.reshape(-1)).view(b, t, -1)
        memory = self.encoder(x)
        q = self.query.expand(b, -1, -1)
        y, _ = self.cross(q, memory, memory, need_weights=False)
        return self.out(y + q)


def loaders():
    seq = torch.randint(0, VOCAB, (2200, LENGTH))
    ds = TensorDataset(seq, seq.flip(1))
    fit, dev = torch.utils.data.random_split(ds, [2000, 200])
    return DataLoader(fit, batch_size=50, shuffle=True, drop_last=True), DataLoader(dev, batch_size=50)


def main():
    fit, dev = loaders()
    model = Inverter()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    lossf = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(7):
        for x, y in fit:
            loss = lossf(model(x).flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 40 == 0:
                print("step", step, "loss", round(loss.item(), 4))
    model.eval()
    with torch.no_grad():
        acc = torch.cat([(model(x).argmax(-1) == y).float() for x, y in dev]).mean().item()
    print("dev token accuracy", round(acc, 4))


if __name__ == "__main__":
    main()
