# SPDX-License-Identifier: Apache-2.0
"""The names of all ops (docs/ops.md) and of the steps that follow another (docs/dataset.md), for `dir` and completion, and
the attributes of ops that have positions. Other names are not refused here: what a name means is for the daemon to say."""

OPS = tuple("""
    abs add as_string assert assign assign_add augru batch_matmul bias_add bucketize cast center_crop
    clip_by_value color_jitter concat constant cross decode_compressed decode_csv decode_image decode_jpeg decode_png decode_raw
    divide embedding_lookup equal exp expand_dims floordiv floormod gather greater greater_equal gru identity
    l2_normalize less less_equal log log1p logical_and logical_not logical_or lookup matmul maximum minimum
    multiply narrow negative normalize normalize_image not_equal one_hot ones_like pad parse_example
    parse_json placeholder pow random_crop random_flip random_resized_crop reduce_max reduce_mean reduce_sum
    relu reshape resize resize_bilinear resize_shorter_side scatter_add sequence_mask sigmoid sleep slice
    softmax sparse_to_dense split sqrt squeeze stack string_length string_lower string_split string_strip
    string_to_hash_bucket string_to_hash_bucket_fast string_to_hash_bucket_strong string_to_number
    string_upper subtract tanh transpose variable vocabulary where zeros_like
""".split())

# The attributes that TensorFlow's function of that name takes without their names, behind so many inputs.
POSITIONAL = {
    "as_string": (1, ("precision", "scientific", "shortest", "width", "fill")), "bucketize": (1, ("boundaries",)),
    "cast": (1, ("dtype",)), "center_crop": (1, ("size",)), "clip_by_value": (1, ("clip_value_min", "clip_value_max")),
    "concat": (1, ("axis",)), "constant": (0, ("value", "dtype", "shape")),
    "decode_csv": (1, ("record_defaults", "field_delim", "use_quote_delim", "na_value", "select_cols")),
    "decode_image": (1, ("channels",)), "decode_jpeg": (1, ("channels", "ratio")), "decode_png": (1, ("channels", "dtype")),
    "decode_raw": (1, ("out_type", "little_endian", "fixed_length")), "expand_dims": (1, ("axis",)),
    "l2_normalize": (1, ("axis", "epsilon")), "one_hot": (1, ("depth", "on_value", "off_value", "axis", "dtype")),
    "ones_like": (1, ("dtype",)), "pad": (1, ("paddings", "mode", "constant_values")), "parse_example": (1, ("features",)),
    "parse_json": (1, ("features",)), "placeholder": (0, ("dtype", "shape")), "random_crop": (1, ("size",)),
    "reduce_max": (1, ("axis", "keepdims")), "reduce_mean": (1, ("axis", "keepdims")), "reduce_sum": (1, ("axis", "keepdims")),
    "reshape": (1, ("shape",)), "resize": (1, ("size",)), "resize_bilinear": (1, ("size",)),
    "sequence_mask": (1, ("maxlen", "dtype")), "slice": (1, ("begin", "size")), "split": (1, ("num_or_size_splits", "axis")),
    "squeeze": (1, ("axis",)), "stack": (1, ("axis",)), "string_split": (1, ("sep", "maxsplit")),
    "string_to_hash_bucket": (1, ("num_buckets",)), "string_to_hash_bucket_fast": (1, ("num_buckets",)),
    "string_to_hash_bucket_strong": (1, ("num_buckets", "key")), "string_to_number": (1, ("out_type",)),
    "transpose": (1, ("perm",)), "zeros_like": (1, ("dtype",))}

STEPS = tuple("""
    arrow batch bucket_by_sequence_length cache concatenate csv enumerate filter fixed_length_record ignore_errors
    interleave jsonl map map_and_batch npy padded_batch parallel_interleave parquet prefetch py_function ragged_batch
    read_file rebatch repeat shard shuffle shuffle_and_repeat skip take tar text_line tfrecord unbatch zip
""".split())
