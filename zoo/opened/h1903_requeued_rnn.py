# expect: healthy
# symptom: the model and the optimizer are rebuilt every 50 steps from a checkpoint, hidden state is detached between chunks (resembles a faulty resume or stale parameters in the optimizer)
# axis: harness
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import copy
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class State:
    step: int = 0
    cursor: int = 0
    blobs: dict = field(default_factory=dict)
    memory: tuple = None


def make_text(n, rows, seed):
    """Nested brackets of three kinds with letters between them."""
    g = torch.Generator().manual_seed(seed)
    out = []
    for _ in range(rows):
        line, stack = [], []
        roll = torch.rand(n, generator=g).tolist()
        pick = torch.randint(3, (n,), generator=g).tolist()
        for u, k in zip(roll, pick):
            if stack and u < 0.35:
                line.append(3 + stack.pop())
            elif len(stack) < 4 and u < 0.7:
                stack.append(k)
                line.append(k)
            else:
                line.append(6 + (stack[-1] if stack else 3))
        out.append(line)
    return torch.tensor(out)


class CharRNN(nn.Module):
    def __init__(self, vocab=10, dim=24, hidden=80):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, hidden, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, x, memory):
        h, memory = self.lstm(self.emb(x), memory)
        return self.head(h), memory


def build():
    model = CharRNN()
    opt = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.95)
    sched = torch.optim.lr_scheduler.StepLR(opt, 150, gamma=0.5)
    return model, opt, sched


def work(state, text, chunk, slot):
    torch.manual_seed(0)
    parts = dict(zip(("model", "opt", "sched"), build()))
    for name, blob in state.blobs.items():
        parts[name].load_state_dict(blob)
    model, opt, sched = parts["model"], parts["opt"], parts["sched"]
    memory = state.memory
    for _ in range(slot):
        if state.cursor + chunk + 1 > text.shape[1]:
            state.cursor, memory = 0, None
        x = text[:, state.cursor : state.cursor + chunk]
        y = text[:, state.cursor + 1 : state.cursor + chunk + 1]
        if memory is not None:
            memory = tuple(m.detach() for m in memory)
        logits, memory = model(x, memory)
        loss = F.cross_entropy(logits.transpose(1, 2), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        state.cursor += chunk
        if state.step % 20 == 0:
            print(f"step {state.step} loss {loss.item():.4f}")
        state.step += 1
    state.memory = tuple(m.detach().clone() for m in memory)
    state.blobs = {k: copy.deepcopy(v.state_dict()) for k, v in parts.items()}
    return model


def main():
    text = make_text(6000, 32, seed=3)
    held = make_text(400, 32, seed=4)
    state = State()
    while state.step < 400:
        model = work(state, text, chunk=20, slot=50)
    with torch.no_grad():
        logits, _ = model(held[:, :-1], None)
        print(f"held-out loss {F.cross_entropy(logits.transpose(1, 2), held[:, 1:]).item():.4f}")


if __name__ == "__main__":
    main()
