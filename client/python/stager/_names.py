# SPDX-License-Identifier: Apache-2.0
"""The names of all ops (docs/ops.md) and of the steps that follow another (docs/dataset.md), for `dir` and completion.
Others are not refused here: what a name means is for the daemon to say."""

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

STEPS = tuple("""
    batch bucket_by_sequence_length cache concatenate csv enumerate filter fixed_length_record ignore_errors
    interleave jsonl map map_and_batch npy padded_batch parallel_interleave prefetch py_function ragged_batch
    read_file rebatch repeat shard shuffle shuffle_and_repeat skip take tar text_line tfrecord unbatch zip
""".split())
