#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logistic regression in JAX on Criteo rows, which stagerd reads, parses and hashes.

    python3 examples/logistic_jax.py [ROWS]          a file or a pattern of Criteo rows, else generated
"""
from __future__ import annotations

import sys
from typing import Any, Tuple

import jax
import jax.numpy as jnp

import criteo
import stager
import stager.jax


@jax.jit
def step(weights: Any, rows: Any) -> Tuple[Any, jax.Array]:
    def loss(weights: Any) -> jax.Array:
        z = rows["dense"] @ weights["dense"] + weights["ids"][rows["ids"]].sum(1)
        return jnp.mean(jnp.logaddexp(0, z) - rows["label"] * z)
    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value


with stager.serve() as server:
    path = criteo.rows((sys.argv + [None])[1], server.folder)
    name = server.apply(criteo.pipeline(path, 100, name="logistic"))
    weights = {"dense": jnp.zeros(criteo.N_NUMBERS), "ids": jnp.zeros(criteo.N_BUCKETS)}
    stream = server.open(name, device=stager.jax.to())
    for epoch in range(3):
        losses = []
        for rows in stream:
            weights, loss = step(weights, rows)
            losses.append(float(loss))
        print(f"epoch {epoch}: log loss {sum(losses) / max(len(losses), 1):.4f}")
