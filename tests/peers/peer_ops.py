#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every op against TensorFlow's: the same values, bit by bit, and the same inputs refused.

    peer_ops.py BUILD [SECONDS]     SECONDS: how long decode_csv is fuzzed (default 20)
"""
import os
import random
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from op_tool import OpError, OpTool, quote  # noqa: E402

TF_TYPES = {"int32": tf.int32, "int64": tf.int64, "float32": tf.float32, "float64": tf.float64,
            "string": tf.string}
FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def bits(array):
    if array.dtype == object:
        return array
    return np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")


def as_bits(array):
    """numpy arrays unchanged, TensorFlow's bfloat16 as its bits, its scalar strings as arrays."""
    if isinstance(array, bytes):
        return np.array(array, object)
    return bits(array) if array.dtype.name == "bfloat16" else array


def same(got, want, what):
    want = as_bits(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        raise AssertionError(f"{what}: {got.dtype}{got.shape}, TensorFlow {want.dtype}{want.shape}")
    different = bits(got) != bits(want)
    if got.dtype.kind == "f":
        # The bits of a NaN may differ between compilers, except for those that a text names.
        different &= ~(np.isnan(got) & np.isnan(want))
    if np.any(different):
        i = tuple(np.argwhere(different)[0])
        raise AssertionError(f"{what}: at {i} {got[i]!r}, TensorFlow {want[i]!r}")


def strings(values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


# ---- decode_csv ----

class Dialect:
    """The attributes of one decode_csv, and both ways to call it."""

    def __init__(self, columns, delim=b",", quotes=True, na=b"", select=None):
        self.columns = columns      # (dtype, default or None)
        self.delim, self.quotes, self.na, self.select = delim, quotes, na, select

    def attrs(self):
        defaults = []
        for dtype, default in self.columns:
            if default is None:
                defaults.append("null")
            elif dtype == "string":
                defaults.append(quote(default))
            else:
                defaults.append(repr(default))
        text = f"record_defaults=[{', '.join(defaults)}]"
        plain = {"int32": int, "float32": float, "string": bytes}
        if any(not isinstance(default, plain.get(dtype, tuple)) for dtype, default in self.columns):
            text += " out_type=[" + ", ".join(f'"{dtype}"' for dtype, _ in self.columns) + "]"
        if self.delim != b",":
            text += f" field_delim={quote(self.delim)}"
        if not self.quotes:
            text += " use_quote_delim=false"
        if self.na:
            text += f" na_value={quote(self.na)}"
        if self.select is not None:
            text += f" select_cols=[{', '.join(map(str, self.select))}]"
        return text

    def ours(self, tool, records):
        return tool.op("decode_csv", [strings(records)], self.attrs(), len(self.columns))

    def theirs(self, records):
        defaults = [tf.constant([] if default is None else [default], TF_TYPES[dtype])
                    for dtype, default in self.columns]
        out = tf.raw_ops.DecodeCSV(records=tf.constant(records, tf.string), record_defaults=defaults,
                                   field_delim=self.delim, use_quote_delim=self.quotes,
                                   na_value=self.na, select_cols=self.select or [])
        return [t.numpy() for t in out]


def refused_by_tf(call):
    """(outputs, None) or (None, reason). If TensorFlow's message contains invalid UTF-8, Python raises
    UnicodeDecodeError instead of the error itself."""
    try:
        return call(), None
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as e:
        return None, str(e)


def compare_csv(tool, dialect, records):
    want, reason = refused_by_tf(lambda: dialect.theirs(records))
    what = f"{dialect.attrs()} on {records!r}"
    try:
        got = dialect.ours(tool, records)
    except OpError as e:
        if reason is None:
            raise AssertionError(f"{what}: refused ({e.text}), TensorFlow gives {want}") from None
        if not 0 <= e.row < len(records):
            raise AssertionError(f"{what}: no row in \"{e.text}\"") from None
        return False
    if reason is not None:
        raise AssertionError(f"{what}: gives {got}, TensorFlow refuses: {reason}")
    for c, (g, w) in enumerate(zip(got, want)):
        if g.dtype != w.dtype or np.any(bits(g) != bits(w)):
            raise AssertionError(f"{what}: column {c} is {g!r}, TensorFlow's {w!r}")
    return True


NUMBER_PARTS = [b"0", b"1", b"9", b"5", b"12", b"00", b".", b"-", b"+", b"e", b"E", b"e-", b"e+3", b"e38",
                b"e-45", b"e-324", b"e308", b" ", b"\t", b"\x0b", b"\x0c", b"\x00", b"inf", b"INFINITY",
                b"nan", b"NaN", b"nan(12)", b"nan(0x7)", b"0x", b"0X1.", b"p", b"p-1074", b"a", b"f", b"_",
                b"2147483647", b"2147483648", b"9223372036854775807", b"9223372036854775808",
                b"16777217", b"9007199254740993", b"3.4028235", b"\xa0", b"\xff", b"(", b")"]


def random_number(rng):
    kind = rng.randrange(8)
    if kind == 0:
        return b"".join(rng.choice(NUMBER_PARTS) for _ in range(rng.randrange(1, 5)))
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice([1, 2, 3, 5, 7, 8, 9, 12, 17, 19, 20, 40])))
    sign = rng.choice(["", "", "-", "+"])
    if kind == 1:
        return (sign + digits).encode()
    if kind == 2:
        point = rng.randrange(len(digits) + 1)
        return (sign + digits[:point] + "." + digits[point:]).encode()
    if kind == 3:
        point = rng.randrange(len(digits) + 1)
        exponent = rng.choice([rng.randrange(-60, 60), rng.randrange(-400, 400), rng.randrange(-12, 12)])
        return f"{sign}{digits[:point]}.{digits[point:]}e{exponent}".encode()
    if kind == 4:  # exactly, or almost, half-way between two floats
        half = np.uint32(rng.getrandbits(31)).view(np.float32) if rng.random() < 0.5 else np.float32(rng.random())
        if not np.isfinite(half):
            return b"1"
        middle = (float(half) + float(np.nextafter(half, np.float32(np.inf)))) / 2
        return (repr(middle) + rng.choice(["", "0000000000000000000001", "1"])).encode()
    if kind == 5:
        return repr(np.uint64(rng.getrandbits(63)).view(np.float64)).encode().replace(b"np.float64(", b"").rstrip(b")")
    if kind == 6:
        return float(rng.uniform(-100, 100)).hex().encode()
    return str(rng.randrange(-2**rng.randrange(1, 66), 2**rng.randrange(1, 66))).encode()


