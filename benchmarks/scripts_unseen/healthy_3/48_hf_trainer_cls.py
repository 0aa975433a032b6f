# expect: healthy
# fault: sparse logs, linear decay to 0, a warm-up
# note: the HF Trainer with its defaults (linear decay to 0) on a tiny DistilBERT.
import tempfile
import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments

torch.set_num_threads(1)


class Toy(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 4, (n,), generator=g)
        self.x = torch.randint(4, 84, (n, 12), generator=g)
        self.x[:, 2:6] = torch.randint(0, 20, (n, 4), generator=g) * 4 + self.y[:, None] + 4

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"input_ids": self.x[i], "attention_mask": torch.ones(12, dtype=torch.long), "labels": self.y[i]}


def main():
    cfg = DistilBertConfig(
        vocab_size=84,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        max_position_embeddings=16,
        num_labels=4,
        dropout=0.0,
        attention_dropout=0.0,
    )
    model = DistilBertForSequenceClassification(cfg)
    with tempfile.TemporaryDirectory() as d:
        args = TrainingArguments(
            output_dir=d,
            per_device_train_batch_size=24,
            max_steps=120,
            learning_rate=2e-3,
            warmup_steps=10,
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=1,
        )
        trainer = Trainer(model=model, args=args, train_dataset=Toy(1600, 0), eval_dataset=Toy(200, 1))
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
