#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden/*.rows: what TensorFlow (of JSON, Python) gives for each op, as rows of struct op_case.

    make_golden.py [TABLE]...    with a Python that has TensorFlow; what it writes is committed
"""
import json
import os
import random
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../peers"))
import image_files  # noqa: E402
from op_tool import quote  # noqa: E402
from peer_elementwise import ALL, COMPARE, NUMBERS as NUMBER_DTYPES, TWO, random_values  # noqa: E402
from peer_example import node, random_features, random_record, theirs  # noqa: E402
from peer_ops import Dialect, refused_by_tf, strings  # noqa: E402


def element(value, dtype):
    if dtype == "string":
        return quote(value)
    if dtype == "bool":
        return str(int(value))
    if "float" not in dtype:
        return str(int(value))
    number = float(value)
    if np.isnan(number) and dtype in ("float32", "float64"):
        bits = int(np.asarray(value).view(np.uint32 if dtype == "float32" else np.uint64))
        payload = bits & ((1 << (22 if dtype == "float32" else 51)) - 1)
        sign = "-" if bits >> (31 if dtype == "float32" else 63) else ""
        return f"{sign}nan({payload:#x})"
    return number.hex() if np.isfinite(number) else str(number)


def tensor(value):
    if isinstance(value, bytes):
        value = np.array(value, object)
    value = np.asarray(value)
    dtype = "string" if value.dtype == object else value.dtype.name
    shape = ", ".join(map(str, value.shape))
    return f"{dtype}[{shape}] " + " ".join(element(v, dtype) for v in value.reshape(-1))


def literal(text):
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("??", "?\\?")
    return '"' + text + '"'


def row(op, attrs, inputs, outputs):
    inputs = literal("\n".join(tensor(t) for t in inputs))
    want = "NULL" if outputs is None else literal("\n".join(tensor(t) for t in outputs))
    return f"{{.op = \"{op}\", .attrs = {literal(attrs)},\n .inputs = {inputs},\n .want = {want}}},\n"


def write(name, rows):
    with open(os.path.join(HERE, "golden", name), "w") as f:
        f.write("/* SPDX-License-Identifier: Apache-2.0 */\n"
                f"/* Written by make_golden.py from TensorFlow {tf.__version__}. */\n"
                "/* clang-format off */\n")
        f.writelines(rows)
    print(name, len(rows), "rows")


# ---- decode_csv ----

NUMBERS = [b"1", b" 1", b"1 ", b"\t1", b"1\t", b"\x0b1", b"\x0c1\x0c", b"+1", b"-1", b"- 1", b"--1", b"+-1", b"-+1", b"2147483647",
           b"2147483648", b"-2147483648", b"-2147483649", b"9223372036854775807", b"9223372036854775808",
           b"-9223372036854775808", b"-9223372036854775809", b"0x10", b"010", b"1.0", b"1e3", b" ", b"1\0", b"\x001",
           b"0" * 43 + b"1", b"-0", b"1_0", b"\xa01", b"1\xa0", b"\xc2\xa01", b"+", b"-", b"12345678", b"-12345678", b"123456789",
           b"1.", b".5", b".", b"-.", b"-.5", b"..5", b"5..", b"1.2.3", b"1e", b"1e+", b"1e5", b"1e+5", b"1e-5", b"1E5", b"1e 5",
           b"e5", b"inf", b"-inf", b"+inf", b"Inf", b"INF", b"infinity", b"Infinity", b"INFINITY", b"infin", b"infinityy",
           b"nan", b"NaN", b"-nan", b"+nan", b"nan(1)", b"nan()", b"nan(", b"nan)", b"nan(0x7)", b"nan(010)", b"nan(a_9)", b"nan(-1)",
           b"nan(99999999999999999999)", b"0x1p3", b"0X1P3", b"0x1.8p1", b"-0x1", b"0x", b"0x.", b"0x1.8", b"0x.8", b"0x1p",
           b"0xinf", b"0x1.fffffffffffff8p0", b"0x1.ffffffp0", b"0x1p-149", b"0x1p-150", b"0x1.8p-150", b"0x1p-1075",
           b"1e39", b"1e38", b"3.4028235e38", b"3.4028236e38", b"3.4028235677973366e38", b"3.4028235677973367e38", b"1e308",
           b"1.7976931348623157e308", b"1.7976931348623159e308", b"1e309", b"1e400", b"1e-45", b"7e-46", b"7.1e-46", b"1e-324",
           b"2.4703282292062327e-324", b"2.4703282292062328e-324", b"5e-324", b"1e-400", b"-1e-400", b"-0.0",
           b"2.2250738585072011e-308", b"2.2250738585072014e-308", b"1.1754943508222875e-38", b"1.1754942e-38",
           b"1f", b"1.0f", b"1d", b"1L", b"1%", b"$1", b"1" * 31, b"1" * 32, b"1" * 33, b"0." + b"1" * 300, b"1" * 400,
           b" " * 40 + b"1", b"1" + b" " * 40, b"1 2", b"0b1", b"1e99999999999999999999", b"0e99999999999999999999",
           b"1e-99999999999999999999", b"#inf", b"1.#INF", b"16777217", b"16777217.0", b"16777216.5", b"16777217.00000000000000000001",
           b"9007199254740993", b"9007199254740993.0", b"9007199254740992.99999", b"0.1", b"0.3", b"260.0", b"123456.7", b"1234567.8",
           b"0.000001", b"1.17549435e-38", b"8388609.5", b"8388608.5", b"8388610.5", b"33554434.0", b"0.00000000000000000000000000001",
           b"1" + b"0" * 25, b"12345678901234567890", b"123456789012345678901234567890e-20", b"1\r", b"\r1", b"1\n", b"\n1"]

RECORDS = [b"", b"a", b"a,b", b"a,b,c", b",", b",,", b"a,", b",b", b"\n", b"\r\n", b"a,b\n", b"a,b\r", b"a,b\r\n", b"\na,b", b"\r\na,b",
           b"a,\nb", b"a\n,b", b"a,\n", b"a,\r\n", b'"a",b', b'"a","b"', b'"a",', b'"a,b",c', b'"a""b",c', b'"a"b,c', b'a"b,c',
           b'a,"b', b'a,"', b'"', b'""', b'"",""', b'"""",b', b'"""', b'""""', b'"a"",b"', b'"a"",b', b'"a",b"', b'"a"\n,b', b'"a"\r',
           b'a,"b"\r\n', b'a,"b"\n', b'"a\nb",c', b'"a\r\nb",c', b' "a",b', b'"a" ,b', b'a,"b" ', b"NA,b", b'"NA",b', b" NA,b",
           b"na,b", b"a\0b,c", b"\0,\0", b"a,b\0", b"\xff\xfe,\x80", b"a;b", b"a\tb", b"a b", b"a|b,c", b"''',b", b'","', b'",",b',
           b'a,""b""', b'"a""",b', b'"""a",b', b'"a,",b', b'",a",b', b'a,"b""', b'a,"b"c', b"a,b,", b"x" * 70 + b"," + b"y" * 70,
           b"x" * 63 + b"," + b"y", b"x" * 64 + b"," + b"y", b"x" * 55 + b',"y"', b"x" * 7 + b"," + b"y" * 8]


def number_rows():
    rows = []
    for kind, default in (("int32", 7), ("int64", 7), ("float32", 0.5), ("float64", 0.5)):
        dialect = Dialect([(kind, default)])
        for record in NUMBERS + [b'"' + n + b'"' for n in NUMBERS[:12]] + [b'"1,5"', b'""']:
            out, _ = refused_by_tf(lambda: dialect.theirs([record]))
            rows.append(row("decode_csv", dialect.attrs(), [strings([record])], out))
    return rows


def record_rows():
    two = [("string", b"d0"), ("string", b"d1")]
    dialects = [Dialect(two), Dialect([("string", None), ("string", b"")]), Dialect(two, quotes=False), Dialect(two, na=b"NA"),
                Dialect(two, delim=b";"), Dialect(two, delim=b"\t"), Dialect(two, delim=b" "), Dialect(two, delim=b'"'),
                Dialect(two, delim=b"\n"), Dialect(two, delim=b"b"), Dialect(two, delim=b"\0"), Dialect(two, select=[0, 1]),
                Dialect(two, select=[1, 2]), Dialect(two, select=[0, 2]), Dialect([("string", b"d")]),
                Dialect([("string", b"d")], select=[1]), Dialect([("string", b"d")], delim=b"\r")]
    rows = []
    for dialect in dialects:
        for record in RECORDS:
            out, _ = refused_by_tf(lambda: dialect.theirs([record]))
            rows.append(row("decode_csv", dialect.attrs(), [strings([record])], out))
    return rows


def batch_rows():
    """Many rows, so that several blocks and rows of all kinds occur."""
    rng = random.Random(12)
    kinds = [("int32", -1), ("float32", 0.25), ("string", b"none"), ("int64", 9), ("float64", -0.5), ("string", b"")]
    records = []
    for _ in range(150):
        fields = []
        for kind, _ in kinds:
            text = b"".join(rng.choices([b"ab", b" ", b"", b'"', b",", b"\n", b"x" * 17], k=rng.randrange(4))) if kind == "string" \
                else str(rng.randrange(-10**6, 10**6)).encode() if kind.startswith("int") \
                else f"{rng.uniform(-1000, 1000):.{rng.randrange(9)}f}".encode()
            if rng.random() < 0.2:
                text = b""
            if any(c in text for c in b'",\n') or rng.random() < 0.1:
                text = b'"' + text.replace(b'"', b'""') + b'"'
            fields.append(text)
        records.append(b",".join(fields))
    rows = []
    for n in (1, 63, 64, 65, 150):
        for dialect in (Dialect(kinds), Dialect([kinds[1], kinds[2], kinds[4]], select=[1, 2, 4])):
            rows.append(row("decode_csv", dialect.attrs(), [strings(records[:n])], dialect.theirs(records[:n])))
    return rows


# ---- the other ops ----

def hash_rows():
    rng = random.Random(13)
    rows = []
    values = [bytes(rng.randrange(256) for _ in range(n)) for n in [*range(132), 191, 192, 193, 255, 256, 257, 300]]
    for first in range(0, len(values), 35):
        part = values[first:first + 35]
        for op, call in (("string_to_hash_bucket_fast", tf.strings.to_hash_bucket_fast),
                         ("string_to_hash_bucket", tf.compat.v1.string_to_hash_bucket)):
            for buckets in (2**63 - 1,):
                rows.append(row(op, f"num_buckets={buckets}", [strings(part)], [call(tf.constant(part), buckets).numpy()]))
    return rows


FLOATS = [0.0, -0.0, 1.0, -1.5, 2.5, 126.5, -127.5, 1e-7, 0.1, 65504.0, float("inf"), float("-inf"), float("nan")]


def cast_rows():
    rows = []
    for source in ("float16", "bfloat16", "float32", "float64"):
        values = tf.cast(tf.constant(FLOATS, tf.float64), source)
        finite = tf.cast(tf.constant(FLOATS[:7], tf.float64), source)
        for target in ("float16", "bfloat16", "float32", "float64", "bool", "int32", "int64"):
            rows.append(row("cast", f'dtype="{target}"', [values.numpy()], [tf.cast(values, target).numpy()]))
        for target in ("int8", "int16"):
            rows.append(row("cast", f'dtype="{target}"', [finite.numpy()], [tf.cast(finite, target).numpy()]))
        for target in ("uint8", "uint16", "uint32", "uint64"):
            positive = tf.abs(finite)
            rows.append(row("cast", f'dtype="{target}"', [positive.numpy()], [tf.cast(positive, target).numpy()]))
    for source in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"):
        low, high = (0, 1) if source == "bool" else (np.iinfo(source).min, np.iinfo(source).max)
        values = tf.constant(np.array([low, high, 0, 1, min(high, 77)], source))
        for target in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "float16",
                       "bfloat16", "float32", "float64"):
            rows.append(row("cast", f'dtype="{target}"', [values.numpy()], [tf.cast(values, target).numpy()]))
    return rows


def shape_rows():
    rng = np.random.default_rng(14)
    rows = []
    for a_shape, b_shape in [((), ()), ((3,), ()), ((), (3,)), ((4, 1), (1, 5)), ((2, 3, 4), (3, 1)),
                             ((2, 1, 4, 1), (3, 1, 5)), ((0, 3), (1, 3)), ((1,), (0,)), ((2, 3), (2, 3))]:
        for dtype in ("float32", "int64", "uint8", "float16", "bfloat16"):
            a, b = (tf.cast(tf.constant(rng.integers(0, 100, s)), dtype) for s in (a_shape, b_shape))
            rows.append(row("maximum", "", [a.numpy(), b.numpy()], [tf.maximum(a, b).numpy()]))
    nan, other = tf.constant([float("nan"), 1.0, -0.0, 0.0]), tf.constant([1.0, float("nan"), 0.0, -0.0])
    rows.append(row("maximum", "", [nan.numpy(), other.numpy()], [tf.maximum(nan, other).numpy()]))
    for dtype in ("float32", "int8", "float64", "string"):
        def make(shape):
            values = tf.constant(rng.integers(-100, 100, shape))
            return tf.strings.as_string(values) if dtype == "string" else tf.cast(values, dtype)
        for shapes, axis in [([(2, 3), (4, 3)], 0), ([(2, 3), (2, 1), (2, 0)], 1), ([(2, 3, 2), (2, 1, 2)], -2), ([(3,)], 0),
                             ([(0, 3), (2, 3)], 0), ([()], 0)]:
            tensors = [make(s) for s in shapes]
            rows.append(row("concat", f"axis={axis}", [t.numpy() for t in tensors], [tf.concat(tensors, axis).numpy()]))
        for shape in [(), (3,), (2, 3), (0, 2)]:
            for axis in range(-len(shape) - 1, len(shape) + 1):
                tensors = [make(shape) for _ in range(2)]
                rows.append(row("stack", f"axis={axis}", [t.numpy() for t in tensors], [tf.stack(tensors, axis).numpy()]))
    for table_shape in [(4, 3), (4,), (4, 2, 2)]:
        for ids_shape in [(), (3,), (2, 2), (0,)]:
            table, ids = tf.constant(rng.integers(0, 100, table_shape)), tf.constant(rng.integers(0, 4, ids_shape), tf.int32)
            rows.append(row("embedding_lookup", "", [table.numpy(), ids.numpy()], [tf.nn.embedding_lookup(table, ids).numpy()]))
    return rows


def text_rows():
    options = ["", "precision=0", "precision=3", "precision=70", "scientific=true", "shortest=true", "shortest=true precision=17",
               "width=12", "width=0", "width=80 precision=70"] + [f'width=12 fill="{c}"' for c in " +-0#"] + ['fill="+"']
    rows = []
    sources = [tf.cast(tf.constant(FLOATS, tf.float64), d) for d in ("float16", "bfloat16", "float32", "float64")]
    sources += [tf.constant(np.array([np.iinfo(d).min, np.iinfo(d).max, 5], d))
                for d in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")]
    sources += [tf.constant([True, False]), tf.constant([b"a", b"", b"abcdefghijklmno", b"a\0b"])]
    for values in sources:
        for option in options:
            words = dict(w.split("=", 1) for w in option.replace('fill=" "', "fill=space").split())
            kwargs = {k: True if v == "true" else " " if v == "space" else v.strip('"') if k == "fill" else int(v)
                      for k, v in words.items()}
            want, _ = refused_by_tf(lambda: [tf.strings.as_string(values, **kwargs).numpy()])
            rows.append(row("as_string", option, [values.numpy()], want))
    return rows


def element_rows():
    """Two inputs of each dtype with every combination of shapes; then one input; then three."""
    rng = random.Random(15)
    shapes = [((), ()), ((3,), ()), ((), (3,)), ((2, 1), (1, 3)), ((2, 3), (3,)), ((0, 3), (1, 3)), ((4,), (4,))]
    rows = []
    for op, call in [*TWO.items(), *COMPARE.items()]:
        dtypes = ALL if op in ("equal", "not_equal") else NUMBER_DTYPES
        for k, dtype in enumerate(dtypes):
            for a, b in (shapes[k % 7], shapes[(k + 3) % 7]):
                x, y = random_values(rng, dtype, a), random_values(rng, dtype, b, zeros=False)
                rows.append(row(op, "", [x.numpy(), y.numpy()], [call(x, y).numpy()]))
    for op in ("logical_and", "logical_or"):
        x, y = random_values(rng, "bool", (8,)), random_values(rng, "bool", (8,))
        rows.append(row(op, "", [x.numpy(), y.numpy()], [getattr(tf, op)(x, y).numpy()]))
    for op in ("negative", "abs", "zeros_like", "ones_like", "logical_not"):
        for dtype in ALL:
            x = random_values(rng, dtype, rng.choice([(), (2, 3), (0, 2)]))
            try:
                want = [getattr(tf, op)(x).numpy()]
            except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, TypeError, ValueError):
                want = None
            rows.append(row(op, "", [x.numpy()], want))
    for dtype in ALL:
        condition, x, y = random_values(rng, "bool", (3, 1)), random_values(rng, dtype, (2,)), random_values(rng, dtype, ())
        rows.append(row("where", "", [condition.numpy(), x.numpy(), y.numpy()], [tf.where(condition, x, y).numpy()]))
    return rows


NUMBER_TEXTS = [b"0", b" 7 ", b"+5", b"-5", b"-0", b"", b" ", b"4294967295", b"4294967296", b"18446744073709551615", b"18446744073709551616",
                b"2147483648", b"1.5", b"1e-3", b"0x1p3", b"nan", b"-inf", b"1_0", b"1\0"]
TEXTS = [b"", b" ", b"a", b" a b ", b"\t\n\x0b\x0c\r Ab\xc3\x89 \xff", b"\0A\0", b"\xa0x", b"[@`{Zz", "\u00e9\U0001f600".encode(), b"x" * 70]


def string_rows():
    rows = []
    for dtype in ("float32", "float64", "int32", "int64", "uint32", "uint64"):
        for text in NUMBER_TEXTS:
            out, _ = refused_by_tf(lambda: [tf.strings.to_number([text], dtype).numpy()])
            rows.append(row("string_to_number", f'out_type="{dtype}"', [strings([text])], out))
    for op, call in (("string_strip", tf.strings.strip), ("string_lower", tf.strings.lower), ("string_upper", tf.strings.upper),
                     ("string_length", tf.strings.length)):
        rows.append(row(op, "", [strings(TEXTS).reshape(2, 5)], [call(tf.reshape(TEXTS, (2, 5))).numpy()]))
        rows.append(row(op, "", [TEXTS[3]], [call(tf.constant(TEXTS[3])).numpy()]))
        rows.append(row(op, "", [strings([])], [call(tf.zeros([0], tf.string)).numpy()]))
    rows.append(row("string_length", 'unit="UTF8_CHAR"', [strings(TEXTS)], [tf.strings.length(TEXTS, "UTF8_CHAR").numpy()]))
    texts = [b" a  b\tc\n", b"", b"  ", b"a,b,,c,", b",", b"a<>b<><>c<>", b"<<>>", b"a b "]
    for sep in (b"", b",", b"<>", b" "):
        for maxsplit in (-1, 0, 1, 2):
            attrs = f"sep={quote(sep)} maxsplit={maxsplit}"
            got = tf.strings.split(texts, sep, maxsplit)
            rows.append(row("string_split", attrs, [strings(texts)], [got.values.numpy(), got.row_splits.numpy()]))
            got = got.to_sparse()
            rows.append(row("string_split", attrs + ' result_type="sparse"', [strings(texts)],
                            [got.values.numpy(), got.indices.numpy(), got.dense_shape.numpy()]))
    for delimiter in (b" ", b"", b",<"):
        for skip in (True, False):
            got = tf.compat.v1.string_split(tf.constant(texts), delimiter, skip)
            rows.append(row("string_split", f'delimiter={quote(delimiter)} skip_empty={str(skip).lower()} result_type="sparse"',
                            [strings(texts)], [got.values.numpy(), got.indices.numpy(), got.dense_shape.numpy()]))
    values = [bytes(range(n)) for n in range(40)]
    for key in ([0, 0], [1, 2], [-1, 2**62]):
        rows.append(row("string_to_hash_bucket_strong", f"num_buckets={2**63 - 1} key={key}", [strings(values)],
                        [tf.strings.to_hash_bucket_strong(tf.constant(values), 2**63 - 1, key).numpy()]))
    return rows


def move_rows():
    """Positions of elements: every dtype once, every relevant shape."""
    rng = random.Random(16)
    rows = []

    def add(op, attrs, inputs, call):
        want, _ = refused_by_tf(call)
        want = None if want is None else [t.numpy() for t in (want if isinstance(want, list) else [want])]
        rows.append(row(op, attrs, [t.numpy() for t in inputs], want))
    for k, dtype in enumerate(ALL):
        x = random_values(rng, dtype, (2, 3, 4))
        add("reshape", "shape=[4, -1]", [x], lambda: tf.reshape(x, [4, -1]))
        add("expand_dims", f"axis={k % 7 - 4}", [x], lambda: tf.expand_dims(x, k % 7 - 4))
        add("transpose", "perm=[2, 0, 1]", [x], lambda: tf.transpose(x, [2, 0, 1]))
        add("transpose", "", [x], lambda: tf.transpose(x))
        add("slice", "begin=[1, 0, 1] size=[1, -1, 2]", [x], lambda: tf.slice(x, [1, 0, 1], [1, -1, 2]))
        add("split", "num_or_size_splits=[1, -1] axis=-1", [x], lambda: tf.split(x, [1, -1], -1))
        add("split", "num_or_size_splits=3 axis=1", [x], lambda: tf.split(x, 3, 1))
        add("pad", "paddings=[[0, 0], [1, 2], [0, 1]]", [x], lambda: tf.pad(x, [[0, 0], [1, 2], [0, 1]]))
        for mode in ("REFLECT", "SYMMETRIC"):
            add("pad", f'paddings=[[1, 0], [0, 2], [3, 1]] mode="{mode}"', [x],
                lambda: tf.pad(x, [[1, 0], [0, 2], [3, 1]], mode))
        indices = tf.constant([[2, 0], [1, 1]], tf.int32)
        add("gather", "axis=1", [x, indices], lambda: tf.gather(x, indices, axis=1))
        add("gather", "batch_dims=1 axis=2", [x, indices], lambda: tf.gather(x, indices, axis=2, batch_dims=1))
        cells, values = tf.constant([[0, 1], [1, 0], [1, 2]], tf.int64), random_values(rng, dtype, (3,))
        zero = tf.constant(b"" if dtype == "string" else 0, tf.string if dtype == "string" else tf.int32)
        default = zero if dtype == "string" else tf.cast(zero, dtype)
        add("sparse_to_dense", "output_shape=[2, 3]", [cells, values],
            lambda: tf.compat.v1.sparse_to_dense(cells, [2, 3], values, default))
    ids = tf.constant([[0, 2], [-1, 5]], tf.int64)
    for dtype in NUMBER_DTYPES:
        for axis in (-1, 0, 1):
            add("one_hot", f'depth=3 axis={axis} dtype="{dtype}" on_value=7 off_value=2', [ids],
                lambda: tf.one_hot(ids, 3, 7, 2, axis, dtype))
        add("sequence_mask", f'dtype="{dtype}"', [ids], lambda: tf.sequence_mask(ids, dtype=dtype))
        x = random_values(rng, dtype, (2, 3))
        add("clip_by_value", "clip_value_min=2 clip_value_max=50", [x], lambda: tf.clip_by_value(x, 2, 50))
    add("sequence_mask", "maxlen=4", [ids], lambda: tf.sequence_mask(ids, 4))
    for dtype in ("int32", "int64", "float32", "float64"):
        x = random_values(rng, dtype, (12,))
        add("bucketize", "boundaries=[-1.5, 0, 0, 7]", [x],
            lambda: tf.raw_ops.Bucketize(input=x, boundaries=[-1.5, 0, 0, 7]))
    texts = tf.constant([bytes(range(8)), bytes(range(248, 256))])
    for dtype in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16"):
        for little in (True, False):
            add("decode_raw", f'out_type="{dtype}" little_endian={str(little).lower()}', [texts],
                lambda: tf.io.decode_raw(texts, dtype, little))
    add("decode_raw", 'out_type="int16" fixed_length=10', [texts], lambda: tf.io.decode_raw(texts, "int16", fixed_length=10))
    x = random_values(rng, "float32", (4, 3))
    add("normalize", "mean=[0.5, 1.25, 3] std=[2.0, 3.0, 0.1]", [x],
        lambda: (x - tf.constant([0.5, 1.25, 3.0])) / tf.constant([2.0, 3.0, 0.1]))
    for dtype in ("int8", "int32", "int64"):
        x, y = random_values(rng, dtype, (6,)), tf.constant([0, 1, 2, 3, 7, 64], dtype)
        add("pow", "", [x, y], lambda: tf.pow(x, y))
    return rows


def sum_rows():
    """Whole numbers, so that the order of a sum does not matter."""
    rng = np.random.default_rng(17)
    rows = []
    for k, dtype in enumerate(NUMBER_DTYPES):
        x = tf.cast(tf.constant(rng.integers(0, 5, (2, 3, 2))), dtype)
        for op, call in (("reduce_sum", tf.reduce_sum), ("reduce_max", tf.reduce_max)):
            for axis in ([0], [1], [2], [0, 2], [1, 2], [0, 1, 2]):
                rows.append(row(op, f"axis={axis}", [x.numpy()], [call(x, axis).numpy()]))
        axis = k % 3
        rows.append(row("reduce_mean", f"axis={axis} keepdims=true", [tf.cast(x * 6, dtype).numpy()],
                        [tf.reduce_mean(x * 6, axis, True).numpy()]))
        bias = tf.cast(tf.constant(rng.integers(0, 9, (2,))), dtype)
        rows.append(row("bias_add", "", [x.numpy(), bias.numpy()], [tf.nn.bias_add(x, bias).numpy()]))
    for dtype in ("float16", "bfloat16", "float32", "float64", "int32", "int64"):
        for ta in (False, True):
            for tb in (False, True):
                a = tf.cast(tf.constant(rng.integers(-4, 5, (2, 1, 5, 3) if ta else (2, 1, 3, 5))), dtype)
                b = tf.cast(tf.constant(rng.integers(-4, 5, (2, 4, 5) if tb else (2, 5, 4))), dtype)
                rows.append(row("matmul", f"transpose_a={str(ta).lower()} transpose_b={str(tb).lower()}",
                                [a.numpy(), b.numpy()], [tf.matmul(a, b, ta, tb).numpy()]))
                rows.append(row("batch_matmul", f"adj_x={str(ta).lower()} adj_y={str(tb).lower()}",
                                [a.numpy(), b.numpy()], [tf.raw_ops.BatchMatMulV2(x=a, y=b, adj_x=ta, adj_y=tb).numpy()]))
    return rows


def example_rows():
    rng = random.Random(50)
    rows = []
    while len(rows) < 60:
        features = random_features(rng)[:rng.choice([1, 2, 4])]
        records = [random_record(rng, features, features) for _ in range(rng.choice([0, 1, 3, 5]))]
        x = tf.constant(records, tf.string, [len(records)])
        want, _ = refused_by_tf(lambda: [t.numpy() for t in theirs(features, x)])
        if sum(map(len, records)) < 1500:
            rows.append(row("parse_example", node(features)[0], [strings(records)], want))
    return rows


def cross_rows():
    columns = [tf.constant([[b"a", b""], [b"some longer text than that", b"\xff"]]), tf.constant([[1], [-7]], tf.int64),
               tf.constant([[b"x", b"y", b"z"], [b"x", b"", b"q"]])]
    rows = []
    for count in (1, 2, 3):
        for buckets, key in ((10, 0xDECAFCAFFE), (0, 0xDECAFCAFFE), (1000003, 5)):
            got = tf.raw_ops.SparseCross(indices=[], values=[], shapes=[], dense_inputs=columns[:count], hashed_output=True,
                                         num_buckets=buckets, hash_key=key, out_type=tf.int64, internal_type=tf.int64)
            attrs = f"num_buckets={buckets}" + ("" if key == 0xDECAFCAFFE else f" hash_key={key}")
            rows.append(row("cross", attrs, [c.numpy() for c in columns[:count]],
                            [tf.reshape(got.output_values, (2, -1)).numpy()]))
    return rows


def json_rows():
    """The results of Python's json."""
    rng = random.Random(9)
    words = ["", "a", "plain text", "\"quoted\" \\ /", "\n\t\r\b\f", "é", "😀", "\u2028", "x" * 70, "\x7f"]

    def value(dtype):
        return {"bool": lambda: rng.random() < 0.5, "int32": lambda: rng.choice([0, -1, 2**31 - 1, -2**31]),
                "int64": lambda: rng.choice([0, 7, -2**63, 2**63 - 1]), "string": lambda: rng.choice(words),
                "float32": lambda: rng.choice([0, 1.5, -1e30, 3.4e38, 0.1, 1e-45, -0.0]),
                "float64": lambda: rng.choice([0, 1.5, -1e300, 0.1, 5e-324, 12345678901234567890])}[dtype]()

    def box(dtype, shape):
        return [box(dtype, shape[1:]) for _ in range(shape[0])] if shape else value(dtype)

    rows = []
    for _ in range(40):
        names = sorted(rng.sample(["a", "b", "label", "user id", "é", "x/y"], rng.choice([1, 2, 4])))
        names = [n for n in names if n not in ("user id", "é")] or ["a"]
        features = {n: (rng.choice(["bool", "int32", "int64", "float32", "float64", "string"]),
                        rng.choice([[], [], [2], [1, 3]]), rng.random() < 0.5) for n in names}
        records = []
        for _ in range(rng.choice([0, 1, 4])):
            members = [(n, None if default and rng.random() < 0.2 else box(dtype, shape))
                       for n, (dtype, shape, default) in features.items() if not default or rng.random() < 0.8]
            members += [("other", rng.choice([None, {"k": [1, {"m": "]"}]}, [[], {}], "x"]))] * rng.choice([0, 1])
            rng.shuffle(members)
            text = json.dumps(dict(members), ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
            records.append(text.encode())
        parsed = [json.loads(r) for r in records]
        attrs, want = [], []
        for n, (dtype, shape, default) in features.items():
            fill = {"string": "none", "bool": True}.get(dtype, 3)
            attrs.append(f'features/{n}/dtype="{dtype}" features/{n}/shape={shape}')
            if default:
                attrs[-1] += f" features/{n}/default_value=" + {"string": '"none"', "bool": "true"}.get(dtype, "3")
            column = np.empty([len(records), *shape], object)
            for i, record in enumerate(parsed):
                if not shape:
                    column[i] = record.get(n) if record.get(n) is not None else fill
                else:
                    column[i] = np.array(record[n], object) if record.get(n) is not None else fill
            if dtype == "string":
                flat = [text.encode() for text in column.reshape(-1).tolist()]
                column = strings(flat).reshape(column.shape)
            else:
                column = column.astype(dtype)
            want.append(column)
        rows.append(row("parse_json", " ".join(attrs), [strings(records)], want))
    return rows


# ---- parts of models ----

def augru_reference(x, scores, kernel, back, bias, lengths):
    """VecAttGRUCell of DIEN in the order of Keras's gates, reset_after=False."""
    n = back.shape[0]
    state, out = np.zeros((x.shape[0], n)), np.zeros((*x.shape[:2], n))
    for t in range(x.shape[1]):
        gates = x[:, t] @ kernel + bias
        z = 1 / (1 + np.exp(-(gates[:, :n] + state @ back[:, :n])))
        r = 1 / (1 + np.exp(-(gates[:, n:2 * n] + state @ back[:, n:2 * n])))
        candidate = np.tanh(gates[:, 2 * n:] + (r * state) @ back[:, 2 * n:])
        z = (1 - scores[:, t:t + 1]) * z
        after = z * state + (1 - z) * candidate
        state = np.where((t < lengths)[:, None], after, state)
        out[:, t] = state
    return out, state


def recurrent_rows():
    rng = np.random.default_rng(16)
    rows = []
    for dtype in ("float32", "float64"):
        for after in (True, False):
            for batch, steps, n_in, n in ((2, 3, 2, 2), (1, 1, 3, 1), (3, 4, 1, 3), (0, 2, 2, 1), (2, 0, 1, 2)):
                x = rng.normal(size=(batch, steps, n_in)).astype(dtype)
                layer = tf.keras.layers.GRU(n, reset_after=after, return_sequences=True, return_state=True, dtype=dtype)
                layer.build(x.shape)
                weights = [rng.normal(size=w.shape).astype(dtype) for w in layer.get_weights()]
                layer.set_weights(weights)
                attrs = f"reset_after={str(after).lower()}"
                if batch and steps:
                    want = [np.asarray(t) for t in layer(x)]
                    rows.append(row("gru", attrs, [x, *weights], want))
                    lengths = rng.integers(1, steps + 1, batch).astype("int32")
                    mask = np.arange(steps) < lengths[:, None]
                    want = [np.asarray(t) for t in layer(x, mask=tf.constant(mask))]
                    rows.append(row("gru", attrs, [x, *weights, lengths], want))
                else:
                    want = [np.zeros((batch, steps, n), dtype), np.zeros((batch, n), dtype)]
                    rows.append(row("gru", attrs, [x, *weights], want))
    for batch, steps, n_in, n in ((2, 3, 2, 2), (3, 5, 2, 4)):
        x, scores = rng.normal(size=(batch, steps, n_in)), rng.uniform(size=(batch, steps))
        weights = [rng.normal(size=s) for s in ((n_in, 3 * n), (n, 3 * n), (3 * n,))]
        for lengths in (np.full(batch, steps), rng.integers(0, steps + 1, batch)):
            want = augru_reference(x, scores, *weights, lengths)
            rows.append(row("augru", "reset_after=false", [x, scores, *weights, lengths], want))
    return rows


def combined(table, ids, splits, weights, combiner):
    """tf.nn.embedding_lookup_sparse through RaggedTensor; rows at the end that it drops are 0."""
    ids = tf.RaggedTensor.from_row_splits(ids, splits)
    if weights is not None:
        weights = tf.RaggedTensor.from_row_splits(weights, splits)
    out = tf.nn.embedding_lookup_sparse(tf.constant(table), ids.to_sparse(), weights.to_sparse() if weights is not None else None,
                                        combiner=combiner).numpy()
    missing = len(splits) - 1 - out.shape[0]
    return np.concatenate([out, np.zeros((missing, *out.shape[1:]), out.dtype)])


def embedding_rows():
    rng = np.random.default_rng(17)
    rows = []
    for combiner in ("sum", "mean", "sqrtn"):
        for dtype in ("float32", "float64"):
            for weighted in (False, True):
                table = rng.normal(size=(7, 3)).astype(dtype)
                lengths = rng.integers(0, 4, 6)
                splits = np.concatenate([[0], np.cumsum(lengths)]).astype("int64")
                ids = rng.integers(0, 7, splits[-1]).astype(rng.choice(["int32", "int64"]))
                weights = rng.uniform(0.1, 2, splits[-1]).astype(dtype) if weighted else None
                want = combined(table, ids, splits, weights, combiner)
                attrs = f'combiner="{combiner}"' + (" weighted=true" if weighted else "")
                last = [weights] if weighted else []
                rows.append(row("embedding_lookup", attrs, [table, ids, splits, *last], [want]))
                indices = np.array([[r, k] for r in range(6) for k in range(lengths[r])], "int64").reshape(-1, 2)
                rows.append(row("embedding_lookup", attrs, [table, ids, indices, np.array([6, 3]), *last], [want]))
    return rows


def masked_rows():
    rng = np.random.default_rng(18)
    rows = []
    for dtype in ("float32", "float64"):
        for shape, axis in (((3, 4), -1), ((2, 3, 2), 1), ((5,), 0)):
            x = rng.normal(size=shape).astype(dtype)
            mask = rng.random(shape) < 0.6
            np.moveaxis(mask, axis, 0)[0] = True
            want = tf.keras.layers.Softmax(axis=axis, dtype=dtype)(x, mask=tf.constant(mask)).numpy()
            rows.append(row("softmax", f"axis={axis}", [x, mask], [want]))
    return rows


# ---- images ----

def image_row(op, attrs, inputs, call):
    """TensorFlow's inputs are those of the op, strings as bytes."""
    return row(op, attrs, inputs, [call().numpy()])


def jpeg_rows(rng):
    color, gray, four = (image_files.picture(rng, h, w, c) for h, w, c in ((13, 21, 3), (9, 10, 1), (8, 9, 4)))
    files = [image_files.jpeg(color, quality=75, subsampling=2), image_files.jpeg(color, quality=60, subsampling=0),
             image_files.jpeg(color, quality=75, subsampling=1, progressive=True), image_files.jpeg(gray, "L"),
             image_files.jpeg(four, "CMYK", quality=90)]
    rows = []
    for i, data in enumerate(files):
        for attrs, options in (("", {}), ("channels=3", {"channels": 3}), ("ratio=2", {"ratio": 2}),
                               ("channels=1", {"channels": 1}), ("fancy_upscaling=false", {"fancy_upscaling": False})):
            if i == 4 and "channels" in options:
                continue
            rows.append(image_row("decode_jpeg", attrs, [data], lambda: tf.io.decode_jpeg(
                data, dct_method="INTEGER_ACCURATE", **options)))
    window = np.array([3, 9, 7, 11], np.int32)
    for data in files[:3]:
        # decode_and_crop_jpeg has another last column, where chroma is interpolated.
        rows.append(image_row("decode_jpeg", "", [data, window], lambda: tf.io.decode_jpeg(
            data, dct_method="INTEGER_ACCURATE")[3:10, 9:20]))
    rows.append(image_row("decode_image", "channels=1", [files[3]], lambda: tf.io.decode_jpeg(
        files[3], 1, dct_method="INTEGER_ACCURATE")))
    return rows


def png_rows(rng):
    rows = []
    for color, depths in image_files.DEPTHS.items():
        for depth in depths:
            for transparent in (False, True):
                data = image_files.random_png(rng, color, depth, transparent, 7)
                # If TensorFlow generates alpha, it is not opaque below 8 bits.
                made_up = depth < 8 and not transparent and color in (image_files.GRAY, image_files.PALETTE)
                for channels in (0, 1, 3) + (() if made_up else (4,)):
                    dtype = rng.choice(["uint8", "uint16"])
                    rows.append(image_row("decode_png", f'channels={channels} dtype="{dtype}"', [data],
                                          lambda: tf.io.decode_png(data, channels, dtype)))
    rows.append(image_row("decode_image", "channels=3", [data], lambda: tf.io.decode_png(data, 3)))
    return rows


def resize_rows(rng):
    rows = []
    for shape, size in (((5, 7, 3), [3, 4]), ((3, 4, 1), [7, 9]), ((4, 20, 4), [4, 6]), ((2, 3, 5, 2), [5, 3]),
                        ((1, 1, 3), [2, 3]), ((6, 5, 3), [6, 5])):
        dtype = rng.choice(["uint8", "uint16", "float32"])
        x = rng.randint(0, 256, shape).astype(dtype)
        for half, corners in ((True, False), (False, False), (False, True)):
            attrs = f"size={size} half_pixel_centers={str(half).lower()} align_corners={str(corners).lower()}"
            rows.append(image_row("resize_bilinear", attrs, [x], lambda: tf.reshape(tf.raw_ops.ResizeBilinear(
                images=x.reshape((-1, *shape[-3:])), size=size, align_corners=corners, half_pixel_centers=half),
                shape[:-3] + (*size, shape[-1]))))
    return rows


def image_rows():
    rng = np.random.RandomState(11)
    rows = jpeg_rows(rng) + png_rows(rng) + resize_rows(rng)
    for shape, fraction in (((7, 10, 3), 0.5), ((8, 5, 1), 0.875), ((2, 9, 9, 2), 0.33), ((3, 3, 3), 1.0)):
        x = rng.randint(0, 256, shape).astype("uint8")
        rows.append(image_row("center_crop", f"central_fraction={fraction}", [x],
                              lambda: tf.convert_to_tensor(tf.image.central_crop(x, fraction))))
    x = rng.randint(0, 256, (4, 5, 3)).astype("uint8")
    mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
    want = ((x - np.float32(mean)) / np.float32(std)).transpose(2, 0, 1)
    for dtype in ("float32", "float16"):
        rows.append(row("normalize_image", f'mean={mean} std={std} dtype="{dtype}"', [x], [want.astype(dtype)]))
    return rows


TABLES = {"decode_csv_numbers": number_rows, "decode_csv_records": record_rows, "decode_csv_batches": batch_rows,
          "hash_bucket": hash_rows, "cast": cast_rows, "shapes": shape_rows, "as_string": text_rows,
          "elementwise": element_rows, "strings": string_rows, "moves": move_rows, "sums": sum_rows, "example": example_rows,
          "cross": cross_rows, "json": json_rows, "recurrent": recurrent_rows, "embedding": embedding_rows,
          "masked": masked_rows, "images": image_rows}


def main():
    os.makedirs(os.path.join(HERE, "golden"), exist_ok=True)
    for name in sys.argv[1:] or TABLES:
        write(f"{name}.rows", TABLES[name]())


if __name__ == "__main__":
    main()
