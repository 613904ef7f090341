#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/proto/golden.h: messages of attach.sock as bytes, made by hand from the encoding
(https://protobuf.dev/programming-guides/encoding/) and the numbers in proto/*.proto, without any
protobuf library. An older trainer speaks exactly these bytes: an entry never changes, new ones
are added.

    make_golden.py            writes the header
    make_golden.py --check    fails when the header is not what this script writes
"""
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n)


def signed(field, n):
    return number(field, (n << 1) ^ (n >> 63))


def data(field, value):
    if isinstance(value, str):
        value = value.encode()
    return varint(field << 3 | 2) + varint(len(value)) + value


def fixed64(field, n):
    return varint(field << 3 | 1) + struct.pack("<Q", n)


def double(field, x):
    return varint(field << 3 | 1) + struct.pack("<d", x)


def boundary(field, name, dtype, shape):
    return data(field, data(1, name) + number(2, dtype) + b"".join(signed(3, d) for d in shape))


def requests():
    yield "request_hello", number(1, 1) + data(2, number(1, 1) + number(2, 3) + data(3, "trainer"))
    yield "request_check", number(1, 2) + data(3, data(1, "a: b\n") + data(2, "/p/x.yaml"))
    yield "request_apply", number(1, 3) + data(4, data(1, "a: b\n") + data(2, "/p/x.yaml")
                                               + number(3, 1) + data(4, "criteo"))
    yield "request_list", number(1, 4) + data(5, b"")
    yield "request_status", number(1, 5) + data(6, data(1, "criteo"))
    yield "request_open", number(1, 1 << 40) + data(7, data(1, "criteo") + data(2, "rank-0")
                                                    + number(3, 300) + number(4, 1) + number(5, 1))
    yield "request_delete", number(1, 7) + data(8, data(1, "criteo"))
    yield "request_new_token", number(1, 8) + data(10, b"")
    yield "request_index_name", number(1, 13) + data(24, data(1, "criteo"))
    yield "request_index_text", number(1, 13) + data(24, data(2, "a: b\n") + data(3, "/p/x.yaml"))
    yield "request_index", number(1, 14) + data(24, b"")
    yield "request_commit", number(1, 15) + data(25, data(1, "step-1") + data(2, "{}"))
    yield "request_commits", number(1, 16) + data(26, data(1, "criteo"))
    yield "request_audit", number(1, 18) + data(29, data(1, "criteo"))
    yield "request_metrics", number(1, 22) + data(30, b"")
    yield "request_open_metrics", number(1, 22) + data(30, number(1, 1))
    yield "request_open_resume", number(1, 17) + data(7, data(1, "criteo") + number(3, 2) + data(45, "tag:step-1"))
    rejoin = fixed64(1, 11) + fixed64(2, 1 << 63) + number(3, 300)
    yield "request_open_again", number(1, 19) + data(7, data(1, "criteo") + number(3, 2) + data(46, rejoin))
    yield "request_open_never", number(1, 20) + data(7, data(1, "criteo") + number(3, 2) + number(47, 1))
    yield "request_open_follow", number(1, 22) + data(7, data(1, "criteo") + number(3, 2) + number(48, 1) + number(49, 300))
    yield "request_open_job", number(1, 22) + data(7, data(1, "criteo") + number(3, 2) + data(50, "sweep-7"))
    yield "request_commit_away", number(1, 21) + data(25, data(1, "step-1") + data(2, "{}") + data(3, rejoin)
                                                      + data(4, "criteo") + data(5, "a") + number(6, 1))
    yield "request_apply_warm", number(1, 18) + data(4, data(1, "a: b\n") + number(3, 1) + number(7, 1))
    yield "request_rollback", number(1, 15) + data(27, data(1, "criteo") + number(2, 300) + number(3, 1))
    yield "request_rollback_last", (number(1, 16) + data(17, b"id") + number(18, 4) + data(27, data(1, "criteo")))
    yield "request_versions", number(1, 17) + data(28, data(1, "criteo"))
    yield "request_tap", number(1, 24) + data(32, data(1, "criteo") + number(2, 300))
    yield "request_drain", number(1, 25) + data(33, b"")
    yield "request_drain_disable", number(1, 26) + data(33, number(1, 1))
    yield "request_schema", number(1, 23) + data(31, data(1, "/data/*.parquet") + number(2, 300))
    yield "request_trace", number(1, 9) + data(12, data(1, "criteo") + number(2, 5000))
    yield "request_gate_delete", (number(1, 9) + data(8, data(1, "criteo")) + data(16, bytes(range(32)))
                                  + data(17, b"id\0\xff") + number(18, 0))
    yield "request_work", number(1, 11) + data(13, data(1, "criteo"))
    yield "request_work_if_needed", number(1, 11) + data(13, data(1, "criteo") + number(2, 300))
    yield "request_join", number(1, 12) + data(15, b"")
    yield "request_explain", number(1, 10) + data(11, data(1, "criteo"))
    node = number(1, 3) + number(2, 13) + number(3, 5000) + number(4, 256) + number(4, 0)
    yield "request_report", number(1, 0) + data(14, number(1, 10 ** 9) + number(2, 100) + number(3, 7)
                                                + number(4, 13) + number(5, 9000) + number(6, 11)
                                                + data(7, node) + data(7, number(1, 0) + number(2, 0)
                                                                       + number(3, 0)))
    yield "request_report_gpu", number(1, 0) + data(14, number(4, 1) + number(5, 60) + data(
        7, number(1, 2) + number(2, 1) + number(3, 50) + number(5, 1)))
    yield "request_open_replays", number(1, 22) + data(7, data(1, "criteo") + number(3, 2) + number(4, 1) + number(52, 1))
    yield "request_report_replay", number(1, 0) + data(14, data(8, replay()))


def replay(in_reply=b""):
    return (number(1, 4) + number(2, 150) + number(3, 3 * 10 ** 9) + number(4, 10 ** 9) + number(5, 150)
            + number(6, 2 * 10 ** 9) + data(7, "rank-0") + in_reply)


def client_status():
    return data(27, data(1, "rank-0") + number(2, 4711) + number(3, 1000) + data(4, "train")
                + data(5, "attached") + number(6, 2) + number(7, 1) + number(8, 100)
                + number(9, 99) + number(10, 98) + number(11, 3) + number(12, 5000000000)
                + number(13, 4))


def status_reply():
    return (data(1, "criteo") + number(2, 2) + data(3, "running") + data(4, "split") + number(5, 1)
            + number(6, 5) + number(7, 4) + number(8, 3) + number(9, 2) + number(10, 6)
            + number(11, 1001) + number(12, 1002) + number(13, 1003) + number(14, 1004)
            + number(15, 1005) + number(16, 1006) + number(17, 1007) + number(18, 1008)
            + number(19, 1009) + number(20, 1 << 30) + number(21, 1 << 29) + number(22, 1 << 28)
            + number(23, 1 << 27) + number(24, 2001) + number(25, 2002) + data(26, "row 7: bad")
            + client_status() + boundary(28, "ids", 9, [-1]) + number(29, 2003))


def attribute(name, dims, values, line, column):
    return data(4, data(1, name) + b"".join(number(2, d) for d in dims)
                + b"".join(data(3, v) for v in values) + number(4, line) + number(5, column))


def pipeline():
    """name: p, two nodes, one feature, a target: the values of test_wire.c."""
    columns = (data(1, "c") + data(2, "decode_csv") + data(3, "record")
               + attribute("record_defaults", [2, 3],
                           [signed(1, -5), double(2, 1.5), number(3, 1), data(4, b"x\0y"), b"",
                            signed(1, 1 << 62)], 4, 55)
               + number(15, 4) + number(16, 5))
    rows = data(1, "rows") + data(2, "identity") + data(3, "c:1") + data(3, "staged:ids")
    features = (data(1, data(1, "ids") + data(2, "c:2") + number(3, 6) + number(4, 20))
                + data(2, '{"ids":"ids"}'))
    staged = (data(1, features) + number(2, 3) + number(3, 2) + number(4, 5) + number(5, 1000)
              + number(6, 1) + number(7, 65536) + number(8, 1 << 20) + number(9, 7) + number(10, 8)
              + number(11, 0))
    return data(1, "p") + data(3, columns) + data(3, rows) + data(4, staged) + data(5, "rows")


def explain():
    record = data(1, "record") + number(3, 1) + number(9, 80)
    columns = (data(1, "c") + data(2, "decode_csv") + number(3, 1) + number(4, 1) + number(5, 13)
               + number(6, 2000) + number(7, 3) + number(8, 2500) + number(9, 40)
               + data(10, number(1, 0) + number(3, 80))
               + data(10, number(1, 0) + number(2, 1) + number(3, 8) + data(4, "ids") + number(5, 1)
                      + number(6, 1)))
    decision = number(1, 99) + data(2, "smart_stage") + data(3, "moves c: faster")
    return (data(1, "criteo") + number(2, 4) + data(3, "running") + data(4, "auto")
            + data(5, "trainer") + data(6, "why") + data(7, "text_line") + data(7, "batch")
            + data(8, record) + data(8, columns)
            + data(9, data(1, "ids") + number(2, 1) + number(3, 40)) + data(9, data(1, "one"))
            + data(10, decision) + number(11, 5)
            + b"".join(number(field, 1000 + field) for field in range(12, 25))
            + data(25, "parquet reads 1 of 2: a"))


def replies():
    yield "reply_hello", number(1, 1) + data(4, number(1, 1) + data(2, "0.1.0")
                                             + fixed64(3, 0x0123456789ABCDEF) + number(4, 42)
                                             + data(5, "no driver")) + number(9, 2)
    yield "reply_apply", number(1, 3) + data(5, data(1, "criteo") + number(2, 1)
                                             + boundary(3, "label", 1, [4096])
                                             + boundary(3, "ids", 7, [-1, 26]) + data(4, "one")
                                             + data(4, "two") + number(5, 1 << 24)
                                             + number(6, 1 << 33) + number(7, 1)) + number(9, 4)
    entry = data(1, "criteo") + number(2, 3) + number(3, 2) + data(4, "running") + number(5, 1000)
    yield "reply_list", number(1, 4) + data(6, data(1, entry + data(6, "/p/x.yaml"))
                                            + data(1, data(1, "b"))) + number(9, 5)
    yield "reply_status", number(1, 5) + data(7, status_reply()) + number(9, 6)
    yield "reply_open", number(1, 6) + data(8, data(1, "p") + number(2, 9) + number(3, 1 << 30)
                                            + number(4, 2) + data(5, "rank-0")
                                            + data(6, '{"ids":"ids"}') + boundary(7, "ids", 9, [])
                                            + data(8, pipeline())) + number(9, 7)
    yield "reply_open_again", number(1, 19) + data(8, data(1, "p") + number(2, 9) + number(3, 1 << 30)
                                                  + number(4, 2) + fixed64(48, 11) + fixed64(49, 1 << 63)
                                                  + number(50, 300)) + number(9, 7)
    yield "reply_open_anew", number(1, 22) + data(8, data(1, "p") + number(2, 9) + number(3, 1 << 30) + number(4, 2)
                                                  + number(51, 1)) + number(9, 7)
    yield "reply_join", number(1, 12) + number(9, 15)
    yield "reply_delete", number(1, 7) + number(9, 8)
    yield "reply_index", number(1, 13) + number(9, 24) + data(24, number(1, 1) + number(2, 7) + number(3, 6)
                                                              + number(4, 3) + number(5, 2) + number(6, 1)
                                                              + number(7, 1) + number(8, 1 << 40) + number(9, 300)
                                                              + number(10, 1 << 33) + number(11, 4096)
                                                              + number(12, 5) + data(13, "/a") + data(14, "no"))
    yield "reply_commit", number(1, 15) + number(9, 25)
    entry = (data(1, "step-1") + number(2, 3) + number(3, 4) + number(4, 5) + number(5, 1 << 60) + data(6, "trainer")
             + data(7, "rank-0"))
    yield "reply_commits", number(1, 16) + number(9, 26) + data(26, data(1, "criteo") + data(2, entry)
                                                                + data(2, data(1, "b")) + number(3, 300))
    yield "reply_status_warming", number(1, 18) + data(
        7, data(1, "criteo") + number(2, 2) + number(73, 3) + number(74, 5)) + number(9, 6)
    yield "reply_status_window", number(1, 19) + data(
        7, data(1, "criteo") + number(2, 2) + number(76, 10 ** 9) + number(77, 300) + number(78, 301)
        + number(79, 302) + number(80, 303)) + number(9, 6)
    yield "reply_rollback", number(1, 15) + data(5, data(1, "criteo") + number(2, 300)
                                                 + boundary(3, "ids", 9, [-1]) + number(9, 4)) + number(9, 27)
    version = (number(1, 300) + number(2, 1 << 60) + number(3, 1000) + fixed64(4, 0xFEDCBA9876543210)
               + data(5, "/p/x.yaml"))
    yield "reply_versions", number(1, 17) + number(9, 28) + data(
        28, data(1, "criteo") + data(2, version) + data(2, number(1, 301)))
    column = (data(1, "user/id") + data(2, "INT64") + data(3, "INT_64") + data(4, "PLAIN, RLE") + data(5, "SNAPPY")
              + number(7, 9) + number(8, 1) + number(8, 32) + number(9, 1) + number(11, 300) + number(12, 1 << 40))
    union = data(1, "u") + data(6, "a union") + number(10, 1)
    yield "reply_schema", number(1, 23) + number(9, 31) + data(
        31, data(1, "/data/a") + number(2, 1) + data(3, "parquet") + data(4, "gzip") + data(5, ";") + number(6, 1)
        + data(7, "n") + number(8, 1 << 33) + number(9, 0) + number(10, 3) + data(11, column) + data(11, union)
        + number(12, 300) + number(13, 302))
    shown = (data(1, "id") + number(2, 9) + signed(3, 300) + signed(3, 2) + data(5, struct.pack("<2q", 1, -1)))
    words = (data(1, "w/values") + number(2, 7) + signed(3, 2) + number(4, 1) + data(5, "abc") + signed(6, 0)
             + signed(6, 1) + signed(6, 3) + number(7, 1))
    yield "reply_tap", number(1, 24) + number(9, 32) + data(
        32, number(1, 300) + number(2, 1) + number(3, 2) + number(4, 299) + number(5, 4096) + number(6, 1 << 33)
        + data(7, shown) + data(7, words) + number(8, 7))
    yield "reply_drain", number(1, 25) + number(9, 33) + data(33, number(1, 300) + data(2, "criteo"))
    yield "reply_audit", number(1, 18) + number(9, 29)
    yield "reply_metrics", number(1, 22) + number(9, 30)
    yield "reply_trace", number(1, 9) + number(9, 12) + data(13, number(1, 1 << 24))
    yield "reply_new_token", number(1, 9) + number(9, 10) + data(
        11, data(1, bytes(range(32))) + number(2, 3600) + data(3, "ipc:///a") + data(4, "ipc:///e"))
    yield "reply_gate_list", number(1, 4) + data(
        6, data(1, data(1, "b") + fixed64(7, 0xFEDCBA9876543210))) + number(9, 5)
    yield "reply_work", number(1, 11) + number(9, 13) + data(
        14, data(1, "criteo") + data(2, "m.n:f") + boundary(3, "label", 1, [4096])
        + boundary(3, "ids", 7, [-1, 26]))
    yield "reply_work_pure", number(1, 11) + number(9, 13) + data(
        14, data(1, "criteo") + data(2, "m.n:f") + boundary(3, "label", 1, [4096])
        + boundary(3, "ids", 7, [-1, 26]) + number(4, 300) + number(5, 1))
    yield "reply_explain", number(1, 11) + number(9, 11) + data(12, explain())
    node = data(1, "rows") + number(4, 1) + number(11, 1)
    yield "reply_explain_replay", number(1, 11) + number(9, 11) + data(12, data(1, "p") + data(
        26, replay(number(8, 77) + number(9, 300))))
    yield "reply_explain_gpu", number(1, 11) + number(9, 11) + data(12, data(1, "p") + data(8, node))
    yield "reply_explain_remote", number(1, 11) + number(9, 11) + data(12, data(1, "p") + data(27, "text") + b"".join(
        number(field, 1000 + field) for field in range(28, 36)))
    yield "reply_error", number(1, 8) + number(2, 5) + data(3, "no pipeline \"x\"")


def events():
    yield "event", fixed64(1, 0x0123456789ABCDEF) + number(2, 300) + fixed64(3, 7) + number(4, 8)


def header():
    out = ["/* SPDX-License-Identifier: Apache-2.0",
           " *",
           " * Written by make_golden.py: messages as an encoder of its own makes them.",
           " */",
           "#ifndef STG_TESTS_PROTO_GOLDEN_H",
           "#define STG_TESTS_PROTO_GOLDEN_H",
           "",
           "/* clang-format off */"]
    for name, message in list(requests()) + list(replies()) + list(events()):
        out.append(f"static const unsigned char golden_{name}[{len(message)}] = {{")
        for i in range(0, len(message), 16):
            out.append("    " + " ".join(f"0x{b:02x}," for b in message[i:i + 16]))
        out.append("};")
    out += ["/* clang-format on */", "", "#endif", ""]
    return "\n".join(out)


def main():
    path = os.path.join(HERE, "golden.h")
    if "--check" not in sys.argv[1:]:
        with open(path, "w", encoding="ascii") as file:
            file.write(header())
        return 0
    with open(path, encoding="ascii") as file:
        if file.read() == header():
            return 0
    print(f"{path} is not what make_golden.py writes; run it again", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
