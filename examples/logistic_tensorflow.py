#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logistic regression in Keras on Criteo rows, which stagerd reads, parses and hashes.

    python3 examples/logistic_tensorflow.py [ROWS]   a file or a pattern of Criteo rows, else generated
"""
import sys

import tensorflow as tf

import criteo
import stager
import stager.tensorflow

with stager.serve() as server:
    path = criteo.rows((sys.argv + [None])[1], server.folder)
    name = server.apply(criteo.pipeline(path, 100, name="logistic"))
    batches = stager.tensorflow.dataset(server.open(name))
    dense = tf.keras.Input([criteo.N_NUMBERS], name="dense")
    ids = tf.keras.Input([criteo.N_CATEGORIES], name="ids", dtype="int32")
    words = tf.keras.layers.Flatten()(tf.keras.layers.Embedding(criteo.N_BUCKETS, 1)(ids))
    both = tf.keras.layers.Concatenate()([dense, words])
    click = tf.keras.layers.Dense(1, "sigmoid", name="click")(both)
    model = tf.keras.Model({"dense": dense, "ids": ids}, click)
    model.compile("adam", "binary_crossentropy", metrics=["AUC"])
    model.fit(batches.map(lambda rows: (rows, rows.pop("label"))), epochs=3, verbose=2, shuffle=False)
