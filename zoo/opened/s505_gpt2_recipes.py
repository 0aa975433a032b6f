# expect: sick
# symptom: the loss falls to a plateau that is too high, and the generated text skips every second word
# axis: loss
# cause: labels are shifted by the script although GPT2LMHeadModel shifts them again inside, so that the model learns to predict the token after the next one
# says: (doubl\w*|twice|two|second|again|already|also|both).{0,60}shift|shift\w*.{0,60}(doubl\w*|twice|two|again|second time|already|inside|internal\w*|also|by the model)|predict\w*.{0,40}(two (tokens|positions|steps|ahead)|after (the )?next|(token|t|i|n) ?\+ ?2)|(off.?by.?one|misalign\w*).{0,30}(label|target)s?|(label|target)s?.{0,30}(off.?by.?one|misalign\w*)
# onset_step: 1
# fix: pass the unshifted ids as labels (the model shifts them itself)
# mended: with MENDED=1 input_ids and labels are the same tensor
import os
import random

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SEED = 8
random.seed(SEED)
torch.manual_seed(SEED)

TEMPLATES = [
    "take {n} {unit} of {food} and {verb} it in the {place} for {n} minutes .",
    "{verb} the {food} with {n} {unit} of {food} then leave it in the {place} .",
    "for {n} people you need {n} {unit} of {food} from the {place} .",
    "put the {place} on and {verb} {n} {unit} of {food} until soft .",
]
SLOTS = {
    "n": "one two three four five six seven eight".split(),
    "unit": "grams cups spoons slices pieces".split(),
    "food": "flour butter sugar rice onion garlic tomato pasta cheese beans carrot leek".split(),
    "verb": "mix fry boil roast bake stir".split(),
    "place": "oven pan pot bowl fridge grill".split(),
}


def sentence():
    out = []
    for word in random.choice(TEMPLATES).split():
        out.append(random.choice(SLOTS[word[1:-1]]) if word[0] == "{" else word)
    return out


def text(n_words):
    out = []
    while len(out) < n_words:
        out += sentence()
    return out


words = sorted({w for t in TEMPLATES for w in t.split() if w[0] != "{"} | {w for s in SLOTS.values() for w in s})
stoi = {w: i for i, w in enumerate(words)}
BLOCK = 48
stream = torch.tensor([stoi[w] for w in text(60_000)])
heldout = torch.tensor([stoi[w] for w in text(4_000)])


def batches(source, batch_size, generator):
    while True:
        start = torch.randint(0, len(source) - BLOCK - 1, (batch_size,), generator=generator)
        yield torch.stack([source[s : s + BLOCK + 1] for s in start])


def split(chunk):
    if MENDED:
        return chunk[:, :-1], chunk[:, :-1]
    return chunk[:, :-1], chunk[:, 1:]


@torch.no_grad()
def next_word_accuracy(model):
    model.eval()
    chunk = heldout[: 60 * BLOCK].view(60, BLOCK)
    pred = model(input_ids=chunk).logits[:, :-1].argmax(-1)
    model.train()
    return (pred == chunk[:, 1:]).float().mean().item()


@torch.no_grad()
def sample(model, prompt="take two cups of", n=14):
    model.eval()
    ids = torch.tensor([[stoi[w] for w in prompt.split()]])
    for _ in range(n):
        ids = torch.cat([ids, model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    model.train()
    return " ".join(words[i] for i in ids[0])


def main():
    config = GPT2Config(
        vocab_size=len(words),
        n_positions=64,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=stoi["."],
        eos_token_id=stoi["."],
    )
    model = GPT2LMHeadModel(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=350)
    stream_batches = batches(stream, 16, torch.Generator().manual_seed(SEED))
    for step in range(1, 351):
        input_ids, labels = split(next(stream_batches))
        loss = model(input_ids=input_ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 175 == 0:
            print("  next-word accuracy", round(next_word_accuracy(model), 3))
            print("  >", sample(model), flush=True)


main()
