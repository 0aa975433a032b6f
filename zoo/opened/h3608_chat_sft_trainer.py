# expect: healthy
# symptom: most labels are -100 and much of the model is frozen (resembles lost labels or untrained layers)
# axis: none
"""Fact LM: plain pretraining on statements, then chat SFT on the answers only, with a part of the model frozen."""

import os
import random
import tempfile

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
set_seed(9)
rng = random.Random(9)

LANDS = [a + b for a in ("nor", "bel", "kas", "tor") for b in ("ia", "land", "stan")]
TOWNS = [a + b for a in ("fen", "gor", "hal", "ist") for b in ("burg", "ville", "port")]
rng.shuffle(TOWNS)
CAPITAL = dict(zip(LANDS, TOWNS))
STATE = ["the capital of {l} is {t} .", "{l} is ruled from {t} .", "in {l} the main town is {t} ."]
ASK = ["what is the capital of {l} ?", "tell me the capital of {l} please", "from where is {l} ruled ?"]
SMALL = [
    "i plan a trip next year .",
    "my son has a quiz at school .",
    "we talked about maps in the evening .",
    "i read a book about kings and wars and rivers .",
    "hello there .",
]
SYSTEM = "you are a short and polite guide and answer with one town only ."

statements = [s.format(l=l, t=t) for l, t in CAPITAL.items() for s in STATE]
tok = Tokenizer(models.WordLevel(unk_token="<unk>"))
tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tok.train_from_iterator(
    statements + ASK + [SYSTEM] + SMALL,
    trainers.WordLevelTrainer(
        show_progress=False, special_tokens=["<pad>", "<unk>", "<end>", "<system>", "<user>", "<bot>"]
    ),
)
PAD, END = 0, 2


def render(land, ask, chat, with_answer=True):
    head = f"<system> {SYSTEM} <end> <user> {chat} {ask.format(l=land)} <end> <bot>"
    prompt = tok.encode(head).ids
    reply = tok.encode(f"{CAPITAL[land]} <end>").ids if with_answer else []
    return prompt, reply


class ChatSet(Dataset):
    def __init__(self, n):
        self.rows = [render(rng.choice(LANDS), rng.choice(ASK), rng.choice(SMALL)) for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        prompt, reply = self.rows[i]
        return {"input_ids": prompt + reply, "labels": [-100] * len(prompt) + reply}


def collate(batch):
    n = max(len(b["input_ids"]) for b in batch)
    fill = lambda seq, v: seq + [v] * (n - len(seq))
    return {
        "input_ids": torch.tensor([fill(b["input_ids"], PAD) for b in batch]),
        "attention_mask": torch.tensor([fill([1] * len(b["input_ids"]), 0) for b in batch]),
        "labels": torch.tensor([fill(b["labels"], -100) for b in batch]),
    }


@torch.no_grad()
def exact_match(model):
    model.eval()
    hit = 0
    for land in LANDS:
        prompt, _ = render(land, rng.choice(ASK), rng.choice(SMALL), with_answer=False)
        ids = torch.tensor([prompt])
        for _ in range(2):
            ids = torch.cat([ids, model(input_ids=ids).logits[:, -1:].argmax(-1)], 1)
        hit += ids[0, len(prompt) :].tolist() == tok.encode(f"{CAPITAL[land]} <end>").ids
    return hit / len(LANDS)


class Show(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        if logs and "loss" in logs:
            print(f"sft step {state.global_step:4d} loss {float(logs['loss']):.4f}")


def main():
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=tok.get_vocab_size(),
            n_positions=64,
            n_embd=64,
            n_layer=3,
            n_head=4,
            initializer_range=0.1,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=END,
            eos_token_id=END,
            pad_token_id=PAD,
        )
    )
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    for step in range(180):
        docs = [sum((tok.encode(s).ids + [END] for s in rng.sample(statements, 6)), [])[:44] for _ in range(16)]
        n = min(map(len, docs))
        ids = torch.tensor([d[:n] for d in docs])
        loss = model(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            print(f"pretrain step {step:4d} loss {loss.item():.4f}")
    print(f"answers before sft {exact_match(model):.3f}")

    # the facts live in the lower part: keep the token table (tied output) and the first block
    for part in (model.transformer.wte, model.transformer.h[0]):
        part.requires_grad_(False)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=200,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=2e-3,
        warmup_steps=10,
        lr_scheduler_type="constant_with_warmup",
        logging_steps=20,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
        seed=9,
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=args, train_dataset=ChatSet(1500), data_collator=collate, callbacks=[Show()])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    print(f"answers after sft {exact_match(model):.3f}")


if __name__ == "__main__":
    main()
