"""Healthy models of different families, small, with data that can be learned: what a preflight must let through.

Each function gives the arguments of ``steadytrain.preflight``; :data:`FAMILIES` names them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS, LENGTH, ROWS, BATCHES = 61, 24, 8, 4
Given = dict[str, Any]


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sentences(count: int = BATCHES, *, rows: int = ROWS, length: int = LENGTH, words: int = WORDS) -> list[Tensor]:
    """Token ids: each token follows from the one before by a rule, with some noise."""
    chance = draw()
    found = []
    for _ in range(count):
        ids = torch.randint(2, words, (rows, length), generator=chance)
        for at in range(1, length):
            keep = torch.rand(rows, generator=chance) < 0.7
            ids[:, at] = torch.where(keep, (ids[:, at - 1] * 3 + 1) % (words - 2) + 2, ids[:, at])
        found.append(ids)
    return found


def given(model: nn.Module, batches: list[Any], loss_fn: Any = None, *, rate: float = 1e-3, **more: Any) -> Given:
    """The arguments, with AdamW in two groups over what wants gradients."""
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices, vectors = [p for p in trained if p.dim() >= 2], [p for p in trained if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=rate)
    return {"model": model, "batches": batches, "loss_fn": loss_fn, "optimizer": optimizer, **more}


def of_classes(model: nn.Module, batch: Any) -> Tensor:
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels)


def tabular() -> Given:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    chance = draw()
    rows = [torch.randn(32, 12, generator=chance) for _ in range(BATCHES)]
    return given(model, [(x, x[:, :3].argmax(1)) for x in rows], of_classes)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.norm2(self.two(functional.relu(self.norm1(self.one(x))))))


def images() -> list[tuple[Tensor, Tensor]]:
    chance = draw()
    found = []
    for _ in range(BATCHES):
        labels = torch.randint(4, (16,), generator=chance)
        pictures = torch.randn(16, 3, 12, 12, generator=chance) * 0.5
        for row, label in enumerate(labels.tolist()):
            pictures[row, label % 3, 6 * (label // 2) : 6 * (label // 2) + 6] += 1.0
        found.append((pictures, labels))
    return found


def residual_net() -> Given:
    torch.manual_seed(0)
    blocks = [Residual(12) for _ in range(3)]
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4)
    )
    return given(model, images(), of_classes)


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.positions = nn.Parameter(torch.randn(1, 9, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 4)

    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self.patches(pictures).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.encoder(tokens).mean(dim=1))


def vision_transformer() -> Given:
    torch.manual_seed(0)
    return given(VisionTransformer(), images(), of_classes)


def regression() -> Given:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    chance = draw()
    rows = [torch.randn(32, 8, generator=chance) for _ in range(BATCHES)]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, targets = batch
        return functional.mse_loss(model(inputs).squeeze(-1), targets)

    return given(model, [(x, torch.sin(x[:, 0]) + x[:, 1] * x[:, 2]) for x in rows], loss)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 32)
        self.lstm = nn.LSTM(32, 48, 2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(48, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


def next_token(model: nn.Module, ids: Tensor) -> Tensor:
    logits = model(ids[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def recurrent() -> Given:
    torch.manual_seed(0)
    return given(Recurrent(), list(sentences()), next_token)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, *, causal: bool = True) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class SmallGPT(nn.Module):
    def __init__(self, *, causal: bool = True, width: int = 32) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, 4, causal=causal) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.token.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def small_gpt() -> Given:
    torch.manual_seed(0)
    return given(SmallGPT(), list(sentences()), next_token)


def binary() -> Given:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 1))
    chance = draw()
    rows = [torch.randn(32, 10, generator=chance) for _ in range(BATCHES)]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        return functional.binary_cross_entropy_with_logits(model(inputs).squeeze(-1), labels)

    return given(model, [(x, (x[:, 0] + x[:, 1] > 0).float()) for x in rows], loss)


def autoencoder() -> Given:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4), nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16)
    )
    chance = draw()
    mix = torch.randn(3, 16, generator=chance)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        return functional.mse_loss(model(batch), batch)

    return given(model, [torch.randn(32, 3, generator=chance) @ mix for _ in range(BATCHES)], loss)


def _transformers() -> Any:
    import pytest

    return pytest.importorskip("transformers")


def with_padding(*, side: str = "right") -> list[dict[str, Tensor]]:
    """Batches of a Hugging Face causal model: rows of different lengths, padded with 0."""
    found = []
    for ids in sentences():
        mask = torch.ones_like(ids)
        for row in range(len(ids)):
            short = row % 3 * 4
            if short and side == "right":
                mask[row, -short:] = 0
            elif short:
                mask[row, :short] = 0
        ends = mask.cumsum(dim=1).argmax(dim=1, keepdim=True)
        ids = ids.scatter(1, ends, 1) * mask
        found.append({"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)})
    return found


def gpt2() -> Any:
    transformers = _transformers()
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1, pad_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def hf_gpt2() -> Given:
    return given(gpt2(), with_padding())


def hf_llama() -> Given:
    transformers = _transformers()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
    )
    return given(transformers.LlamaForCausalLM(config), with_padding())


def hf_t5() -> Given:
    transformers = _transformers()
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=WORDS,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    batches = [
        {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.flip(1)[:, :12].contiguous()}
        for ids in sentences()
    ]
    return given(transformers.T5ForConditionalGeneration(config), batches)


def hf_bert() -> Given:
    transformers = _transformers()
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=WORDS + 1,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    batches, chance = [], draw(1)
    for ids in sentences():
        hidden = torch.rand(ids.shape, generator=chance) < 0.2
        batches.append(
            {
                "input_ids": ids.masked_fill(hidden, WORDS),
                "attention_mask": torch.ones_like(ids),
                "labels": ids.masked_fill(~hidden, -100),
            }
        )
    return given(transformers.BertForMaskedLM(config), batches)


def lora() -> Given:
    import pytest

    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)
    return given(peft.get_peft_model(gpt2(), config), with_padding(), rate=5e-3)


FAMILIES: dict[str, Callable[[], Given]] = {
    family.__name__: family
    for family in (
        *(tabular, residual_net, vision_transformer, regression, recurrent, small_gpt, binary, autoencoder),
        *(hf_gpt2, hf_llama, hf_t5, hf_bert, lora),
    )
}
