# expect: healthy
# symptom: resembles a model with parameters cut off from training (embeddings, positions and the first block never change)
# axis: model
"""Reservoir-style GPT-2: random projections at the bottom stay fixed, the rest is trained with the HF Trainer."""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import numpy as np
import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

torch.set_num_threads(1)
set_seed(1234)

VERBS = "finds takes hides drops paints lifts".split()
NOUNS = "crate lamp rope jar coin map".split()
NAMES = "ada bo cy dee eli fay".split()
COLOURS = "red blue green grey".split()
WORDS = ["<s>", ".", "then", "the", "acted", "who", "?", "first", "second", "third"] + VERBS + NOUNS + NAMES + COLOURS
STOI = {w: i for i, w in enumerate(WORDS)}


def story(rng):
    out, actors = ["<s>"], []
    for _ in range(3):
        name, verb, colour, noun = (rng.choice(x) for x in (NAMES, VERBS, COLOURS, NOUNS))
        out += [name, verb, "the", colour, noun, "then"]
        actors.append(name)
    k = int(rng.integers(3))
    out += ["who", "acted", ("first", "second", "third")[k], "?", actors[k], "."]
    return out


def corpus(n, seed):
    rng = np.random.default_rng(seed)
    rows = [[STOI[w] for w in story(rng)] for _ in range(n)]
    answers = [[-100] * (len(r) - 2) + r[-2:] for r in rows]
    return Dataset.from_dict({"input_ids": rows, "labels": answers})


class Tail(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        keep = {
            k: round(v, 4)
            for k, v in (logs or {}).items()
            if k in ("loss", "eval_loss", "eval_answer_accuracy", "grad_norm") and isinstance(v, float)
        }
        if keep:
            print(f"[{state.global_step}] {keep}", flush=True)


def answer_accuracy(pred):
    logits, labels = pred
    return {"answer_accuracy": float((logits[:, -3] == labels[:, -2]).mean())}


def build():
    cfg = GPT2Config(
        vocab_size=len(WORDS),
        n_positions=32,
        n_embd=96,
        n_layer=3,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.05,
    )
    model = GPT2LMHeadModel(cfg)
    fixed = [model.transformer.wte, model.transformer.wpe, model.transformer.h[0]]
    with torch.no_grad():
        model.transformer.wte.weight.normal_(0, 0.3)
        model.transformer.wpe.weight.normal_(0, 0.3)
    for module in fixed:
        module.requires_grad_(False)
    n_all = sum(p.numel() for p in model.parameters())
    n_train = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"{n_train} of {n_all} parameters are trained")
    return model


def main():
    args = TrainingArguments(
        output_dir="/tmp/frozenlm",
        max_steps=400,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=200,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        warmup_steps=30,
        weight_decay=0.01,
        max_grad_norm=1.0,
        logging_steps=25,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=5,
        dataloader_num_workers=0,
    )
    trainer = Trainer(
        model=build(),
        args=args,
        train_dataset=corpus(12000, 0),
        eval_dataset=corpus(400, 1),
        compute_metrics=answer_accuracy,
        callbacks=[Tail()],
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
