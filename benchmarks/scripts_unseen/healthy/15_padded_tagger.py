# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader

torch.set_num_threads(1)
torch.manual_seed(65)
W, K = 70, 8
gold = torch.randint(0, K, (W,))


def sent():
    n = int(torch.randint(3, 40, (1,)))
    w = torch.randint(1, W, (n,))
    return w, gold[w]


def collate(b):
    w, t = zip(*b)
    lens = torch.tensor([len(x) for x in w])
    return pad_sequence(w, True, 0), pad_sequence(t, True, -100), lens


class BiLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(W, 20, padding_idx=0)
        self.r = nn.LSTM(20, 24, bidirectional=True, batch_first=True)
        self.o = nn.Linear(48, K)

    def forward(self, w, lens):
        z = pack_padded_sequence(self.e(w), lens, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.r(z)[0], batch_first=True)
        return self.o(h)


dl = DataLoader([sent() for _ in range(1600)], batch_size=20, shuffle=True, collate_fn=collate)
m = BiLSTM()
opt = torch.optim.Adam(m.parameters(), lr=4e-3)
ce = nn.CrossEntropyLoss()  # ignores -100
for step, (w, t, lens) in enumerate(dl):
    loss = ce(m(w, lens).flatten(0, 1), t.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print("step", step, "loss", "%.4f" % loss.item())
