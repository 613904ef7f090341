#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Spans of `next` in traces of PyTorch's profiler, and such a trace merged with one of `stagerctl trace`.

    peer_profiler.py BUILD
"""
import json
import os
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
sys.path.insert(0, os.path.join(BUILD, "client/python"))
os.environ["STAGERD"] = os.path.join(BUILD, "daemon/stagerd")

import stager  # noqa: E402

try:
    import torch
    from torch.profiler import ProfilerActivity, profile
except ImportError:
    print("no torch")
    sys.exit(77)

N = 20
APART_US = 2000  # clocks are read one after the other


def spans(path, name):
    with open(path, encoding="utf-8") as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("name") == name and event["ph"] == "X"]


def each_next_is_a_span_while_the_profiler_is_active(server, folder):
    path = os.path.join(folder, "profile.json")
    server.apply(stager.range(1000).repeat().batch(4), name="quick")
    with server.open("quick") as stream:
        batches = iter(stream)
        next(batches)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(N):
                next(batches)
            stream.next()
        next(batches)
    profiler.export_chrome_trace(path)
    assert len(spans(path, "stager.next")) == N + 1, len(spans(path, "stager.next"))
    assert not torch.autograd.profiler._is_profiler_enabled


def a_merged_trace_has_both_on_one_time_line(server, folder):
    """Each call of stager_next lies inside of a span of `next` of the same process."""
    ours, theirs, merged = (os.path.join(folder, name) for name in ("stager.json", "profile.json", "merged.json"))
    late = stager.range(100000).batch(1).map(lambda r: stager.ops.sleep(r["value"], sleep_microseconds=5000))
    server.apply(late, name="late")
    with server.open("late") as stream:
        batches = iter(stream)
        next(batches)
        ctl = subprocess.Popen([os.path.join(BUILD, "client/stagerctl/stagerctl"), "trace", "late", "--seconds", "1", "-o", ours],
                               env={**os.environ, "STAGER_RUNTIME_DIR": server.runtime_dir}, stdout=subprocess.DEVNULL)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            while ctl.poll() is None:
                next(batches)
    assert ctl.returncode == 0
    profiler.export_chrome_trace(theirs)
    stager.merge_traces(theirs, ours, merged)
    outer = [event for event in spans(merged, "stager.next") if event["pid"] == os.getpid()]
    inner = [event for event in spans(merged, "stager_next") if event["pid"] == os.getpid()]
    assert len(inner) > 20, len(inner)
    first = outer[0]["ts"]
    for event in (event for event in inner if event["ts"] > first + APART_US):
        near = [span for span in outer if span["ts"] - APART_US <= event["ts"]
                and event["ts"] + event["dur"] <= span["ts"] + span["dur"] + APART_US]
        assert near, (event, min(outer, key=lambda span: abs(span["ts"] - event["ts"])))
    for bad, text in ((os.path.join(folder, "none.json"), '{"traceEvents": []}'), (os.path.join(folder, "bad.json"), "[")):
        with open(bad, "w", encoding="utf-8") as file:
            file.write(text)
        for pair in ((bad, ours), (theirs, bad)):
            try:
                stager.merge_traces(*pair, merged)
            except stager.Error as error:
                assert bad in str(error), error
            else:
                raise AssertionError(pair)


if __name__ == "__main__":
    if not BUILD:
        sys.exit(__doc__)
    with stager.serve() as one, tempfile.TemporaryDirectory() as temporary:
        for test in (each_next_is_a_span_while_the_profiler_is_active, a_merged_trace_has_both_on_one_time_line):
            test(one, temporary)
            print("ok  ", test.__name__)
