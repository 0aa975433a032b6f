"""Trains LSTM and GRU on packed sequences of unsorted lengths. Bare: a digest, status 0."""

import hashlib

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

torch.set_num_threads(1)


def digest(*things):
    """Print one hash of every weight, state and loss, bit for bit."""
    sha = hashlib.sha256()

    def eat(thing):
        if isinstance(thing, torch.Tensor):
            thing = thing.detach().cpu()
            thing = thing.to_dense() if thing.is_sparse else thing
            sha.update(f"{thing.dtype}{tuple(thing.shape)}".encode())
            thing = torch.view_as_real(thing) if thing.is_complex() else thing
            sha.update(bytes(thing.contiguous().reshape(-1).view(torch.uint8).tolist()))
        elif isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
            eat(thing.state_dict())
        elif isinstance(thing, dict):
            for key, value in thing.items():
                sha.update(repr(key).encode() if isinstance(key, (str, int, float)) else b"key")
                eat(value)
        elif isinstance(thing, (list, tuple)):
            for item in thing:
                eat(item)
        else:
            sha.update((thing.hex() if isinstance(thing, float) else repr(thing)).encode())

    for thing in things:
        eat(thing)
    print("digest", sha.hexdigest())


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(3, 5, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.gru = torch.nn.GRU(10, 4, batch_first=True)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, rows, lengths):
        packed = pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        padded, lengths = pad_packed_sequence(out, batch_first=True)
        parts = [row[:length] for row, length in zip(padded, lengths, strict=True)]
        _, last = self.gru(pack_sequence(parts, enforce_sorted=False))
        return self.head(last[0])


torch.manual_seed(0)
model = Reader()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for i in range(15):
    lengths = torch.tensor([3 + i % 3, 7, 1, 5])
    rows = torch.randn(4, 7, 3)
    loss = torch.nn.functional.cross_entropy(model(rows, lengths), lengths % 2)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
    opt.step()
    losses.append(loss.item())
digest(model, opt, losses)
