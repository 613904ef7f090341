# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: batches as tf.Tensor, and a tf.data.Dataset with the pipeline's signature."""
from __future__ import annotations

from typing import Any, Iterator, Union

import tensorflow as tf

from ._batch import Batch, Ragged, Sparse, Strings, view
from ._core import Tensor
from ._stream import Stream


def tensor(source: Tensor) -> tf.Tensor:
    """A tf.Tensor of batch.tensor(name); strings as tf.string. TensorFlow's tensors are copies."""
    value = view(source)
    if isinstance(value, Strings):
        return tf.constant(value.numpy(), dtype=tf.string, shape=value.shape)
    if source.dtype == "bfloat16":
        return tf.bitcast(tf.constant(value.view("uint16").copy()), tf.bfloat16)
    return tf.constant(value.copy())


def _shape_up(value: Any) -> Any:
    if isinstance(value, Ragged):
        return tf.RaggedTensor.from_row_splits(value.values, value.row_splits, validate=False)
    if isinstance(value, Sparse):
        return tf.SparseTensor(value.indices, value.values, value.dense_shape)
    if isinstance(value, dict):
        return {key: _shape_up(part) for key, part in value.items()}
    return tuple(_shape_up(part) for part in value) if isinstance(value, list) else value


def tree(batch: Batch) -> Any:
    """batch.tree with tf.Tensor, tf.RaggedTensor and tf.SparseTensor; lists as tuples, as tf.data has
    them."""
    return _shape_up(batch.tree_of(tensor))


def signature(stream: Stream) -> Any:
    """The tf.TypeSpec of what `tree` gives, as far as it is known before the first batch."""
    specs = {name: (tf.as_dtype(dtype), list(shape)) for name, dtype, shape in stream.schema}

    def spec(plan: Any) -> Any:
        if isinstance(plan, str):
            dtype, shape = specs[plan]
            return tf.TensorSpec(shape, dtype)
        if isinstance(plan, list):
            return tuple(spec(part) for part in plan)
        if isinstance(plan, dict) and len(plan) == 1 and isinstance(plan.get("ragged"), dict):
            dtype, shape = specs[plan["ragged"]["values"]]
            return tf.RaggedTensorSpec([None, None, *shape[1:]], dtype, ragged_rank=1,
                                       row_splits_dtype=tf.int64)
        if isinstance(plan, dict) and len(plan) == 1 and isinstance(plan.get("sparse"), dict):
            dtype, _ = specs[plan["sparse"]["values"]]
            (rank,) = specs[plan["sparse"]["dense_shape"]][1]
            return tf.SparseTensorSpec([None] * rank if rank is not None else None, dtype)
        return {key: spec(part) for key, part in plan.items()}
    return spec(stream.structure)


def dataset(source: Union[str, Stream], **options: Any) -> tf.data.Dataset:
    """A tf.data.Dataset of the batches of a stream, which stays its opener's to close, or of a pipeline, by
    a stream that leaves it when TensorFlow lets go of the dataset. Each iteration is a pass; options are
    those of stager.open."""
    stream = source if isinstance(source, Stream) else Stream(source, **options)

    def batches() -> Iterator[Any]:
        for batch in stream:
            yield tree(batch)
    return tf.data.Dataset.from_generator(batches, output_signature=signature(stream))
