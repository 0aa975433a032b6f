# expect: sick
# symptom: from the second phase on the loss is a flat line, nothing is learned any more (gradients are there)
# axis: optimizer
# cause: the best checkpoint is loaded into a newly built model while the optimizer still holds the parameters of the old one, so step() changes weights that nobody uses
# says: (optim\w*|step\(\)|adam\w*)[^.]{0,90}(old|stale|previous|former|original|first|another|different|other|replaced|discarded|no longer)[^.]{0,40}|(old|stale|previous|former|orphan\w*|replaced|discarded)[^.]{0,40}(param|model|weight|tensor)[^.]{0,60}optim\w*|model[^.]{0,50}(replaced|rebuilt|re.?created|re.?built|re.?instantiated|re.?assigned|swapped|reloaded|new object|new instance)|(param\w*|weights?|live model|current model)[^.]{0,50}(not in|missing from|outside|absent from|unknown to|not (held|owned|covered|registered)|lacks?)[^.]{0,25}optim\w*|optim\w*[^.]{0,40}(does not|doesn.t|lacks|misses|without|not)[^.]{0,40}(param|model|weight)
# onset_step: 601
# fix: load the checkpoint into the existing model (or build the optimizer anew after the reload)
# mended: with MENDED=1 the state dict is loaded into the existing self.model
import copy
import os

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(40)

NOTES, BARS = 36, 32


class Melodies:
    """Melodies walk over a scale; each style has its own table of likely jumps."""

    def __init__(self, seed):
        r = np.random.default_rng(seed)
        self.rng = r
        self.table = np.stack([r.permutation(NOTES) for _ in range(3)])

    def batch(self, size):
        out = np.zeros((size, BARS + 1), dtype=np.int64)
        out[:, 0] = self.rng.integers(0, NOTES, size)
        for t in range(1, BARS + 1):
            which = self.rng.choice(3, size=size, p=[0.8, 0.12, 0.08])
            out[:, t] = self.table[which, out[:, t - 1]]
        out = torch.from_numpy(out)
        return out[:, :-1], out[:, 1:]


class MelodyGRU(nn.Module):
    def __init__(self, dim=48, hidden=96):
        super().__init__()
        self.note = nn.Embedding(NOTES, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(hidden, NOTES)

    def forward(self, x, state=None):
        y, state = self.gru(self.note(x), state)
        return self.out(self.drop(y)), state


class Trainer:
    def __init__(self, lr=2e-3):
        self.model = MelodyGRU()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.best, self.best_state = float("inf"), None
        self.step = 0

    def loss(self, x, y):
        logits, _ = self.model(x)
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())

    def validate(self, val):
        self.model.eval()
        with torch.no_grad():
            value = self.loss(*val).item()
        self.model.train()
        if value < self.best:
            self.best, self.best_state = value, copy.deepcopy(self.model.state_dict())
        return value

    def restore_best(self):
        if not MENDED:
            self.model = MelodyGRU()
        self.model.load_state_dict(self.best_state)
        self.model.train()
        print(f"restored the weights with val loss {self.best:.4f}", flush=True)

    def phase(self, name, source, steps, val):
        for _ in range(steps):
            x, y = source.batch(24)
            loss = self.loss(x, y)
            self.model.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.step += 1
            if self.step % 25 == 0:
                print(f"{name} step {self.step} loss {loss.item():.4f} grad norm {norm:.3f}", flush=True)
            if self.step % 50 == 0:
                print(f"{name} val {self.validate(val):.4f}", flush=True)


def main():
    folk, jazz = Melodies(seed=1), Melodies(seed=2)
    folk_val, jazz_val = folk.batch(128), jazz.batch(128)
    trainer = Trainer()
    trainer.phase("folk", folk, 600, folk_val)
    trainer.restore_best()
    trainer.best = float("inf")
    trainer.phase("jazz", jazz, 200, jazz_val)
    print(f"final jazz val {trainer.validate(jazz_val):.4f}")


if __name__ == "__main__":
    main()
