# expect: sick
# symptom: the loss falls but levels out too high, and next-event accuracy is near chance after training
# axis: data
# cause: the labels are shifted in the dataset and once more inside the model, so it learns to predict token t+2
# says: (shift|offset).{0,70}(twice|double|again|already|two|once more|extra)|(twice|double).{0,20}shift|t ?\+ ?2
# onset_step: 0
# fix: pass the unshifted input ids as labels (the model shifts them)
# mended: the script applies that change if the environment has MENDED=1
"""Small GPT-2 over machine event codes; used later to flag unlikely events."""

import os

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(2)

N_CODES, BLOCK = 40, 32


def event_log(length, seed):
    """Every code has one usual follower that depends on the operating mode, plus some noise."""
    g = np.random.default_rng(seed)
    rules = np.random.default_rng(77)
    follow = np.stack([rules.permutation(N_CODES) for _ in range(2)])
    out, cur, mode = np.zeros(length, np.int64), 0, 0
    for i in range(length):
        out[i] = cur
        if g.random() < 0.01:
            mode = 1 - mode
        cur = follow[mode, cur] if g.random() < 0.8 else g.integers(N_CODES)
    return out


class Blocks(Dataset):
    def __init__(self, stream):
        self.stream = torch.from_numpy(stream)

    def __len__(self):
        return (len(self.stream) - 1) // BLOCK

    def __getitem__(self, i):
        chunk = self.stream[i * BLOCK : i * BLOCK + BLOCK + 1]
        return {"input_ids": chunk[:-1], "labels": chunk[:-1] if MENDED else chunk[1:]}


def build_model():
    config = GPT2Config(
        vocab_size=N_CODES,
        n_positions=BLOCK,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


@torch.no_grad()
def next_event_accuracy(model, stream):
    model.eval()
    ids = torch.from_numpy(stream[: (len(stream) // BLOCK) * BLOCK]).view(-1, BLOCK)
    guess = model(input_ids=ids).logits[:, :-1].argmax(-1)
    model.train()
    return (guess == ids[:, 1:])[:, 8:].float().mean().item()


def main():
    train_stream = event_log(60000, seed=1)
    val_stream = event_log(3200, seed=2)
    loader = DataLoader(Blocks(train_stream), batch_size=24, shuffle=True, drop_last=True)
    model = build_model()
    steps = 260
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    warm = 30
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warm) * max(0.05, 1 - s / steps))
    step = 0
    while step < steps:
        for batch in loader:
            out = model(**batch)
            opt.zero_grad()
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % 25 == 0:
                print(f"step {step:4d} loss {out.loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
            step += 1
            if step >= steps:
                break
    print(f"final loss {out.loss.item():.4f} next-event accuracy {next_event_accuracy(model, val_stream):.3f}")


if __name__ == "__main__":
    main()
