# SPDX-License-Identifier: Apache-2.0
"""Turns measurements into a table: medians of the rounds, ratios, goals; JSON, Markdown and a plot."""
import json
import os
import statistics

import cases
import plot

# Tried, and the reason why there is no row.
LEFT_OUT = {
    "TensorSocket": "0.0.5 gives its consumers no batch, or ends with IndexError, when the tensors are on the CPU",
    "MosaicML Streaming": "0.13 needs torchvision, whose wheel on PyPI does not load beside a torch for CPUs; it reads a format of its "
                          "own through DataLoader; its transport is above",
    "FFCV, DALI": "the one has to be built with OpenCV and a CUDA toolkit, the other needs a GPU; formats of their own",
}
OURS = "stager"
BUSY = 4  # part of the load average beyond the run's own


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


# ---- rows -----------------------------------------------------------------------------------

def of_rounds(kind, rounds):
    """The figures of a row, from those of its rounds; the first figure counts."""
    if kind == "ready":
        return {key: spread([r[key] for r in rounds]) for key in ("p50_us", "p99_us")}
    if kind == "first":
        return {key: spread([r[key] for r in rounds]) for key in ("first_s", "cpu_s")}
    if kind == "border":
        return {key: spread([r[key] for r in rounds]) for key in ("border_ms", "inside_ms")}
    return {"per_s": spread([r["amount"] / r["wall_s"] for r in rounds]),
            "per_cpu_s": spread([total(r) / r["cpu_s"] for r in rounds]),
            "cores": spread([r["cpu_s"] / r["wall_s"] for r in rounds])}


def total(one):
    """The throughput of all trainers together."""
    return sum(one["rates"]) * one["wall_s"] if "rates" in one else one["amount"]


def row(cell):
    found = {"contestant": cell.contestant.name, "variant": cell.variant}
    if cell.k is not None:
        found["k"] = cell.k
    if cell.failure is not None:
        return {**found, "failure": cell.failure}
    return {**found, **of_rounds(cell.case.kind, cell.rounds), "memory_bytes": cell.peak_bytes,
            "loaded_bytes": cell.idle_bytes, "digest": cell.digest, "rounds": cell.rounds}


def tell_sameness(rows):
    """The contestants with the majority's results."""
    digests = [r["digest"] for r in rows if r.get("digest")]
    if not digests:
        return
    common = max(digests, key=lambda d: sum(cases.same(d, other) for other in digests))
    for r in rows:
        if r.get("digest"):
            r["same"] = cases.same(r["digest"], common)


def summary(case, cells, load):
    """load: the machine's, of the five minutes before: 0 or 1 on an idle machine."""
    rows = [row(cell) for cell in cells]
    tell_sameness(rows)
    return {"name": case.name, "kind": case.kind, "about": case.about, "unit": case.unit, "load": load, "rows": rows}


# ---- goals ----------------------------------------------------------------------------------

def find(found, case, contestant, key, **where):
    """The medians of the rows that match: [(row, median)]."""
    return [(r, r[key]["median"]) for c in found["cases"] if c["name"] == case for r in c["rows"]
            if key in r and r["contestant"] == contestant and all(r.get(k) == v for k, v in where.items())]


def value(found, case, contestant, key, **where):
    rows = find(found, case, contestant, key, **where)
    return rows[0][1] if rows else None


def over(a, b):
    return a / b if a is not None and b else None


def best_other(found, case, key):
    rows = [(r[key]["median"], r) for c in found["cases"] if c["name"] == case for r in c["rows"]
            if key in r and r["contestant"] != OURS and r.get("same", True)]
    return max(rows, key=lambda pair: pair[0])[0] if rows else None


def shares(found, contestant, variant, k):
    """The throughput of each of k trainers, relative to one alone."""
    return over(value(found, "share", contestant, "per_s", k=k, variant=variant),
                value(found, "share", contestant, "per_s", k=1, variant=variant))


def goals(found):
    """[(subject, measured or None, "at least" or "at most", goal)]."""
    torch, tf = "PyTorch DataLoader", "tf.data"

    def ratio(case, other, key="per_s", **where):
        return over(value(found, case, OURS, key), value(found, case, other, key, **where))
    return [
        ("`next` on a ready batch, µs, median", value(found, "ready", OURS, "p50_us"), "at most", 5),
        ("transport of 256 KiB over DataLoader with 1 worker", ratio("transport_256k", torch, variant="1 worker"), "at least", 10),
        ("transport of 4 MiB over DataLoader with 1 worker", ratio("transport_4m", torch, variant="1 worker"), "at least", 8),
        ("Criteo CSV over tf.data", ratio("csv", tf), "at least", 10),
        ("TFRecord Examples over tf.data", ratio("tfrecord", tf), "at least", 4),
        ("JPEG over the best peer, per second of CPU",
         over(value(found, "jpeg", OURS, "per_cpu_s"), best_other(found, "jpeg", "per_cpu_s")), "at least", 1.5),
        ("each of 4 trainers on one data set over one alone", shares(found, OURS, "broadcast", 4), "at least", 0.95),
        ("the same, 4 trainers with a DataLoader each", shares(found, torch, "1 worker each", 4), "", None),
        (f"first batch of {found['files']:,} files, seconds", value(found, "first", OURS, "first_s"), "at most", 1),
    ]


def is_met(measured, how, goal):
    return measured >= goal if how == "at least" else measured <= goal


# ---- Markdown -------------------------------------------------------------------------------

def number(x):
    if x is None:
        return ""
    if abs(x) >= 1000:
        return f"{x:,.0f}"
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else f"{x:.2f}"


