#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A manual page from where the truth lies: documents, the header, the settings file.

    make_man.py NAME.SECTION RELEASE ABOUT SEE_ALSO SOURCE... >PAGE

ABOUT is the line after the name; SEE_ALSO is a list with commas. A SOURCE is a document (.md), whose
text before its first "## " is the description; a header (.h), whose commented prototypes are
listed; or a settings file (.yaml), whose comments are listed key by key. Of Markdown it supports what
the documents have: headings, paragraphs, lists, tables, blocks of code, emphasis, links.
"""
import os
import re
import sys

WIDE = 24  # a longer cell is no cell of a table on a page, but text
PAGES = {"c-api.md": "stager(3)", "stager.h": "stager(3)", "pipeline.md": "stager-pipeline(5)",
         "dataset.md": "stager-dataset(5)", "ops.md": "stager-ops(5)", "gate.md": "stager-gate(8)",
         "gpu.md": "stager-gpu(8)", "python.md": "stager-python(7)", "remote.md": "stager-remote(5)", "worker.md": "stager(1)",
         "metrics.md": "stager-metrics(8)", "delivery.md": "stager-delivery(7)", "errors.md": "stager-errors(7)", "stagerctl.md": "stagerctl(1)",
         "stagerd.md": "stagerd(8)", "compatibility.md": "stager-compatibility(7)", "stagerd.yaml": "stagerd.yaml(5)"}
INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^]]+)\]\(([^)]+)\)")


def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def plain(text):
    """Text as it stands, safe at the start of a line."""
    text = text.replace("\\", "\\e")
    return "\\&" + text if text.startswith((".", "'")) else text


def reference(page):
    name, section = page.rstrip(")").split("(")
    return f"\\fB{escape(name)}\\fR({section})"


def link(text, target):
    page = PAGES.get(os.path.basename(target.split("#")[0]))
    if page is None or target.startswith("http"):
        return inline(text)
    if text.endswith((".md", ".h")):
        return reference(page)
    return f"{inline(text)} ({reference(page)})"


def inline(text):
    out, at = "", 0
    for match in INLINE.finditer(text):
        out += text[at:match.start()].replace("\\", "\\e")
        code, strong, emphasis, label, target = match.groups()
        if label is not None:
            out += link(label, target)
        elif emphasis is not None:
            out += f"\\fI{escape(emphasis)}\\fR"
        else:
            out += f"\\fB{escape(code or strong)}\\fR"
        at = match.end()
    out += text[at:].replace("\\", "\\e")
    return "\\&" + out if out.startswith((".", "'")) else out


# ---- tables ---------------------------------------------------------------------------------

def cells(line):
    line = re.sub(r"`[^`]*`", lambda m: m.group().replace("\\|", "|").replace("|", "\0"), line)
    return [cell.strip().replace("\0", "|").replace("\\|", "|")
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def bare(cell):
    return len(INLINE.sub(lambda m: next(g for g in m.groups() if g is not None), cell))


def table(lines):
    rows = [cells(line) for line in [lines[0], *lines[2:]]]
    n = max(len(row) for row in rows)
    rows = [row + [""] * (n - len(row)) for row in rows]
    widths = [max(bare(row[i]) for row in rows) for i in range(n)]
    if max(widths) > WIDE or sum(widths) + 3 * n > 68:
        return entries(rows, [width > WIDE for width in widths])
    # On one page, where there are pages: lintian's man has them.
    out = [".PP", f".ne {len(rows) + 3}v", ".TS", " ".join(["l"] * n) + "."]
    if any(rows[0]):
        out += ["\t".join(inline(cell) for cell in rows[0]), "_"]
    return out + ["\t".join(inline(cell) for cell in row) for row in rows[1:]] + [".TE"]


def entries(rows, wide):
    """A table that is too wide for a page: its first column, with what is short, leads an entry."""
    titles, out = rows[0], []
    texts = [i for i in range(1, len(wide)) if wide[i]] or [len(wide) - 1]
    for row in rows[1:]:
        lead = inline(row[0]) or "\\&"
        for i in range(1, len(row)):
            if i not in texts and row[i]:
                lead += f" ({inline(titles[i])}: {inline(row[i])})" if titles[i] else f" {inline(row[i])}"
        out += [".TP", lead]
        for i in texts:
            label = f"\\fI{inline(titles[i])}\\fR: " if titles[i] and len(texts) > 1 else ""
            out += [(label + inline(row[i])) or "\\&", ".br"]
        out.pop()
    return out


# ---- documents ------------------------------------------------------------------------------

def code_block(lines):
    return [".PP", ".RS 4", ".nf", *[plain(line).replace("-", "\\-") for line in lines], ".fi", ".RE"]


def paragraphs(lines):
    """The lines of a document in groups: (kind, lines)."""
    group, kind, i = [], None, 0
    while i < len(lines):
        line = lines[i]
        if line.startswith("```"):
            if group:
                yield kind, group
            end = next(k for k in range(i + 1, len(lines)) if lines[k].startswith("```"))
            yield "code", lines[i + 1:end]
            group, kind, i = [], None, end + 1
            continue
        now = ("none" if line.strip() == "" else "heading" if line.startswith("#") else
               "table" if line.startswith("|") else "item" if re.match(r"(- |\d+\. )", line) else
               "text")
        if now == "text" and kind == "item" and line.startswith(" "):
            group[-1] += " " + line.strip()
        else:
            if group and (now != kind or now == "heading"):
                yield kind, group
                group = []
            kind = now
            group.append(line)
        i += 1
    if group:
        yield kind, group


def heading(line, shift):
    level = len(line) - len(line.lstrip("#")) + shift
    text = line.lstrip("#").strip()
    if level <= 1:
        return []
    if level == 2:
        # Names keep their case.
        parts = [part if i % 2 else part.upper() for i, part in enumerate(text.split("`"))]
        return ['.SH "' + escape("".join(parts)).replace('"', "\\(dq") + '"']
    return [".SS \"" + inline(text).replace('"', "\\(dq") + '"']


def document(text, shift=0):
    out = []
    for kind, lines in paragraphs(text.split("\n")):
        if kind == "heading":
            out += heading(lines[0], shift)
        elif kind == "code":
            out += code_block(lines)
        elif kind == "table":
            out += table(lines)
        elif kind == "item":
            for line in lines:
                mark, words = line.split(" ", 1)
                out += [f".IP {'•' if mark == '-' else mark} 3", inline(words)]
        elif kind == "text":
            out += [".PP", *(inline_lines(lines))]
    return out


def inline_lines(lines):
    """A paragraph as one line: emphasis may go over a line's end."""
    return [inline(" ".join(line.strip() for line in lines))]