def random_text(rng, delim):
    alphabet = [b"a", b"b", b" ", b"", b"NA", b"\"\"", b"\"", b"\r", b"\n", b"\x00", b"\xff", delim, b"x" * 20]
    weights = [8, 8, 4, 6, 3, 2, 2, 1, 1, 1, 1, 1, 1]
    return b"".join(rng.choices(alphabet, weights, k=rng.randrange(0, 5)))


def random_field(rng, dtype, delim):
    text = b"" if rng.random() < 0.15 else random_text(rng, delim) if dtype == "string" or rng.random() < 0.05 \
        else random_number(rng)
    if rng.random() < 0.3:
        text = b'"' + (text if rng.random() < 0.1 else text.replace(b'"', b'""')) + b'"'
    if rng.random() < 0.03:
        text += rng.choice([b"\r", b"\n", b"\r\n", b'"', b" "])
    if rng.random() < 0.03:
        text = rng.choice([b"\r", b"\n", b" ", b'"']) + text
    return text


def random_dialect(rng):
    columns = []
    for _ in range(rng.choice([1, 1, 2, 3, 5])):
        dtype = rng.choice(list(TF_TYPES))
        default = None
        if rng.random() < 0.7:
            default = rng.choice([b"", b"dd", b"d" * 20]) if dtype == "string" else \
                rng.randrange(-9, 9) if dtype.startswith("int") else rng.choice([0.5, -1.0, 1e30])
        columns.append((dtype, default))
    delim = rng.choice([b","] * 8 + [b"\t", b" ", b";", b"|", b"a", b"1", b"-", b".", b'"', b"\n", b"\r", b"\x00"])
    select = None
    if rng.random() < 0.25:
        select = sorted(rng.sample(range(len(columns) + 3), len(columns)))
    return Dialect(columns, delim, rng.random() < 0.85, rng.choice([b"", b"", b"NA", b"-1", b"0"]), select)


