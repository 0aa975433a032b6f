# expect: healthy
# symptom: rows are changed on their way, which looks like a stored row that is overwritten
# axis: none
# mended: none
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_TOK, EOS, PAD, MASK = 12, 12, 13, 14


class Sequences(Dataset):
    def __init__(self, n):
        r = random.Random(2)
        self.seqs = []
        for _ in range(n):
            a = r.randrange(N_TOK)
            self.seqs.append([(a + 2 * k) % N_TOK for k in range(r.randint(5, 9))])

    def __getitem__(self, i):
        return self.seqs[i]

    def __len__(self):
        return len(self.seqs)


def collate(batch):
    batch = [[t for t in s] for s in batch]
    longest = max(len(s) for s in batch) + 1
    for s in batch:
        s.append(EOS)
        s.extend([PAD] * (longest - len(s)))
    clean = torch.tensor(batch)
    pick = (torch.rand(clean.shape) < 0.2) & (clean != PAD)
    noisy = torch.where(pick, torch.full_like(clean, MASK), clean)
    target = torch.where(pick, clean, torch.full_like(clean, -100))
    return noisy, target


class Tagger(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.e = nn.Embedding(15, d)
        self.g = nn.GRU(d, d // 2, batch_first=True, bidirectional=True)
        self.o = nn.Linear(d, 13)

    def forward(self, x):
        return self.o(self.g(self.e(x))[0])


torch.manual_seed(4)
loader = DataLoader(Sequences(160), batch_size=20, shuffle=True, collate_fn=collate)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
step = 0
for epoch in range(12):
    for noisy, target in loader:
        loss = nn.functional.cross_entropy(model(noisy).reshape(-1, 13), target.reshape(-1), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 16 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
        step += 1
print(f"final loss {loss.item():.4f}")
