# expect: sick
# symptom: at each restart of the job the loss jumps up severalfold and needs some tens of steps to come back, so each slot is partly wasted
# axis: harness
# cause: the checkpoint holds only the model and the step, so after each restart Adagrad begins with empty accumulators (optimizer state is not saved and restored)
# says: (optim\w*|adagrad|adam\w*)('s)?\W+(\w+\W+){0,3}(state|moment|buffer|statistic|accumulator|histor)\w*|(accumulators?|moments|moment buffers?|exp_avg\w*|state_?sum)\W.{0,60}(lost|lose|empty|reset|fresh|zero|cold|missing|drop\w*|not (saved|restored|loaded))|(lost|lose|empty|reset|fresh|cold|missing|drop\w*)\W.{0,40}(accumulators?|moments|optimi[sz]er.?state)|(resum\w*|restart\w*|checkpoint\w*)\W.{0,60}(optim\w*|moments?\b|accumulators?)|(optim\w*)\W.{0,60}(not|n't|never|without|lost|reset|re.?creat\w*|re.?buil\w*|fresh|cold|new)\W.{0,40}(resum|restart|checkpoint|saved|restor|load)
# onset_step: 101
# fix: save optimizer.state_dict() in the checkpoint and load it on restart
# mended: with MENDED=1 the checkpoint also carries the optimizer state, which is loaded on restart
import os
import random
import tempfile

import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SEGMENT = 100  # steps that fit into one slot of the queue
TOTAL = 600
SEQ, BATCH = 40, 16

WORDS = (
    "harbour lantern copper meadow winter sailor marble orchard thunder whistle velvet "
    "garden pepper silver canyon ribbon falcon button island summer"
).split()


def corpus(n=9000, seed=4):
    rng = random.Random(seed)
    follow = {w: rng.sample(WORDS, 3) for w in WORDS}
    word, out = WORDS[0], []
    for _ in range(n):
        out.append(word)
        word = rng.choices(follow[word], weights=(6, 3, 1))[0]
    return " ".join(out)


TEXT = corpus()
CHARS = sorted(set(TEXT))
IDS = torch.tensor([CHARS.index(c) for c in TEXT])
TRAIN, VALID = IDS[:-4000], IDS[-4000:]


class CharLSTM(nn.Module):
    def __init__(self, emb=32, hidden=128):
        super().__init__()
        self.emb = nn.Embedding(len(CHARS), emb)
        self.rnn = nn.LSTM(emb, hidden, num_layers=1, batch_first=True)
        self.out = nn.Linear(hidden, len(CHARS))

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.out(h)


def get_batch(data, gen):
    start = torch.randint(0, len(data) - SEQ - 1, (BATCH,), generator=gen)
    block = torch.stack([data[s : s + SEQ + 1] for s in start.tolist()])
    return block[:, :-1], block[:, 1:]


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def validate(model):
    n = (len(VALID) - 1) // SEQ * SEQ
    return loss_of(model, VALID[:n].view(-1, SEQ), VALID[1 : n + 1].view(-1, SEQ)).item()


def save(path, model, optimizer, step):
    ckpt = {"model": model.state_dict(), "step": step}
    if MENDED:
        ckpt["optimizer"] = optimizer.state_dict()
    torch.save(ckpt, path)


def run_slot(path):
    """One slot on the cluster: pick up the last checkpoint, train, write a new one."""
    model = CharLSTM()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.07)
    step = 0
    if os.path.exists(path):
        ckpt = torch.load(path)
        model.load_state_dict(ckpt["model"])
        step = ckpt["step"]
        if "optimizer" in ckpt:
            optimizer.load_state_dict(ckpt["optimizer"])
        print(f"continuing from step {step}, validation loss {validate(model):.4f}")
    gen = torch.Generator().manual_seed(1000 + step)
    end = step + SEGMENT
    recent = []
    while step < end:
        x, y = get_batch(TRAIN, gen)
        loss = loss_of(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        recent.append(loss.item())
        if step % 50 == 0 or step % SEGMENT in (2, 5, 10, 20):
            print(f"step {step:4d} loss {recent[-1]:.4f}  (worst of the last few {max(recent):.4f})")
            recent = []
    save(path, model, optimizer, step)
    return step, validate(model)


def main():
    torch.manual_seed(8)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        step = 0
        while step < TOTAL:
            step, val = run_slot(path)
            print(f"== slot done at step {step}, validation loss {val:.4f}")


if __name__ == "__main__":
    main()