def random_record(rng, dialect):
    n = (dialect.select[-1] + 1 + rng.randrange(2)) if dialect.select else len(dialect.columns)
    n += rng.choice([0] * 12 + [1, -1])
    fields = []
    for f in range(max(n, 0)):
        column = dialect.select.index(f) if dialect.select and f in dialect.select else f if not dialect.select else -1
        dtype = dialect.columns[column][0] if 0 <= column < len(dialect.columns) else "string"
        fields.append(random_field(rng, dtype, dialect.delim))
    return dialect.delim.join(fields)


def csv_gives_the_same_values_and_refuses_the_same_records(tool, seconds, seed=1):
    rng = random.Random(seed)
    end, n, accepted = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        dialect = random_dialect(rng)
        for _ in range(20):
            accepted += compare_csv(tool, dialect, [random_record(rng, dialect)])
            n += 1
    print(f"    {n} records, {accepted} accepted")
    assert accepted > n / 10


def csv_numbers_are_rounded_as_tensorflow_rounds_them(tool, seconds, seed=2):
    """One column. Records that TensorFlow accepts also run all at once, so that neighbours and the end of the buffer
    make no difference."""
    rng = random.Random(seed)
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        dtype = rng.choice(["float32", "float64", "int32", "int64", "float32"])
        dialect = Dialect([(dtype, 0 if dtype.startswith("int") else 0.0)])
        good = []
        for _ in range(100):
            record = random_number(rng)
            good += [record] if compare_csv(tool, dialect, [record]) else []
            n += 1
        if good:
            assert compare_csv(tool, dialect, good)
    print(f"    {n} numbers")


def csv_short_decimals_are_all_right(tool, _seconds):
    """Every number of up to four digits with the point anywhere, and a million longer ones."""
    rng = random.Random(3)
    records = []
    for digits in range(1, 5):
        for value in range(10 ** digits):
            text = f"{value:0{digits}d}"
            records += [(text[:p] + "." + text[p:]).encode() for p in range(digits + 1)] + [text.encode()]
    for _ in range(1000000):
        text = str(rng.randrange(10 ** rng.randrange(4, 19)))
        p = rng.randrange(len(text) + 1)
        records.append((rng.choice(["", "-"]) + text[:p] + "." + text[p:]).encode())
    for dtype in ("float32", "float64"):
        assert compare_csv(tool, Dialect([(dtype, 0.25)]), records)


# ---- the other ops ----

def hashes_of_all_lengths(tool, _seconds):
    rng = random.Random(4)
    values = [bytes(rng.randrange(256) for _ in range(n)) for n in range(301) for _ in range(3)]
    values += [b"\0" * n for n in range(100)] + [b"68fd1e64", b"05db9164"]
    for buckets in (1, 10, 1000000, 2**31, 2**63 - 1):
        attrs = f"num_buckets={buckets}"
        same(tool.op("string_to_hash_bucket_fast", [strings(values)], attrs)[0],
             tf.strings.to_hash_bucket_fast(values, buckets).numpy(), f"fast {buckets}")
        same(tool.op("string_to_hash_bucket", [strings(values)], attrs)[0],
             tf.compat.v1.string_to_hash_bucket(tf.constant(values), buckets).numpy(), f"legacy {buckets}")


def feed_of(tensor):
    """(array to send, name of its dtype) of a TensorFlow tensor."""
    return as_bits(tensor.numpy()), tensor.dtype.name


def run_op(tool, op, tensors, attrs=""):
    pairs = [feed_of(t) for t in tensors]
    return tool.op(op, [a for a, _ in pairs], attrs, 1, {i: name for i, (_, name) in enumerate(pairs)})[0]


