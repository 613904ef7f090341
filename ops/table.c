/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/op.h"

#include <string.h>

extern const struct stg_op stg_op_abs;
extern const struct stg_op stg_op_add;
extern const struct stg_op stg_op_as_string;
extern const struct stg_op stg_op_assert;
extern const struct stg_op stg_op_assign;
extern const struct stg_op stg_op_assign_add;
extern const struct stg_op stg_op_augru;
extern const struct stg_op stg_op_batch_matmul;
extern const struct stg_op stg_op_bias_add;
extern const struct stg_op stg_op_bucketize;
extern const struct stg_op stg_op_cast;
extern const struct stg_op stg_op_center_crop;
extern const struct stg_op stg_op_clip_by_value;
extern const struct stg_op stg_op_color_jitter;
extern const struct stg_op stg_op_concat;
extern const struct stg_op stg_op_constant;
extern const struct stg_op stg_op_cross;
extern const struct stg_op stg_op_decode_compressed;
extern const struct stg_op stg_op_decode_csv;
extern const struct stg_op stg_op_decode_image;
extern const struct stg_op stg_op_decode_jpeg;
extern const struct stg_op stg_op_decode_png;
extern const struct stg_op stg_op_decode_raw;
extern const struct stg_op stg_op_divide;
extern const struct stg_op stg_op_embedding_lookup;
extern const struct stg_op stg_op_equal;
extern const struct stg_op stg_op_exp;
extern const struct stg_op stg_op_expand_dims;
extern const struct stg_op stg_op_floordiv;
extern const struct stg_op stg_op_floormod;
extern const struct stg_op stg_op_gather;
extern const struct stg_op stg_op_greater;
extern const struct stg_op stg_op_greater_equal;
extern const struct stg_op stg_op_gru;
extern const struct stg_op stg_op_identity;
extern const struct stg_op stg_op_l2_normalize;
extern const struct stg_op stg_op_less;
extern const struct stg_op stg_op_less_equal;
extern const struct stg_op stg_op_log;
extern const struct stg_op stg_op_log1p;
extern const struct stg_op stg_op_logical_and;
extern const struct stg_op stg_op_logical_not;
extern const struct stg_op stg_op_logical_or;
extern const struct stg_op stg_op_lookup;
extern const struct stg_op stg_op_matmul;
extern const struct stg_op stg_op_maximum;
extern const struct stg_op stg_op_minimum;
extern const struct stg_op stg_op_multiply;
extern const struct stg_op stg_op_narrow;
extern const struct stg_op stg_op_negative;
extern const struct stg_op stg_op_normalize;
extern const struct stg_op stg_op_normalize_image;
extern const struct stg_op stg_op_not_equal;
extern const struct stg_op stg_op_one_hot;
extern const struct stg_op stg_op_ones_like;
extern const struct stg_op stg_op_pad;
extern const struct stg_op stg_op_parse_example;
extern const struct stg_op stg_op_parse_json;
extern const struct stg_op stg_op_placeholder;
extern const struct stg_op stg_op_pow;
extern const struct stg_op stg_op_random_crop;
extern const struct stg_op stg_op_random_flip;
extern const struct stg_op stg_op_random_resized_crop;
extern const struct stg_op stg_op_reduce_max;
extern const struct stg_op stg_op_reduce_mean;
extern const struct stg_op stg_op_reduce_sum;
extern const struct stg_op stg_op_relu;
extern const struct stg_op stg_op_reshape;
extern const struct stg_op stg_op_resize;
extern const struct stg_op stg_op_resize_bilinear;
extern const struct stg_op stg_op_resize_shorter_side;
extern const struct stg_op stg_op_scatter_add;
extern const struct stg_op stg_op_sequence_mask;
extern const struct stg_op stg_op_sigmoid;
extern const struct stg_op stg_op_sleep;
extern const struct stg_op stg_op_slice;
extern const struct stg_op stg_op_softmax;
extern const struct stg_op stg_op_sparse_to_dense;
extern const struct stg_op stg_op_split;
extern const struct stg_op stg_op_sqrt;
extern const struct stg_op stg_op_squeeze;
extern const struct stg_op stg_op_stack;
extern const struct stg_op stg_op_string_length;
extern const struct stg_op stg_op_string_lower;
extern const struct stg_op stg_op_string_split;
extern const struct stg_op stg_op_string_strip;
extern const struct stg_op stg_op_string_to_hash_bucket;
extern const struct stg_op stg_op_string_to_hash_bucket_fast;
extern const struct stg_op stg_op_string_to_hash_bucket_strong;
extern const struct stg_op stg_op_string_to_number;
extern const struct stg_op stg_op_string_upper;
extern const struct stg_op stg_op_subtract;
extern const struct stg_op stg_op_tanh;
extern const struct stg_op stg_op_transpose;
extern const struct stg_op stg_op_variable;
extern const struct stg_op stg_op_vocabulary;
extern const struct stg_op stg_op_where;
extern const struct stg_op stg_op_zeros_like;