def with_spread(s):
    if s["least"] == s["most"]:
        return number(s["median"])
    return f"{number(s['median'])} ({number(s['least'])} to {number(s['most'])})"


def memory(r):
    return f"{r['memory_bytes'] / 2**20:,.0f} ({r['loaded_bytes'] / 2**20:,.0f})"


def sameness(r):
    return {True: "the same", False: "**other**", None: ""}[r.get("same")]


COLUMNS = {  # kind: [(title, function of a row and of ours)]
    "ready": [("`next`, µs", lambda r, o: with_spread(r["p50_us"])), ("p99, µs", lambda r, o: with_spread(r["p99_us"])),
              ("over stager", lambda r, o: number(over(r["p50_us"]["median"], o and o["p50_us"]["median"])))],
    "first": [("first batch, s", lambda r, o: with_spread(r["first_s"])), ("CPU, s", lambda r, o: with_spread(r["cpu_s"])),
              ("over stager", lambda r, o: number(over(r["first_s"]["median"], o and o["first_s"]["median"])))],
    "border": [("at the border, ms", lambda r, o: with_spread(r["border_ms"])),
               ("inside, ms", lambda r, o: with_spread(r["inside_ms"]))],
}


def throughput_columns(unit, is_share):
    scale, shown = {"rows": (1e-3, "thousand rows")}.get(unit, (1, unit))

    def scaled(s):
        return {key: v * scale for key, v in s.items()}
    return [(f"{shown}/s" + (", each" if is_share else ""), lambda r, o: with_spread(scaled(r["per_s"]))),
            (f"{shown} per CPU second" + (", of all" if is_share else ""), lambda r, o: with_spread(scaled(r["per_cpu_s"]))),
            ("CPUs busy", lambda r, o: number(r["cores"]["median"])),
            ("stager over it", lambda r, o: number(over(o and o["per_s"]["median"], r["per_s"]["median"]))),
            ("per CPU second", lambda r, o: number(over(o and o["per_cpu_s"]["median"], r["per_cpu_s"]["median"])))]


def label(r):
    return r["contestant"] + (f", {r['variant']}" if r["variant"] else "") + (f", k = {r['k']}" if "k" in r else "")


def ours_for(rows, r):
    """The row of stager with which another one is compared."""
    for o in rows:
        if o["contestant"] == OURS and "failure" not in o and o.get("k") == r.get("k"):
            return o
    return None


def table(case):
    columns = COLUMNS.get(case["kind"]) or throughput_columns(case["unit"], case["kind"] == "share")
    titles = ["", *[title for title, _ in columns], "memory, MiB", "results"]
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "---|" * len(titles)
    for r in case["rows"]:
        if "failure" in r:
            yield f"| {label(r)} | failed: {r['failure']} |" + " |" * (len(titles) - 2)
            continue
        o = ours_for(case["rows"], r)
        yield f"| {label(r)} | " + " | ".join([f(r, o) for _, f in columns] + [memory(r), sameness(r)]) + " |"


def goals_table(found):
    yield "| what | measured | goal | |\n|---|---|---|---|"
    for what, measured, how, goal in goals(found):
        if measured is not None:
            met = "" if goal is None else "met" if is_met(measured, how, goal) else "**missed**"
            yield f"| {what} | {number(measured)} | {f'{how} {goal}' if goal is not None else ''} | {met} |"


def contestants_table(found):
    yield "| contestant | |\n|---|---|"
    for c in found["contestants"]:
        what = f"not installed: {c['missing']}" if c["missing"] else ", ".join(f"{k} {v}" for k, v in c["versions"].items())
        yield f"| {c['name']} | {what} |"
    for name, why in found["left_out"].items():
        yield f"| {name} | no row: {why} |"


def made_again(found):
    again = found.get("again")
    return f" {', '.join(again['names'])} again on {again['date']}, in {again['took_s']} s." if again else ""


def markdown(found):
    lines = ["# Peers", "",
             f"{found['date']}, {found['machine']}. Made by `tests/bench/peers/run --build build --out tests/bench/peers` in "
             f"{found['took_s']} s" + (", a smoke test: its figures mean nothing." if found["smoke"] else ".") + made_again(found), "",
             f"All contestants of a case are started, and take turns: {found['rounds']} rounds of {found['seconds']:g} s, each after a "
             "warm-up that does not count; the others are stopped meanwhile. Figures are the median of the rounds, and the "
             "least and the most. All use the same CPUs, and files from the page cache. CPU time and memory are those of all "
             "processes of a contestant with its trainer; memory is the most of the sum of their proportional set sizes, in brackets when "
             "the libraries had been loaded. *Results* says whether a contestant gave what most gave: sums over an epoch; "
             "of random crops the mean and the deviation of the pixels.", "", *goals_table(found), "",
             "![Plot](results.svg)", ""]
    for case in found["cases"]:
        about = cases.ABOUT[case["kind"]]
        if case["load"] > BUSY:
            about += f" **The machine was busy with other things (load {case['load']:.0f}): only ratios say something.**"
        if case["kind"] == "first":
            about += f" {found['files']:,} files in folders of 1,280: hard links of 64 files of 110 bytes."
        lines += [f"## {case['about']}", "", about, "", *table(case), ""]
    lines += ["## Contestants", "", *contestants_table(found), ""]
    return "\n".join(lines)


def write(found, folder):
    with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")
    with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as file:
        file.write(markdown(found))
    with open(os.path.join(folder, "results.svg"), "w", encoding="utf-8") as file:
        file.write(plot.svg(found))
