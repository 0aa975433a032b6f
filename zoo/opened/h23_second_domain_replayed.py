# expect: healthy
# symptom: resembles forgetting or a change of data: at step 620 the loss leaps and comes back
# note: a second dialect is mixed in, half of the first is replayed; both are learned
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(55)
V, T = 12, 8


def dialect(n, hop, seed):
    g = torch.Generator().manual_seed(seed)
    return TensorDataset((torch.randint(0, V, (n, 1), generator=g) + hop * torch.arange(T + 1)) % V)


emb, rnn, out = nn.Embedding(V, 12), nn.RNN(12, 24, batch_first=True), nn.Linear(24, V)
opt = torch.optim.Adam([*emb.parameters(), *rnn.parameters(), *out.parameters()], lr=5e-3)
step = 0
for phase in (dialect(16 * 619, 1, 2), ConcatDataset([dialect(16 * 150, 5, 3), dialect(16 * 150, 1, 4)])):
    for (ids,) in DataLoader(phase, batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(out(rnn(emb(ids[:, 1:-1]))[0]).transpose(1, 2), ids[:, 2:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}")
