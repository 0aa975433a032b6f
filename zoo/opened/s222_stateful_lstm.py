# expect: sick
# symptom: the first step is fine, the second ends with a RuntimeError from backward (a saved tensor was freed or modified in place)
# axis: harness
# cause: the LSTM state is carried from chunk to chunk without detach, so the second backward runs into the graph of the first chunk, whose weights have been updated
# says: (?i)(state|hidden|chunk|carr)\w*.{0,80}(detach|graph|earlier|previous)|detach|second time|retain_graph|(graph|backward).{0,60}(previous|earlier|freed|last) |modified by an in.?place|truncat
# onset_step: 2
# fix: detach the state before the next chunk
# mended: detaches the state
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(222)
FIX = os.environ.get("MENDED") == "1"
V, B, CHUNK = 12, 16, 20
gen = torch.Generator().manual_seed(23)
start, stride = torch.randint(0, V, (B, 1), generator=gen), torch.randint(1, 4, (B, 1), generator=gen)
stream = (start + stride * torch.arange(CHUNK * 200 + 1)) % V
noise = torch.rand(stream.shape, generator=gen) < 0.05
stream[noise] = torch.randint(0, V, (int(noise.sum()),), generator=gen)

tok, lstm, head = nn.Embedding(V, 24), nn.LSTM(24, 48, batch_first=True), nn.Linear(48, V)
params = [*tok.parameters(), *lstm.parameters(), *head.parameters()]
opt = torch.optim.Adam(params, lr=5e-3)
state = (torch.zeros(1, B, 48), torch.zeros(1, B, 48))
for step in range(1, 201):
    at = (step - 1) * CHUNK
    x, y = stream[:, at : at + CHUNK], stream[:, at + 1 : at + CHUNK + 1]
    out, state = lstm(tok(x), state)
    if FIX:
        state = tuple(s.detach() for s in state)
    loss = F.cross_entropy(head(out).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward(retain_graph=not FIX)
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    if step % 20 == 0 or step < 3:
        print(f"step {step} loss {loss.item():.4f}")