# ---- the header, the settings ---------------------------------------------------------------

def prototypes(text):
    """(comment, [prototype…]) of each commented function of a header, in its order."""
    pattern = re.compile(r"/\*((?:(?!\*/).)*)\*/\n((?:[a-z][^;{}#]*\bstager_\w+\([^;{}]*\);\n)+)", re.S)
    for match in pattern.finditer(text):
        words = re.sub(r"^ ?\* ?", "", match.group(1).strip(), flags=re.M)
        yield words, [re.sub(r"\s+", " ", p).strip() + ";" for p in match.group(2).split(";\n") if p]


def header(text):
    found = list(prototypes(text))
    out = ['.SH "FUNCTIONS"']
    for words, declared in found:
        out += [".PP", ".nf"] + [f"\\fB{escape(line)}\\fR" for line in declared] + [".fi", ".RS 4"]
        out += [plain(" ".join(words.split())), ".RE"]
    return out


def settings(text):
    """Blocks of comment; the last line of a block may be "#key: default"."""
    out, opened = [], False
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line for line in block.split("\n") if "SPDX" not in line]
        words = [line[1:].strip() for line in lines if line.startswith("# ")]
        keys = [re.match(r"#(\w+): ?(.*)", line) for line in lines]
        first = next((i for i, key in enumerate(keys) if key), None)
        if first is None:
            out += [".PP", plain(" ".join(words).replace("`", ""))]
            continue
        if not opened:
            out.append('.SH "SETTINGS"')
            opened = True
        key, value = keys[first].groups()
        more = [line[1:] for line in lines[first + 1:]]
        out += [".TP", f"\\fB{escape(key)}\\fR" + (f" ({escape(value)})" if value else "")]
        out += [plain(" ".join(words).replace("`", ""))]
        if more:
            out += code_block([keys[first].group()[1:], *more])
    return out


def page(title, release, about, see_also, sources):
    name, section = title.rsplit(".", 1)
    out = ["'\\\" t", ".\\\" Made by make_man.py: mend the source, not this.",
           f'.TH "{escape(name).upper()}" "{section}" "" "stager {release}" "stager"',
           ".nh", ".ad l", '.SH "NAME"', f"{escape(name)} \\- {about}"]
    for i, source in enumerate(sources):
        with open(source, encoding="utf-8") as file:
            text = file.read()
        if i == 0:
            out.append('.SH "DESCRIPTION"')
        if source.endswith(".h"):
            out += header(text)
        elif source.endswith(".yaml"):
            out += settings(text)
        else:
            out += document(text)
    out += ['.SH "SEE ALSO"', ",\n".join(reference(other) for other in see_also.split(","))]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(page(*sys.argv[1:5], sys.argv[5:]))
