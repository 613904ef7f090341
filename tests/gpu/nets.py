# SPDX-License-Identifier: Apache-2.0
"""The models of examples in PyTorch: DLRM, DeepFM, DSSM, DIN and DIEN. Each takes the tensors of a batch by name and
returns logits, one for each row. Each starts with fixed weights."""
import os
import sys

import torch
from torch import nn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "examples"))
import dlrm_torch  # noqa: E402
from criteo import N_BUCKETS, N_CATEGORIES, N_NUMBERS  # noqa: E402

# The sizes of the behaviour data: users, items, categories.
N_IDS, N_KINDS = 100_000, 1_000
N_DENSE = 2
DIM, HIDDEN = 16, 128


def mlp(*sizes, last=None):
    layers = []
    for n_in, n_out in zip(sizes, sizes[1:]):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([last] if last is not None else []))


def table(n, dim=DIM):
    made = nn.Embedding(n, dim, sparse=True)
    nn.init.normal_(made.weight, std=0.05)
    return made


class DLRM(dlrm_torch.DLRM):
    def __init__(self):
        super().__init__()
        nn.init.normal_(self.tables.weight, std=0.05)

    def forward(self, rows):
        return super().forward(rows["dense"], rows["ids"])


class DeepFM(nn.Module):
    """A factorization machine and a deep network over the same embeddings."""

    def __init__(self):
        super().__init__()
        self.table, self.linear = table(N_CATEGORIES * N_BUCKETS), table(N_CATEGORIES * N_BUCKETS, 1)
        self.register_buffer("first", torch.arange(N_CATEGORIES) * N_BUCKETS)
        self.deep = mlp(N_NUMBERS + N_CATEGORIES * DIM, HIDDEN, 64, 1)

    def forward(self, rows):
        ids = rows["ids"] + self.first
        vectors = self.table(ids)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        deep = self.deep(torch.cat([rows["dense"], vectors.flatten(1)], dim=1))
        return self.linear(ids).sum((1, 2)) + pairs + deep[:, 0]


class DSSM(nn.Module):
    """A tower for the user, one for the item; the score is their cosine."""

    def __init__(self):
        super().__init__()
        self.users, self.items, self.kinds = table(N_IDS), table(N_IDS), table(N_KINDS)
        self.user = mlp(DIM + N_DENSE, HIDDEN, 64, last=nn.Tanh())
        self.item = mlp(2 * DIM, HIDDEN, 64, last=nn.Tanh())

    def forward(self, rows):
        user = self.user(torch.cat([self.users(rows["user"]), rows["dense"]], dim=1))
        item = self.item(torch.cat([self.items(rows["item"]), self.kinds(rows["category"])], dim=1))
        return 5 * nn.functional.cosine_similarity(user, item)


class Behaviour(nn.Module):
    """The common part of DIN and DIEN: users, items, and the items that a user saw before, padded with -1."""

    def __init__(self):
        super().__init__()
        self.users, self.items = table(N_IDS), table(N_IDS)
        self.deep = mlp(3 * DIM + N_DENSE, HIDDEN, 64, 1)

    def score(self, rows, item, interest):
        return self.deep(torch.cat([interest, item, self.users(rows["user"]), rows["dense"]], dim=1))[:, 0]

    def look(self, rows):
        """(the item's vector, those of the history, a mask of its entries)."""
        history = rows["history"]
        return self.items(rows["item"]), self.items(history.clamp(min=0)), history >= 0


def attend(scores, mask):
    """Weights over the history; all 0 if it is empty."""
    return torch.softmax(scores.masked_fill(~mask, -1e9), dim=1) * mask


class DIN(Behaviour):
    """Earlier items count by their relevance to the item."""

    def __init__(self):
        super().__init__()
        self.attention = mlp(4 * DIM, 64, 1)

    def forward(self, rows):
        item, seen, mask = self.look(rows)
        items = item[:, None].expand_as(seen)
        scores = self.attention(torch.cat([seen, items, seen - items, seen * items], dim=2))[:, :, 0]
        return self.score(rows, item, (attend(scores, mask)[:, :, None] * seen).sum(1))


class DIEN(Behaviour):
    """Interests evolve through a GRU, and through one driven by attention."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(DIM, DIM, batch_first=True)
        self.attention = nn.Linear(DIM, DIM, bias=False)
        self.gates, self.candidate = nn.Linear(2 * DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def evolve(self, interests, weights):
        state = torch.zeros_like(interests[:, 0])
        for x, weight in zip(interests.unbind(1), weights.unbind(1)):
            reset, update = torch.sigmoid(self.gates(torch.cat([x, state], dim=1))).chunk(2, dim=1)
            new = torch.tanh(self.candidate(torch.cat([x, reset * state], dim=1)))
            state = state + weight[:, None] * update * (new - state)
        return state

    def forward(self, rows):
        item, seen, mask = self.look(rows)
        interests, _ = self.gru(seen)
        scores = (self.attention(interests) * item[:, None]).sum(2)
        return self.score(rows, item, self.evolve(interests, attend(scores, mask)))


# {name: (model, its training data)}
MODELS = {"DIEN": (DIEN, "clicks"), "DIN": (DIN, "clicks"), "DLRM": (DLRM, "criteo"), "DSSM": (DSSM, "clicks"),
          "DeepFM": (DeepFM, "criteo")}


class Trainer:
    """A model on a device, and its steps."""

    def __init__(self, name, device, lr=0.05):
        torch.manual_seed(1)
        self.model, self.lr = MODELS[name][0]().to(device), lr

    def step(self, rows):
        """The loss, on the device: the call waits for nothing."""
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(rows), rows["label"])
        loss.backward()
        dlrm_torch.descend(self.model, self.lr)
        return loss.detach()
