# expect: sick
# symptom: the loss is NaN after the first few updates, at every learning rate tried
# axis: precision
# cause: weights and Adam state are float16, so v underflows and eps 1e-8 rounds to 0: the Adam step divides by 0
# says: (half|fp16|float ?16|16.bit).*(adam|optimi[sz]er|eps|weights|param|underflow)|eps.*(fp16|half|float ?16)
# onset_step: 1
# fix: keep the weights (and hence the Adam state) in float32, with autocast for speed if wanted
# mended: the script applies that change if the environment has MENDED=1
"""Intent classifier for a support bot: small BERT from config, word-level tokenizer, plain loop."""

import os
import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_cosine_schedule_with_warmup

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = random.Random(11)

INTENTS = {
    "refund": [
        "i want my money back for {o}",
        "please refund {o}",
        "can you return the payment of {o}",
        "{o} came broken so give me the money back",
    ],
    "tracking": ["where is {o}", "when does {o} arrive", "the courier lost {o} i think", "track {o} for me"],
    "cancel": ["please cancel {o}", "i do not need {o} anymore stop it", "drop {o} before it ships"],
    "address": ["send {o} to another street", "i moved so change the place for {o}", "ship {o} to my office"],
    "invoice": ["i need a bill for {o}", "send me the invoice of {o}", "where do i find the receipt for {o}"],
    "thanks": ["thank you for {o}", "great service with {o}", "i love {o} well done"],
}
ITEMS = ["the lamp", "my order", "the blue chair", "order seven", "that phone", "my parcel", "the shoes", "the box"]
FILL = ["hello", "hi there", "ok so", "listen", "good morning", "", "", ""]
TAIL = ["thanks", "asap", "please", "today", "", "", ""]


def make_rows(n):
    names = list(INTENTS)
    rows = []
    for _ in range(n):
        y = rng.randrange(len(names))
        s = rng.choice(INTENTS[names[y]]).format(o=rng.choice(ITEMS))
        words = f"{rng.choice(FILL)} {s} {rng.choice(TAIL)}".split()
        words = [w for w in words if rng.random() > 0.08] or ["ok"]
        rows.append((" ".join(words), y))
    return rows


train_rows, test_rows = make_rows(3000), make_rows(400)
tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
tok.pre_tokenizer = pre_tokenizers.Whitespace()
tok.train_from_iterator(
    (t for t, _ in train_rows),
    trainers.WordLevelTrainer(show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]"]),
)
tok.enable_padding(pad_id=0, pad_token="[PAD]")


class IntentSet(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch):
    enc = tok.encode_batch(["[CLS] " + t for t, _ in batch])
    return (
        torch.tensor([e.ids for e in enc]),
        torch.tensor([e.attention_mask for e in enc]),
        torch.tensor([y for _, y in batch]),
    )


cfg = BertConfig(
    vocab_size=tok.get_vocab_size(),
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=48,
    num_labels=len(INTENTS),
)
DTYPE = torch.float32 if MENDED else torch.float16
model = BertForSequenceClassification(cfg).to(DTYPE)

train_dl = DataLoader(IntentSet(train_rows), batch_size=32, shuffle=True, collate_fn=collate)
test_dl = DataLoader(IntentSet(test_rows), batch_size=100, collate_fn=collate)
EPOCHS = 3
opt = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
sched = get_cosine_schedule_with_warmup(opt, 20, EPOCHS * len(train_dl))


@torch.no_grad()
def accuracy():
    model.eval()
    hit = n = 0
    for ids, am, y in test_dl:
        hit += (model(input_ids=ids, attention_mask=am).logits.argmax(-1) == y).sum().item()
        n += len(y)
    model.train()
    return hit / n


step = 0
model.train()
for epoch in range(EPOCHS):
    for ids, am, y in train_dl:
        out = model(input_ids=ids, attention_mask=am, labels=y)
        opt.zero_grad(set_to_none=True)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {out.loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
        step += 1
    print(f"epoch {epoch} test accuracy {accuracy():.3f}")
