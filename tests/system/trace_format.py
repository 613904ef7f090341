#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that Perfetto and Chrome show a trace file as intended: it follows the trace-event format ("Trace Event
Format", JSON object format), and the spans of a track are nested.

    trace_format.py FILE…
"""
import bisect
import json
import sys

PHASES = {"M": {"name", "pid", "tid", "args"}, "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
          "i": {"name", "cat", "pid", "tid", "ts", "s", "args"},
          "s": {"name", "cat", "pid", "tid", "ts", "id"}, "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"}}


class Wrong(Exception):
    """The place where the file is invalid."""


def need(right, *what):
    if not right:
        raise Wrong(" ".join(str(part) for part in what))


def nanos(micros):
    """Exact: three decimals of a number below 2^53 / 1000."""
    return round(micros * 1000)


def check_event(event):
    phase = event.get("ph")
    need(phase in PHASES, "a phase that is none:", event)
    need(PHASES[phase] | {"ph"} == set(event), "keys", sorted(set(event) ^ PHASES[phase] ^ {"ph"}), "of", event)
    need(isinstance(event["name"], str) and event["name"], "no name:", event)
    for key in ("pid", "tid"):
        need(isinstance(event[key], int) and event[key] >= 0, key, "of", event)
    for key in ("ts", "dur"):
        need(event.get(key, 0) >= 0, "negative:", event)
    need(event.get("s", "t") == "t" and event.get("bp", "e") == "e", event)
    need(isinstance(event.get("args", {}), dict), event)


def check_window(events, about):
    need(0 < about["begin_ns"] <= about["end_ns"], about)
    for event in events:
        if event["ph"] == "M":
            continue
        begin = nanos(event["ts"])
        end = begin + nanos(event.get("dur", 0))
        need(about["begin_ns"] <= begin <= end <= about["end_ns"], "outside of the window:", event)


def check_nesting(events):
    tracks = {}
    for event in events:
        if event["ph"] == "X":
            begin = nanos(event["ts"])
            tracks.setdefault((event["pid"], event["tid"]), []).append((begin, begin + nanos(event["dur"]), event))
    for spans in tracks.values():
        spans.sort(key=lambda span: (span[0], -span[1]))
        around = []
        for begin, end, event in spans:
            while around and around[-1] <= begin:
                around.pop()
            need(not around or end <= around[-1], "reaches out of the span around it:", event)
            around.append(end)


def check_names(events):
    named = {what: [(e["pid"], e["tid"] if what == "thread_name" else 0) for e in events
                    if e["ph"] == "M" and e["name"] == what] for what in ("thread_name", "process_name")}
    need(len(named["thread_name"]) == len(set(named["thread_name"])), "a track with two names")
    for event in events:
        if event["ph"] != "M":
            need((event["pid"], event["tid"]) in named["thread_name"], "no such track:", event)
        need((event["pid"], 0) in named["process_name"], "no such process:", event)


def check_flows(events):
    """Each arrow has one start and one end, in this order. Each lies in a span: the arrow starts at the begin of one,
    and ends in one that is not nested."""
    ends = {"s": {}, "f": {}}
    spans, outer = {}, {}
    for event in events:
        if event["ph"] in ends:
            need(event["id"] not in ends[event["ph"]], "an arrow with two ends:", event)
            ends[event["ph"]][event["id"]] = event
        elif event["ph"] == "X":
            begin = nanos(event["ts"])
            spans.setdefault((event["pid"], event["tid"]), set()).add(begin)
            last = outer.setdefault((event["pid"], event["tid"]), [(0, 0)])
            if begin >= last[-1][1]:
                last.append((begin, begin + nanos(event["dur"])))
    need(set(ends["s"]) == set(ends["f"]), "arrows without an end:", set(ends["s"]) ^ set(ends["f"]))
    for key, start in ends["s"].items():
        end = ends["f"][key]
        need(start["ts"] <= end["ts"], "an arrow back in time:", start, end)
        need(nanos(start["ts"]) in spans.get((start["pid"], start["tid"]), ()), "from nowhere:", start)
        at, around = nanos(end["ts"]), outer.get((end["pid"], end["tid"]), [(0, 0)])
        need(at <= around[bisect.bisect_right(around, (at, float("inf"))) - 1][1], "to nowhere:", end)


def check(text):
    """The events of a valid trace, and its metadata."""
    trace = json.loads(text)
    events, about = trace["traceEvents"], trace["otherData"]
    need(trace["displayTimeUnit"] in ("ms", "ns"), trace["displayTimeUnit"])
    for event in events:
        check_event(event)
    check_window(events, about)
    check_nesting(events)
    check_names(events)
    check_flows(events)
    n = sum(event["ph"] in "Xi" for event in events)
    need(n == about["spans"], about["spans"], "spans are said to be there, and there are", n)
    return events, about


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            print(f"{path}: {len(check(file.read())[0])} events, as they should be")
