# expect: sick
# fault: sentences are padded at the end to the batch's longest and the classifier reads the GRU state at the last position, which is padding for most rows
# onset_step: 1
# says: (?i)(padding|padded|last place|last step)
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, DataLoader

torch.set_num_threads(1)
torch.manual_seed(17)
VOCAB = 60


class Reviews(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            length = int(torch.randint(4, 45, (1,), generator=g))
            words = torch.randint(6, VOCAB, (length,), generator=g)
            label = int(torch.randint(0, 2, (1,), generator=g))
            spots = torch.randint(0, length, (2,), generator=g)
            words[spots] = 1 + label * 2 + torch.randint(0, 2, (2,), generator=g)
            self.rows.append((words, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        return self.rows[k]


def collate(rows):
    words = pad_sequence([w for w, _ in rows], batch_first=True, padding_value=0)
    labels = torch.tensor([l for _, l in rows])
    return words, labels


class Sentiment(nn.Module):
    def __init__(self, dim=32, hidden=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 2)

    def forward(self, words):
        states, _ = self.gru(self.emb(words))
        return self.fc(states[:, -1, :])


def main():
    train = DataLoader(Reviews(1600, 1), 32, shuffle=True, collate_fn=collate)
    valid = DataLoader(Reviews(300, 2), 50, collate_fn=collate)
    model = Sentiment()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    lossf = nn.CrossEntropyLoss()
    for epoch in range(5):
        tot = 0.0
        for words, labels in train:
            opt.zero_grad()
            loss = lossf(model(words), labels)
            loss.backward()
            opt.step()
            tot += loss.item()
        with torch.no_grad():
            ok = sum((model(w).argmax(1) == l).sum().item() for w, l in valid)
        print(f"epoch {epoch} loss {tot / len(train):.4f} valid acc {ok / 300:.3f}")


main()