static const struct stg_op *const ops[] = {
    &stg_op_abs,
    &stg_op_add,
    &stg_op_as_string,
    &stg_op_assert,
    &stg_op_assign,
    &stg_op_assign_add,
    &stg_op_augru,
    &stg_op_batch_matmul,
    &stg_op_bias_add,
    &stg_op_bucketize,
    &stg_op_cast,
    &stg_op_center_crop,
    &stg_op_clip_by_value,
    &stg_op_color_jitter,
    &stg_op_concat,
    &stg_op_constant,
    &stg_op_cross,
    &stg_op_decode_compressed,
    &stg_op_decode_csv,
    &stg_op_decode_image,
    &stg_op_decode_jpeg,
    &stg_op_decode_png,
    &stg_op_decode_raw,
    &stg_op_divide,
    &stg_op_embedding_lookup,
    &stg_op_equal,
    &stg_op_exp,
    &stg_op_expand_dims,
    &stg_op_floordiv,
    &stg_op_floormod,
    &stg_op_gather,
    &stg_op_greater,
    &stg_op_greater_equal,
    &stg_op_gru,
    &stg_op_identity,
    &stg_op_l2_normalize,
    &stg_op_less,
    &stg_op_less_equal,
    &stg_op_log,
    &stg_op_log1p,
    &stg_op_logical_and,
    &stg_op_logical_not,
    &stg_op_logical_or,
    &stg_op_lookup,
    &stg_op_matmul,
    &stg_op_maximum,
    &stg_op_minimum,
    &stg_op_multiply,
    &stg_op_narrow,
    &stg_op_negative,
    &stg_op_normalize,
    &stg_op_normalize_image,
    &stg_op_not_equal,
    &stg_op_one_hot,
    &stg_op_ones_like,
    &stg_op_pad,
    &stg_op_parse_example,
    &stg_op_parse_json,
    &stg_op_placeholder,
    &stg_op_pow,
    &stg_op_random_crop,
    &stg_op_random_flip,
    &stg_op_random_resized_crop,
    &stg_op_reduce_max,
    &stg_op_reduce_mean,
    &stg_op_reduce_sum,
    &stg_op_relu,
    &stg_op_reshape,
    &stg_op_resize,
    &stg_op_resize_bilinear,
    &stg_op_resize_shorter_side,
    &stg_op_scatter_add,
    &stg_op_sequence_mask,
    &stg_op_sigmoid,
    &stg_op_sleep,
    &stg_op_slice,
    &stg_op_softmax,
    &stg_op_sparse_to_dense,
    &stg_op_split,
    &stg_op_sqrt,
    &stg_op_squeeze,
    &stg_op_stack,
    &stg_op_string_length,
    &stg_op_string_lower,
    &stg_op_string_split,
    &stg_op_string_strip,
    &stg_op_string_to_hash_bucket,
    &stg_op_string_to_hash_bucket_fast,
    &stg_op_string_to_hash_bucket_strong,
    &stg_op_string_to_number,
    &stg_op_string_upper,
    &stg_op_subtract,
    &stg_op_tanh,
    &stg_op_transpose,
    &stg_op_variable,
    &stg_op_vocabulary,
    &stg_op_where,
    &stg_op_zeros_like,
};

#define N_OPS (sizeof(ops) / sizeof(ops[0]))

const struct stg_op *const *stg_op_all(size_t *ret_n)
{
    *ret_n = N_OPS;
    return ops;
}

const struct stg_op *stg_op_find(const char *name)
{
    for (size_t i = 0; i < N_OPS; i++) {
        if (strcmp(ops[i]->name, name) == 0)
            return ops[i];
    }
    return NULL;
}
