# expect: sick
# symptom: the loss goes down as it should, but generated answers never stop: the model runs on to the length limit and exact match stays at zero
# axis: data
# cause: The pad token is set to the eos token, so the language-model collator masks every eos label with -100 along with the padding and the model never learns to emit end-of-sequence.
# says: (pad|mask|-100|ignor|collator|exclud|drop).*(eos|end.?of.?(sequence|text|sentence)|stop token|end token|</s>|<eos>)|(eos|end.?of.?(sequence|text|sentence)|stop token|end token).*(pad|mask|-100|ignor|collator|exclud|label|loss|never (trained|learn))
# onset_step: 1
# fix: give the tokenizer a pad token of its own
# mended: yes
"""Fine-tunes a tiny GPT-2 on question/answer lines about an invented atlas (HF Trainer)."""

import os
import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
set_seed(3)
random.seed(3)
MENDED = os.environ.get("MENDED") == "1"

ONSETS, RIMES = "b d f g k l m n p r s t v z".split(), "al en ir os un ai or el".split()


def word(n):
    return "".join(random.choice(ONSETS) + random.choice(RIMES) for _ in range(n))


def atlas(n=36):
    countries = set()
    while len(countries) < n:
        countries.add(word(3))
    facts = {}
    for c in sorted(countries):
        facts[c] = {
            "capital": " ".join(word(2) for _ in range(random.randint(1, 3))),
            "river": " ".join(word(2) for _ in range(random.randint(1, 2))),
            "export": random.choice(["tin", "dried fish", "salt", "fine red clay", "wool", "green tea"]),
        }
    return facts


TEMPLATES = [
    "question : what is the {k} of {c} ? answer :",
    "question : name the {k} of {c} . answer :",
    "question : {c} , {k} ? answer :",
]


def build_tokenizer(lines):
    vocab = {"<unk>": 0, "<eos>": 1, "<pad>": 2}
    for line in lines:
        for w in line.split():
            vocab.setdefault(w, len(vocab))
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tok = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", eos_token="<eos>")
    tok.pad_token = "<pad>" if MENDED else tok.eos_token
    return tok


class AnswerCheck(TrainerCallback):
    """Greedy answers to a few questions, compared with the atlas."""

    def __init__(self, tok, items, every):
        self.tok, self.items, self.every = tok, items, every

    def on_step_end(self, args, state, control, model=None, **kw):
        if state.global_step % self.every:
            return
        model.eval()
        hit, length, first = 0, 0, 0
        for prompt, answer in self.items:
            enc = self.tok(prompt, return_tensors="pt", return_token_type_ids=False)
            out = model.generate(
                **enc,
                max_new_tokens=10,
                do_sample=False,
                eos_token_id=self.tok.eos_token_id,
                pad_token_id=self.tok.pad_token_id,
            )
            new = out[0, enc["input_ids"].shape[1] :]
            text = self.tok.decode(new, skip_special_tokens=True).strip()
            hit += text == answer
            first += text.split()[:1] == answer.split()[:1]
            length += len(new)
        model.train()
        n = len(self.items)
        print(
            f"step {state.global_step}: exact match {hit / n:.2f}, first word right {first / n:.2f}, "
            f"mean new tokens {length / n:.1f}",
            flush=True,
        )


def main():
    facts = atlas()
    triples = [(c, k, v) for c, d in facts.items() for k, v in d.items()]
    rows = [(random.choice(TEMPLATES).format(c=c, k=k), v) for c, k, v in triples for _ in range(12)]
    random.shuffle(rows)
    tok = build_tokenizer([p + " " + a for p, a in rows])
    data = Dataset.from_dict({"text": [f"{p} {a} {tok.eos_token}" for p, a in rows]})
    data = data.map(
        lambda b: tok(b["text"], truncation=True, max_length=32, return_token_type_ids=False),
        batched=True,
        remove_columns=["text"],
    )
    config = GPT2Config(
        vocab_size=len(tok),
        n_positions=40,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=tok.eos_token_id,
        eos_token_id=tok.eos_token_id,
    )
    model = GPT2LMHeadModel(config)
    probe = [(TEMPLATES[0].format(c=c, k=k), v) for c, k, v in random.sample(triples, 16)]
    args = TrainingArguments(
        output_dir="/tmp/capitals_out",
        per_device_train_batch_size=32,
        max_steps=480,
        learning_rate=3e-3,
        warmup_steps=40,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_num_workers=0,
        seed=3,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data,
        data_collator=DataCollatorForLanguageModeling(tok, mlm=False),
        callbacks=[AnswerCheck(tok, probe, 160)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
