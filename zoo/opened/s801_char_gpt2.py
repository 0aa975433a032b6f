# expect: sick
# symptom: the loss falls nicely, but samples are gibberish and the next-character accuracy stays very low
# axis: data
# cause: the dataset already shifts the targets by one and the GPT2LMHeadModel shifts its labels again, so the model is trained to predict the token two positions ahead
# says: (double|twice|two|again|already|both|also|second).{0,60}shift|shift.{0,60}(twice|double|two|again|already|both|also|second)|label.{0,12}shift|shift.{0,12}(label|target)|(two|2) (tokens?|positions?|characters?|steps?) (ahead|later|off)|token ?\+ ?2
# onset_step: 1
# fix: pass the input ids themselves as labels and let the model do the shift
# mended: with MENDED=1 the dataset returns the inputs as labels
import os
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
random.seed(11)
np.random.seed(11)
torch.manual_seed(11)

MENDED = os.environ.get("MENDED") == "1"

NAMES = ["anna", "boris", "carla", "dmitri", "elena", "farid", "greta", "hiro"]
VERBS = ["finds", "paints", "sells", "repairs", "admires", "forgets"]
ADJS = ["old", "yellow", "heavy", "broken", "tiny", "quiet"]
NOUNS = ["bicycle", "lantern", "guitar", "ladder", "mirror", "kettle", "umbrella"]
PLACES = ["garden", "station", "harbour", "library", "market"]


def sentence(rng):
    s = f"{rng.choice(NAMES)} {rng.choice(VERBS)} the {rng.choice(ADJS)} {rng.choice(NOUNS)}"
    if rng.random() < 0.5:
        s += f" in the {rng.choice(PLACES)}"
    return s + ". "


def corpus(n, seed):
    rng = random.Random(seed)
    return "".join(sentence(rng) for _ in range(n))


TRAIN = corpus(4000, 1)
VALID = corpus(300, 2)
CHARS = sorted(set(TRAIN))
STOI = {c: i for i, c in enumerate(CHARS)}


class CharChunks(Dataset):
    def __init__(self, text, block):
        self.ids = torch.tensor([STOI[c] for c in text])
        self.block = block

    def __len__(self):
        return (len(self.ids) - 1) // self.block

    def __getitem__(self, i):
        a = i * self.block
        chunk = self.ids[a : a + self.block + 1]
        x, y = chunk[:-1], chunk[1:]
        if MENDED:
            y = x
        return {"input_ids": x, "labels": y}


@torch.no_grad()
def next_char_accuracy(model, text, block=64):
    model.eval()
    ids = torch.tensor([STOI[c] for c in text])
    n = len(ids) // block
    x = ids[: n * block].view(n, block)
    pred = model(input_ids=x).logits[:, :-1].argmax(-1)
    model.train()
    return (pred == x[:, 1:]).float().mean().item()


@torch.no_grad()
def sample(model, prompt, n=60):
    model.eval()
    ids = torch.tensor([[STOI[c] for c in prompt]])
    for _ in range(n):
        logits = model(input_ids=ids[:, -64:]).logits[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
    model.train()
    return "".join(CHARS[i] for i in ids[0].tolist())


def main():
    config = GPT2Config(
        vocab_size=len(CHARS),
        n_positions=64,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config)
    loader = DataLoader(CharChunks(TRAIN, 64), batch_size=16, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    max_steps = 300
    step = 0
    while step < max_steps:
        for batch in loader:
            step += 1
            out = model(**batch)
            optimizer.zero_grad()
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 40 == 0:
                acc = next_char_accuracy(model, VALID)
                print(f"step {step:4d}  loss {out.loss.item():.4f}  valid next-char acc {acc:.3f}")
            if step >= max_steps:
                break
    print("sample:", sample(model, "anna finds the "))


if __name__ == "__main__":
    main()
