"""Vocabularies that are built anew for each text, read in the source, and what resembles them."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

RULE = "rebuilt-vocabulary"
SICK = {
    "in a loop over files": """
        for path in paths:
            text = open(path).read()
            stoi = {c: i for i, c in enumerate(sorted(set(text)))}
            shards.append(torch.tensor([stoi[c] for c in text]))
        """,
    "a class, in a loop that trains": """
        class Tokenizer:
            def __init__(self, text):
                self.itos = sorted(set(text))
                self.stoi = dict(zip(self.itos, range(len(self.itos))))
            def encode(self, text):
                return [self.stoi[c] for c in text]
        for text in texts:
            tok = Tokenizer(text)
            ids = torch.tensor(tok.encode(text))
            loss = model(ids)
            loss.backward()
        """,
    "a function, for both splits": """
        def numbers(text):
            words = text.split()
            index = {w: i for i, w in enumerate(set(words))}
            return torch.tensor([index[w] for w in words])
        x_train = windows(numbers(train_text))
        x_val = windows(numbers(val_text))
        """,
    "a data set, for both splits": """
        class Reviews(Dataset):
            def __init__(self, rows):
                words = set()
                for text in rows:
                    words.update(text.split())
                self.word2id = {w: i for i, w in enumerate(words)}
                self.items = [[self.word2id[w] for w in text.split()] for text in rows]
        train_set = Reviews(load("train.csv"))
        test_set = Reviews(load("test.csv"))
        """,
    "a dictionary that grows, in each epoch": """
        def prepare(rows):
            vocab = {"<pad>": 0}
            out = []
            for text in rows:
                for w in text.split():
                    if w not in vocab:
                        vocab[w] = len(vocab)
                out.append([vocab[w] for w in text.split()])
            return out
        for epoch in range(10):
            random.shuffle(rows)
            for batch in prepare(rows):
                train(batch)
        """,
}
HEALTHY = {
    "tokens that are given, for both splits": """
        class Names(Dataset):
            def __init__(self, words, chars):
                self.words = words
                self.stoi = {ch: i + 1 for i, ch in enumerate(chars)}
            def __getitem__(self, row):
                return torch.tensor([self.stoi[c] for c in self.words[row]])
        chars = sorted(set("".join(words)))
        train_set = Names(train_words, chars)
        test_set = Names(test_words, chars)
        """,
    "one that grows over all texts": """
        vocab = {}
        for text in texts:
            for w in text.split():
                vocab.setdefault(w, len(vocab))
        ids = [[vocab[w] for w in text.split()] for text in texts]
        """,
    "one over all, built at the end of a loop": """
        seen = set()
        for text in texts:
            seen.update(text)
            stoi = {c: i for i, c in enumerate(sorted(seen))}
        ids = [stoi[c] for c in text]
        """,
    "languages": """
        for lang, text in corpora.items():
            vocab = {w: i for i, w in enumerate(sorted(set(text.split())))}
            ids[lang] = [vocab[w] for w in text.split()]
        """,
    "columns": """
        for col in columns:
            index = {v: i for i, v in enumerate(sorted(set(frame[col])))}
            frame[col] = [index[v] for v in frame[col]]
        """,
    "a model for each text": """
        for name, text in books.items():
            vocab = {c: i for i, c in enumerate(sorted(set(text)))}
            ids = torch.tensor([vocab[c] for c in text])
            model = Model(len(vocab))
            opt = torch.optim.Adam(model.parameters())
        """,
    "one that is passed on": """
        class Reviews(Dataset):
            def __init__(self, rows, vocab=None):
                if vocab is None:
                    vocab = {w: i for i, w in enumerate(sorted(set(" ".join(rows).split())))}
                self.vocab = vocab
                self.items = [[vocab.get(w, 0) for w in text.split()] for text in rows]
        train_set = Reviews(train_rows)
        test_set = Reviews(test_rows, train_set.vocab)
        """,
    "one that is saved": """
        def load(path):
            text = open(path).read()
            vocab = {c: i for i, c in enumerate(sorted(set(text)))}
            json.dump(vocab, open("vocab.json", "w"))
            return torch.tensor([vocab[c] for c in text])
        train = load("train.txt")
        valid = load("valid.txt")
        """,
    "classes of an episode": """
        for episode in episodes:
            index = {c: i for i, c in enumerate(sorted(set(episode.classes)))}
            y = torch.tensor([index[c] for c in episode.classes])
        """,
    "nodes of a graph": """
        def graph(edges):
            index = {n: i for i, n in enumerate(sorted({a for e in edges for a in e}))}
            return [(index[a], index[b]) for a, b in edges]
        graphs = [graph(edges) for edges in molecules]
        """,
    "built of the training text": """
        def vocabulary(text):
            return {c: i for i, c in enumerate(sorted(set(text)))}
        stoi = vocabulary(train_text)
        x_train = [stoi[c] for c in train_text]
        x_val = [stoi.get(c, 0) for c in val_text]
        """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == RULE]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_a_vocabulary_of_each_text(source: str) -> None:
    assert found(source) == [RULE]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
