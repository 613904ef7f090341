# SPDX-License-Identifier: Apache-2.0
"""Drives tests/ops/op_tool: graphs as text and numpy arrays in, numpy arrays or an error out."""
import os
import struct
import subprocess

import numpy as np

STRING = 7
DTYPES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 9: "int64",
          10: "bool", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64"}
NUMBERS = {name: number for number, name in DTYPES.items()}


class OpError(Exception):
    def __init__(self, code, row, text):
        super().__init__(text)
        self.code, self.row, self.text = code, row, text


def quote(data):
    """Bytes as a string in the fixture's syntax."""
    safe = (b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.,;:+-*/ ")
    return '"' + "".join(chr(c) if c in safe else f"\\x{c:02x}" for c in data) + '"'


def dtype_name(array):
    """The name of an array's dtype; object arrays hold bytes."""
    return "string" if array.dtype == object else array.dtype.name


class OpTool:
    def __init__(self, build):
        self.process = subprocess.Popen([os.path.join(build, "tests/ops/op_tool")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise RuntimeError(f"op_tool ended with {self.process.returncode}")

    @staticmethod
    def pack(array, number=None):
        array = np.asarray(array)
        if array.dtype == object:
            parts = [struct.pack("<I", len(s)) + s for s in array.reshape(-1)]
            return struct.pack(f"<II{array.ndim}q", STRING, array.ndim, *array.shape) + b"".join(parts)
        number = number or NUMBERS[array.dtype.name]
        head = struct.pack(f"<II{array.ndim}q", number, array.ndim, *array.shape)
        return head + np.ascontiguousarray(array).tobytes()

    def read(self, n):
        data = self.process.stdout.read(n)
        if len(data) != n:
            raise RuntimeError("op_tool is gone")
        return data

    def read_tensor(self):
        number, ndim = struct.unpack("<II", self.read(8))
        shape = struct.unpack(f"<{ndim}q", self.read(8 * ndim))
        n = int(np.prod(shape, dtype=np.int64))
        if number != STRING:
            # bfloat16 arrives as bits.
            dtype = np.dtype(DTYPES.get(number, "uint16"))
            return np.frombuffer(self.read(n * dtype.itemsize), dtype).reshape(shape)
        strings = np.empty(n, object)
        for i in range(n):
            strings[i] = self.read(struct.unpack("<I", self.read(4))[0])
        return strings.reshape(shape)

    def run(self, text, feeds, compute=False):
        """The features (or targets) of the graph; raises OpError."""
        text = text.encode()
        request = [struct.pack("<I", len(text)), text, struct.pack("<II", compute, len(feeds))]
        request += [feed if isinstance(feed, bytes) else self.pack(feed) for feed in feeds]
        self.process.stdin.write(b"".join(request))
        self.process.stdin.flush()
        code, = struct.unpack("<i", self.read(4))
        if code < 0:
            row, n = struct.unpack("<qI", self.read(12))
            raise OpError(code, row, self.read(n).decode(errors="replace"))
        n, = struct.unpack("<I", self.read(4))
        return [self.read_tensor() for _ in range(n)]

    def op(self, op, inputs, attrs="", outputs=1, dtypes=None, compute=False, static=()):
        """Runs one op, on the stage side or on the compute side. dtypes names inputs without a numpy dtype; static: the
        inputs of known shape when the graph is made."""
        lines, feeds = [], []
        for i, array in enumerate(inputs):
            array = np.asarray(array)
            name = (dtypes or {}).get(i) or dtype_name(array)
            shape = ", ".join(map(str, array.shape) if i in static else ["-1"] * array.ndim)
            lines.append(f"element in{i} {name} [{shape}]")
            feeds.append(self.pack(array, 14 if name == "bfloat16" else None))
        if compute:
            lines += [f"feature f{i} = in{i}" for i in range(len(inputs))]
        names = ", ".join(f"staged:f{i}" if compute else f"in{i}" for i in range(len(inputs)))
        lines.append(f"y = {op}({names}) {attrs}")
        lines += [f"target y:{k}" if compute else f"feature f{k} = y:{k}" for k in range(outputs)]
        return self.run("\n".join(lines) + "\n", feeds, compute)