def interesting_floats(rng, dtype):
    values = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-8, 5.96e-8, 2.98e-8, 65504.0, 65519.9, 65520.0, 3e38,
              float("inf"), float("-inf"), float("nan"), 126.9, 127.9, -128.9, 255.9, 32767.9]
    values += [rng.uniform(-1, 1) * 10.0 ** rng.randrange(-40, 38) for _ in range(2000)]
    # TensorFlow's kernels flush subnormals of float32 to zero; stager's do not.
    values = [v for v in values if not 0 < abs(v) < 1.2e-38]
    return tf.cast(tf.constant(values, tf.float64), dtype)


def casts(tool, _seconds):
    rng = random.Random(5)
    limits = {d: (np.iinfo(d).min, np.iinfo(d).max) for d in INTS}
    for source in FLOATS:
        values = interesting_floats(rng, source)
        wide = tf.cast(values, tf.float64).numpy()
        for target in FLOATS + ["bool"]:
            same(run_op(tool, "cast", [values], f'dtype="{target}"'), tf.cast(values, target).numpy(),
                 f"{source} to {target}")
        for target in INTS:
            # Outside the target's range TensorFlow's result depends on the position in the tensor.
            low, high = limits[target]
            inside = tf.boolean_mask(values, np.isfinite(wide) & (np.trunc(wide) >= low) & (np.trunc(wide) < high))
            same(run_op(tool, "cast", [inside], f'dtype="{target}"'), tf.cast(inside, target).numpy(),
                 f"{source} to {target}")
        for target in ("int32", "int64"):
            same(run_op(tool, "cast", [values], f'dtype="{target}"'), tf.cast(values, target).numpy(),
                 f"{source} to {target}, out of range")
    for source in INTS + ["bool"]:
        low, high = limits.get(source, (0, 1))
        numbers = [low, high, 0, 1] + [rng.randrange(low, high + 1) for _ in range(1000)]
        values = tf.constant(np.array(numbers, source))
        for target in INTS + FLOATS + ["bool"]:
            same(run_op(tool, "cast", [values], f'dtype="{target}"'), tf.cast(values, target).numpy(),
                 f"{source} to {target}")


def maxima(tool, _seconds):
    rng = np.random.default_rng(6)
    shapes = [((), ()), ((3,), ()), ((), (3,)), ((4, 1), (1, 5)), ((2, 3, 4), (3, 1)), ((2, 1, 4, 1), (3, 1, 5)),
              ((0, 3), (1, 3)), ((2, 3), (2, 3)), ((1,), (0,)), ((5, 1, 1), (1, 6, 7))]
    for dtype in FLOATS + INTS:
        for a_shape, b_shape in shapes:
            a, b = (tf.cast(tf.constant(rng.integers(0, 100, s), tf.int64), dtype) for s in (a_shape, b_shape))
            same(run_op(tool, "maximum", [a, b]), tf.maximum(a, b).numpy(), f"{dtype} {a_shape} {b_shape}")
    for dtype in FLOATS:
        nan = tf.constant([float("nan"), 1.0, float("nan"), -0.0, 0.0], dtype)
        other = tf.constant([1.0, float("nan"), float("nan"), -1.0, -2.0], dtype)
        same(run_op(tool, "maximum", [nan, other]), tf.maximum(nan, other).numpy(), f"{dtype} NaN")
    for a_shape, b_shape in [((2,), (3,)), ((2, 3), (3, 2))]:
        try:
            run_op(tool, "maximum", [tf.zeros(a_shape), tf.zeros(b_shape)])
        except OpError as e:
            assert "do not broadcast" in e.text, e.text
        else:
            raise AssertionError(f"{a_shape} and {b_shape} went together")


