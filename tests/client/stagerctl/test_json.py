#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerctl's JSON against Python's: json.loads returns the values that were written.

    test_json.py PROGRAM       the program is json_dump.c
"""
import base64
import itertools
import json
import math
import os
import random
import shlex
import struct
import subprocess
import sys
from decimal import Decimal

RANDOM = random.Random(20240)


def ask(lines):
    wrapper = shlex.split(os.environ.get("MESON_EXE_WRAPPER", ""))  # for a program of another machine
    out = subprocess.run([*wrapper, sys.argv[1]], input="".join(line + "\n" for line in lines),
                         capture_output=True, text=True, check=True, encoding="utf-8")
    answers = out.stdout.split("\n")[:-1]
    assert len(answers) == len(lines), (len(answers), len(lines))
    return answers


# ---- numbers -------------------------------------------------------------------------------

def bfloat16_value(bits):
    return struct.unpack(">f", struct.pack(">I", bits << 16))[0]


def bfloat16_bits(value):
    """Nearest, ties to even; value is finite and not near overflow."""
    bits = struct.unpack(">I", struct.pack(">f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


KINDS = {
    "float64": (8, lambda b: struct.unpack(">d", b.to_bytes(8, "big"))[0],
                lambda v: int.from_bytes(struct.pack(">d", v), "big"), 17),
    "float32": (4, lambda b: struct.unpack(">f", b.to_bytes(4, "big"))[0],
                lambda v: int.from_bytes(struct.pack(">f", v), "big"), 9),
    "float16": (2, lambda b: struct.unpack(">e", b.to_bytes(2, "big"))[0],
                lambda v: int.from_bytes(struct.pack(">e", v), "big"), 5),
    "bfloat16": (2, bfloat16_value, bfloat16_bits, 4),
}


def digits_of(text):
    digits = "".join(c for c in text.lower().split("e")[0] if c.isdigit()).strip("0")
    return max(1, len(digits))


def reads_back(text, kind, bits):
    _, _, to_bits, _ = KINDS[kind]
    try:
        return to_bits(float(text)) == bits
    except OverflowError:
        return False


def check_number(kind, bits, text):
    _, to_value, _, _ = KINDS[kind]
    value = to_value(bits)
    if not math.isfinite(value):
        want = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        assert json.loads(text) == want, (kind, hex(bits), text)
        return
    loaded = json.loads(text)
    assert isinstance(loaded, float), (kind, hex(bits), text)
    assert reads_back(text, kind, bits), (kind, hex(bits), text)
    n = digits_of(text)
    if n > 1:  # one digit less would not do
        shorter = "%.*e" % (n - 2, value)
        assert not reads_back(shorter, kind, bits), (kind, hex(bits), text, shorter)
    if kind == "float64":
        assert Decimal(text) == Decimal(repr(value)), (text, repr(value))


def all_bits(kind):
    n_bytes = KINDS[kind][0]
    if n_bytes == 2:
        return range(1 << 16)
    width = 8 * n_bytes
    special = [0, 1, 1 << width - 1, (1 << width - 1) - 1]
    texts = ["0.1", "1", "260", "1e16", "9999999999999998", "123456789", "1e-5", "0.0001", "3e38",
             "-2.5", "1e15", "33554432", "0.3", "16777216", "1e22", "5e-324", "1e23"]
    special += [KINDS[kind][2](float(text)) for text in texts]
    infinity = KINDS[kind][2](math.inf)
    special += [infinity, infinity + 1, infinity | 1 << width - 1, infinity - 1]
    return special + [RANDOM.getrandbits(width) for _ in range(20000)]


def numbers():
    for kind in KINDS:
        bits = list(all_bits(kind))
        width = 2 * KINDS[kind][0]
        answers = ask([f"number {kind} {b:0{width}x}" for b in bits])
        for b, text in zip(bits, answers):
            check_number(kind, b, text)
    plain = {"260": "260.0", "0.1": "0.1", "0.0001": "0.0001", "1e-5": "1e-05", "1e16": "1e+16",
             "123456": "123456.0", "-0.0": "-0.0"}
    for kind in ("float64", "float32"):
        width = 2 * KINDS[kind][0]
        answers = ask([f"number {kind} {KINDS[kind][2](float(t)):0{width}x}" for t in plain])
        assert answers == list(plain.values()), answers


# ---- strings -------------------------------------------------------------------------------

def check_string(data, text):
    loaded = json.loads(text)
    try:
        assert loaded == data.decode("utf-8"), (data, text)
    except UnicodeDecodeError:
        assert set(loaded) == {"base64"}, (data, text)
        assert base64.b64decode(loaded["base64"], validate=True) == data, (data, text)


def strings():
    samples = [b"", b"plain", b'"\\/\b\f\n\r\t\x00\x1f\x7f', "żółć 流水线 \U0001f600".encode(),
               b"\xff", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
               b"\xf0\x8f\xbf\xbf", b"\xe2\x82", b"a\xf0\x9f\x98", b"\xf4\x8f\xbf\xbf",
               b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80"]
    samples += [bytes(c) for c in itertools.product([0x41, 0x80, 0xBF, 0xC2, 0xE0, 0xED, 0xF0, 0xF4],
                                                    repeat=4)]
    samples += [RANDOM.randbytes(RANDOM.randrange(1, 40)) for _ in range(2000)]
    for data, text in zip(samples, ask(["string " + s.hex() for s in samples])):
        check_string(data, text)


# ---- tensors -------------------------------------------------------------------------------

def nest(values, shape):
    if not shape:
        return values[0]
    step = math.prod(shape[1:])
    return [nest(values[i * step:(i + 1) * step], shape[1:]) for i in range(shape[0])]


def tensors():
    formats = {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
               "int64": "q", "uint64": "Q", "float32": "f", "float64": "d", "float16": "e"}
    cases = []
    for dtype, code in formats.items():
        for shape in ([], [1], [5], [2, 3], [2, 1, 2], [0], [2, 0], [1, 1, 1, 1, 1, 1, 1, 2]):
            n = math.prod(shape)
            if code in "fde":
                values = [float(RANDOM.randrange(-100, 100)) / 4 for _ in range(n)]
            else:
                bits = 8 * struct.calcsize(code)
                low = -(1 << bits - 1) if code.islower() else 0
                values = [RANDOM.randrange(low, low + (1 << bits)) for _ in range(n)]
            cases.append((dtype, shape, values, struct.pack(f"<{n}{code}", *values).hex()))
    cases.append(("bool", [3], [True, False, True], "010002"))
    lines = [f"tensor {dtype} {','.join(map(str, shape)) or '-'} {data}"
             for dtype, shape, _, data in cases]
    for (dtype, shape, values, _), text in zip(cases, ask(lines)):
        loaded = json.loads(text)
        assert loaded == {"dtype": dtype, "shape": shape, "values": nest(values, shape)}, text

    words = [b"a", b"", "ü".encode(), b"\xff\xfe", b"b,c", b"\n"]
    text = ask(["strings 2,3 " + ",".join(word.hex() for word in words)])[0]
    assert json.loads(text) == {
        "dtype": "string", "shape": [2, 3],
        "values": [["a", "", "ü"], [{"base64": "//4="}, "b,c", "\n"]]}, text


def structure():
    assert json.loads(ask(["table"])[0]) == {
        'a "key"\n': [-(1 << 63), (1 << 64) - 1, True, False, None, "x", [], {}],
        "b": {"c": -1}}


if __name__ == "__main__":
    numbers()
    strings()
    tensors()
    structure()
    print("ok")
