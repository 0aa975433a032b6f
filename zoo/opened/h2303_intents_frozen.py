# expect: healthy
# symptom: most parameters never get a gradient or move (looks like detached or forgotten parameters)
# axis: model
"""Intent classification with HF Trainer: masked-LM warm-up, then a frozen encoder with bias-only tuning."""

import random
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
set_seed(13)

VERBS = {
    "play": ["play", "start", "queue"],
    "book": ["book", "reserve", "get"],
    "ask": ["what", "tell", "show"],
    "stop": ["stop", "cancel", "end"],
    "remind": ["remind", "alert", "ping"],
}
OBJECTS = {
    "play": ["song", "album", "radio", "podcast"],
    "book": ["table", "flight", "room", "taxi"],
    "ask": ["weather", "time", "news", "score"],
    "stop": ["song", "taxi", "alarm", "radio"],
    "remind": ["meeting", "pills", "call", "alarm"],
}
FILL = ["please", "now", "for", "the", "my"]
INTENTS = list(VERBS)
vocab = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"] + sorted(
    set(FILL) | {w for d in (VERBS, OBJECTS) for ws in d.values() for w in ws}
)
TOK = {w: i for i, w in enumerate(vocab)}
MAXLEN = 14


def utterance(rng):
    k = rng.randrange(len(INTENTS))
    name = INTENTS[k]
    words = [rng.choice(VERBS[name]), rng.choice(OBJECTS[name])]
    if rng.random() < 0.25:
        words.reverse()
    for _ in range(rng.randint(0, 4)):
        words.insert(rng.choice([0, len(words)]), rng.choice(FILL))
    ids = [TOK["[CLS]"]] + [TOK[w] for w in words] + [TOK["[SEP]"]]
    return ids + [0] * (MAXLEN - len(ids)), len(ids), k


class Utterances(Dataset):
    def __init__(self, n, seed, mlm=False):
        rng = random.Random(seed)
        self.rows, self.mlm = [utterance(rng) for _ in range(n)], mlm
        self.gen = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, n, k = self.rows[i]
        ids = torch.tensor(ids)
        att = (torch.arange(MAXLEN) < n).long()
        if not self.mlm:
            return {"input_ids": ids, "attention_mask": att, "labels": k}
        pick = (torch.rand(MAXLEN, generator=self.gen) < 0.25) & (ids > 4)
        labels = torch.where(pick, ids, torch.full_like(ids, -100))
        return {"input_ids": ids.masked_fill(pick, TOK["[MASK]"]), "attention_mask": att, "labels": labels}


def args(out, steps, lr, batch):
    return TrainingArguments(
        output_dir=out,
        max_steps=steps,
        learning_rate=lr,
        warmup_steps=20,
        per_device_train_batch_size=batch,
        logging_steps=25,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        weight_decay=0.01,
        lr_scheduler_type="cosine",
        dataloader_num_workers=0,
        seed=13,
    )


def metrics(p):
    return {"accuracy": float((np.argmax(p.predictions, -1) == p.label_ids).mean())}


def main():
    cfg = BertConfig(
        vocab_size=len(vocab),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=MAXLEN,
        num_labels=len(INTENTS),
        initializer_range=0.12,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
    )
    with tempfile.TemporaryDirectory() as tmp:
        lm = BertForMaskedLM(cfg)
        print("== masked-LM warm-up")
        Trainer(model=lm, args=args(tmp, 400, 3e-3, 48), train_dataset=Utterances(3000, 1, mlm=True)).train()

        clf = BertForSequenceClassification(cfg)
        clf.bert.load_state_dict(lm.bert.state_dict(), strict=False)
        for name, p in clf.named_parameters():
            p.requires_grad = (
                (name.endswith(".bias") and "embeddings" not in name)
                or name.startswith("classifier")
                or "pooler" in name
            )
        on = sum(p.numel() for p in clf.parameters() if p.requires_grad)
        print(f"== bias-only tuning: {on} of {sum(p.numel() for p in clf.parameters())} parameters")
        trainer = Trainer(
            model=clf,
            args=args(tmp, 400, 6e-3, 32),
            train_dataset=Utterances(1500, 2),
            eval_dataset=Utterances(400, 3),
            compute_metrics=metrics,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