def logarithms(tool, _seconds):
    """float32 within one unit in the last place of the true value; the other widths equal TensorFlow's."""
    rng = random.Random(7)
    x = interesting_floats(rng, "float32").numpy()
    x = np.concatenate([x, np.random.default_rng(8).integers(0, 2**32, 1000000, np.uint32).view(np.float32)])
    with np.errstate(all="ignore"):
        true = np.log1p(x.astype(np.float64))
        got = tool.op("log1p", [x])[0]
        want = true.astype(np.float32)
        assert np.array_equal(np.isnan(got), np.isnan(want))
        finite = np.isfinite(want) & np.isfinite(got)
        assert np.array_equal(got[~finite & ~np.isnan(got)], want[~finite & ~np.isnan(want)])
        error = np.abs(got[finite].astype(np.float64) - true[finite]) / np.spacing(np.abs(want[finite])).astype(np.float64)
    print(f"    float32: at most {error.max():.4f} units in the last place")
    assert error.max() <= 1.0
    for dtype, units in (("float64", 2), ("float16", 1), ("bfloat16", 1)):
        values = tf.abs(interesting_floats(rng, dtype))
        got, want = run_op(tool, "log1p", [values]), as_bits(tf.math.log1p(values).numpy())
        nan = np.isnan(tf.cast(values, tf.float64).numpy())
        apart = np.abs(bits(got).astype(object) - bits(want).astype(object))[~nan]
        assert max(apart) <= units, f"{dtype}: {max(apart)} units apart"


def joins(tool, _seconds):
    rng = np.random.default_rng(9)
    for dtype in ["float32", "int64", "int8", "float64", "string"]:
        def make(shape):
            values = tf.constant(rng.integers(-100, 100, shape), tf.int64)
            return tf.strings.as_string(values) if dtype == "string" else tf.cast(values, dtype)
        for shapes, axis in [([(2, 3), (4, 3)], 0), ([(2, 3), (2, 1), (2, 0)], 1), ([(2, 3, 4), (2, 5, 4)], -2),
                             ([(3,)], 0), ([(0, 3), (2, 3)], 0), ([(1, 2, 1), (1, 2, 6)], 2)]:
            tensors = [make(s) for s in shapes]
            same(run_op(tool, "concat", tensors, f"axis={axis}"), tf.concat(tensors, axis).numpy(), f"concat {shapes}")
        for shape in [(), (5,), (2, 3), (0, 2), (2, 3, 4)]:
            for axis in range(-len(shape) - 1, len(shape) + 1):
                tensors = [make(shape) for _ in range(3)]
                same(run_op(tool, "stack", tensors, f"axis={axis}"), tf.stack(tensors, axis).numpy(),
                     f"stack {shape} {axis}")


def lookups(tool, _seconds):
    rng = np.random.default_rng(10)
    for dtype in ["float32", "float64", "int32", "float16"]:
        for table_shape in [(7, 3), (7,), (7, 2, 2)]:
            for ids_shape in [(), (5,), (2, 3), (0,)]:
                table = tf.cast(tf.constant(rng.integers(0, 100, table_shape)), dtype)
                ids = tf.constant(rng.integers(0, 7, ids_shape), tf.int64)
                for kind in (tf.int32, tf.int64):
                    same(run_op(tool, "embedding_lookup", [table, tf.cast(ids, kind)]),
                         tf.nn.embedding_lookup(table, tf.cast(ids, kind)).numpy(), f"{table_shape} {ids_shape}")
    for bad in (-1, 7):
        try:
            run_op(tool, "embedding_lookup", [tf.zeros([7, 2]), tf.constant([[0, 1], [2, bad]])])
        except OpError as e:
            assert e.row == 1 and str(bad) in e.text, e.text
        else:
            raise AssertionError(f"id {bad} was found")


