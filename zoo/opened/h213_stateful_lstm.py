# expect: healthy
# symptom: resembles a state that leaks: the LSTM's state goes from chunk to chunk through the whole stream, and every 50 steps, when the streams change, the loss rises for a few steps
# note: the state is detached between chunks, new streams are new to the carried state; each rise is gone soon and the level falls
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(243)
V, B, CHUNK = 12, 16, 16
gen = torch.Generator().manual_seed(43)


def streams():
    start, stride = torch.randint(0, V, (B, 1), generator=gen), torch.randint(1, 5, (B, 1), generator=gen)
    s = (start + stride * torch.arange(CHUNK * 50 + 1)) % V
    noise = torch.rand(s.shape, generator=gen) < 0.1
    return torch.where(noise, torch.randint(0, V, s.shape, generator=gen), s)


tok, lstm, head = nn.Embedding(V, 24), nn.LSTM(24, 48, batch_first=True), nn.Linear(48, V)
params = [*tok.parameters(), *lstm.parameters(), *head.parameters()]
opt = torch.optim.Adam(params, lr=5e-3)
state = (torch.zeros(1, B, 48), torch.zeros(1, B, 48))
for step in range(1, 251):
    if step % 50 == 1:
        stream = streams()
    at = (step - 1) % 50 * CHUNK
    x, y = stream[:, at : at + CHUNK], stream[:, at + 1 : at + CHUNK + 1]
    out, state = lstm(tok(x), tuple(s.detach() for s in state))
    loss = F.cross_entropy(head(out).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    if step % 10 == 0 or step % 50 in (1, 2):
        print(f"step {step} loss {loss.item():.4f}")
