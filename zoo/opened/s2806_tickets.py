# expect: sick
# symptom: the training loss sinks toward zero, jumps up, sinks again, many times over, and the evaluation accuracy stays near that of naming one queue only
# axis: data
# cause: the stored rows are sorted by class and the streaming shuffle buffer (64 rows) is far smaller than one class block, so every batch holds practically one class and the model forgets the others
# says: buffer|(sort|order|group|block|sequential)\w*.{0,60}(class|label|queue|categor)|(class|label|queue|categor)\w*.{0,60}(sort|order|group|block|sequential)|(not|un|never|poor|insufficient|barely|hardly|weak|badly)\W{0,3}\w*\W{0,3}\w*shuffl|(one|single) (class|label|queue|categor)
# onset_step: 1
# fix: use a shuffle buffer as large as the data set (or shuffle the data before streaming)
# mended: yes
"""Route support tickets to one of six queues with a small BERT, HF Trainer on a streamed dataset.

The rows are read as a stream so that the script also works with the full
(much larger) dump.
"""

import os
import random
import tempfile

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets, disable_progress_bars
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
disable_progress_bars()

QUEUES = ["billing", "delivery", "returns", "account", "technical", "feedback"]
MAX_LEN = 20
PAD, CLS = 0, 1
FIRST_WORD = 2
WORDS_PER_QUEUE = 30
COMMON_WORDS = 150
VOCAB = FIRST_WORD + WORDS_PER_QUEUE * len(QUEUES) + COMMON_WORDS
ROWS_PER_QUEUE = 640


def write_ticket(queue: int, rng: random.Random) -> list[int]:
    ids = [CLS]
    for _ in range(rng.randint(9, MAX_LEN - 1)):
        u = rng.random()
        topic = queue if u < 0.27 else rng.randrange(len(QUEUES)) if u < 0.45 else None
        if topic is None:
            ids.append(FIRST_WORD + WORDS_PER_QUEUE * len(QUEUES) + rng.randrange(COMMON_WORDS))
        else:
            ids.append(FIRST_WORD + WORDS_PER_QUEUE * topic + rng.randrange(WORDS_PER_QUEUE))
    return ids


def encode(ids: list[int], label: int) -> dict:
    fill = MAX_LEN - len(ids)
    return {
        "input_ids": ids + [PAD] * fill,
        "attention_mask": [1] * len(ids) + [0] * fill,
        "labels": label,
    }


def shard(queue: int, n: int, seed: int) -> Dataset:
    rng = random.Random(1000 * seed + queue)
    return Dataset.from_list([encode(write_ticket(queue, rng), queue) for _ in range(n)])


def metrics(pred):
    guess = np.argmax(pred.predictions, axis=-1)
    share = np.bincount(guess, minlength=len(QUEUES)) / len(guess)
    return {"accuracy": float((guess == pred.label_ids).mean()), "largest_share": float(share.max())}


def main():
    set_seed(17)
    train = concatenate_datasets([shard(q, ROWS_PER_QUEUE, 1) for q in range(len(QUEUES))])
    dev = concatenate_datasets([shard(q, 60, 2) for q in range(len(QUEUES))])
    buffer_size = len(train) if os.environ.get("MENDED") == "1" else 64
    stream = train.to_iterable_dataset().shuffle(seed=17, buffer_size=buffer_size)

    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCAB,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=96,
            max_position_embeddings=MAX_LEN,
            num_labels=len(QUEUES),
            pad_token_id=PAD,
        )
    )
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=720,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        learning_rate=1e-3,
        warmup_steps=40,
        lr_scheduler_type="linear",
        weight_decay=0.01,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=120,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=17,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=stream,
        eval_dataset=dev,
        compute_metrics=metrics,
    )
    trainer.train()
    print("final", trainer.evaluate())


if __name__ == "__main__":
    main()