def texts(tool, _seconds):
    rng = random.Random(11)
    options = [dict(), dict(precision=0), dict(precision=3), dict(precision=60), dict(scientific=True),
               dict(scientific=True, precision=9), dict(shortest=True), dict(shortest=True, precision=17),
               dict(width=12), dict(width=70, precision=60), dict(width=0)]
    options += [dict(width=12, fill=fill) for fill in " +-0#"] + [dict(fill="+"), dict(width=9, fill="x"), dict(fill="00"),
                dict(scientific=True, shortest=True)]
    sources = [interesting_floats(rng, dtype) for dtype in FLOATS]
    sources += [tf.constant(np.array([np.iinfo(d).min, np.iinfo(d).max, 0, 5], d)) for d in INTS]
    sources += [tf.constant([True, False]), tf.constant([b"a", b"", b"abcdefghijklmno", b"a\0b"])]
    for values in sources:
        for option in options:
            attrs = " ".join(f"{k}={str(v).lower() if isinstance(v, bool) else quote(v.encode()) if isinstance(v, str) else v}"
                             for k, v in option.items())
            want, reason = refused_by_tf(lambda: tf.strings.as_string(values, **option).numpy())
            what = f"as_string {values.dtype.name} {option}"
            try:
                got = run_op(tool, "as_string", [values], attrs)
            except OpError as e:
                assert reason is not None, f"{what}: refused: {e.text}"
                continue
            assert reason is None, f"{what}: TensorFlow refuses: {reason}"
            same(got, want, what)


def constants(tool, _seconds):
    cases = [("1", 1, {}), ("2147483648", 2**31, {}), ("1.5", 1.5, {}), ("true", True, {}), ('"a"', "a", {}),
             ("[1, 2.5]", [1, 2.5], {}), ("[[1, 2], [3, 4]]", [[1, 2], [3, 4]], {}), ("[]", [], {}),
             ("1", 1, dict(dtype="float32")), ("[2049, 1e9]", [2049, 1e9], dict(dtype="float16")),
             ("1", 1, dict(shape=[2, 3])), ("[1, 2, 3, 4]", [1, 2, 3, 4], dict(shape=[2, 2])),
             ('"xx"', "xx", dict(shape=[3])), ("1", 1, dict(shape=[0])), ("0.1", 0.1, dict(dtype="float64"))]
    for text, value, extra in cases:
        attrs = f"value={text}" + "".join(f" {k}={quote(v.encode()) if isinstance(v, str) else v}" for k, v in extra.items())
        got = tool.run(f"c = constant() {attrs}\nfeature f = c\n", [])[0]
        same(got, tf.constant(value, **extra).numpy(), attrs)


def the_program_of_the_seeds(tool, _seconds):
    """decode, stage, hash, look up, concat, as_string, stack, concat: the target is [4, 3] strings."""
    text = """element record string [-1]
v = decode_csv(record) record_defaults=[[""], [""]]
feature 0 = v:0
feature 1 = v:1
var = variable() shape=[100, 3] initializer="ones"
bucket = string_to_hash_bucket(staged:0) num_buckets=10
rows = embedding_lookup(var, bucket)
xxx = constant() value=["xxx"]
words = concat(staged:1, xxx) axis=0
numbers = as_string(rows)
pair = stack(words, words)
joined = concat(numbers, pair) axis=0
target joined
target bucket
"""
    records = [b"a,b", b"hello,world"]
    staged = tool.run(text, [strings(records)])
    got, bucket = tool.run(text, staged, compute=True)
    v0, v1 = tf.io.decode_csv(records, [[""], [""]])
    ids = tf.compat.v1.string_to_hash_bucket(v0, num_buckets=10)
    words = tf.concat([v1, ["xxx"]], 0)
    want = tf.concat([tf.strings.as_string(tf.nn.embedding_lookup(tf.ones([100, 3]), ids)), [words, words]], 0)
    same(bucket, ids.numpy(), "buckets")
    same(got, want.numpy(), "target")


TESTS = [csv_gives_the_same_values_and_refuses_the_same_records, csv_numbers_are_rounded_as_tensorflow_rounds_them,
         csv_short_decimals_are_all_right, hashes_of_all_lengths, casts, maxima, logarithms, joins, lookups, texts,
         constants, the_program_of_the_seeds]


def main(tests, doc):
    if len(sys.argv) < 2:
        sys.exit(doc)
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    failed = passed = 0
    for test in tests:
        if only not in test.__name__:
            continue
        tool = OpTool(sys.argv[1])
        try:
            test(tool, seconds)
            tool.close()
            passed += 1
            print(f"ok   {test.__name__}", flush=True)
        except (AssertionError, OpError, RuntimeError) as e:
            failed += 1
            print(f"    {e}\nFAIL {test.__name__}", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(TESTS, __doc__))
