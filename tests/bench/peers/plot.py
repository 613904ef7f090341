# SPDX-License-Identifier: Apache-2.0
"""The plot: for each case a row of bars, the longer the better, stager's in another colour."""
from xml.sax.saxutils import escape

WIDTH, LABEL, BAR, ROW, GAP = 900, 300, 420, 18, 30
OURS, OTHERS, INK = "#c2410c", "#64748b", "#1e293b"
# The plotted figure of a kind, and whether more is better.
KEYS = {"ready": ("p50_us", False, "µs"), "first": ("first_s", False, "s"), "border": ("border_ms", False, "ms")}


def label(r):
    return r["contestant"] + (f", {r['variant']}" if r["variant"] else "") + (f", k = {r['k']}" if "k" in r else "")


def shown(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def text(x, y, words, size=11, anchor="start", weight="normal"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">' \
           f"{escape(words)}</text>"


def bars(case, y):
    """(lines of SVG, start of the next one)."""
    key, more, unit = KEYS.get(case["kind"], ("per_s", True, f"{case['unit']}/s"))
    rows = [r for r in case["rows"] if key in r]
    most = max((r[key]["median"] for r in rows), default=0) or 1
    caption = f"{case['about']} ({unit}, {'more' if more else 'less'} is better)"
    lines = [text(10, y, caption, 13, weight="bold")]
    for i, r in enumerate(rows):
        top, value = y + 10 + i * ROW, r[key]["median"]
        width = max(BAR * value / most, 1)
        colour = OURS if r["contestant"] == "stager" else OTHERS
        memory = f"{r['memory_bytes'] / 2**20:,.0f} MiB"
        cpu = f", {r['cores']['median']:.1f} CPUs" if "cores" in r else ""
        lines += [text(LABEL - 8, top + 11, label(r), anchor="end"),
                  f'<rect x="{LABEL}" y="{top}" width="{width:.1f}" height="{ROW - 5}" fill="{colour}"/>',
                  text(LABEL + width + 6, top + 11, f"{shown(value)}   {memory}{cpu}", 10)]
    return lines, y + 10 + len(rows) * ROW + GAP


def svg(found):
    lines, y = [], 60.0
    for case in found["cases"]:
        more, y = bars(case, y)
        lines += more
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y:.0f}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{y:.0f}" fill="white"/>',
            text(10, 24, "stager and its peers: medians, with the memory and the CPUs that all processes took", 14, weight="bold"),
            text(10, 42, f"{found['date']}, {found['machine']}", 10)]
    return "\n".join([*head, *lines, "</svg>", ""])
