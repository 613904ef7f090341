#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md and the errors in the code agree.

    check_errors.py ROOT            the check
    check_errors.py ROOT --list     prints each error: status codes, file and line, text

Every status code has a section with its number and its exception in Python. Every file that makes an error belongs
to a component of the page. Every text of the page, with … for what varies, is in a file of the component of its row,
and not with another status code only. A component that makes errors of a status code has a row in the section of
that code, unless a row of `any` has their texts. Some idioms that are hard to read are refused.

An error is a call with an argument that names a status code and another that is a text, or a `raise` of an exception
of the package. A text elsewhere (a table of reasons, a call that passes a code on) has no known code, and may stand in
any section.
"""
import ast
import re
import sys
from collections import namedtuple

import house

PAGE, EXCEPTIONS = "docs/errors.md", "client/python/stager/_errors.py"
FOLDERS = ("client/", "core/", "cuda/", "daemon/", "ops/", "proto/")
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\w+|\s+|.', re.S)
CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh?|ll?|z|t|j)?[a-zA-Z]")
SECTION = re.compile(r"^## ([A-Z_]+)\n(.*?)(?=^## |\Z)", re.M | re.S)
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|", re.M)
COMPONENT = re.compile(r"^\| (\w[\w ]*) \| .* \| ((?:`[\w./]+`(?:, )?)+) \|$", re.M)
ANY = "any"
ODD = re.compile(r"\b(?:is no|are no|is none|makes? no sense|goes? with|nobody|somebody|who|whom|told|wants|anew)\b|"
                 r"\bthere (?:is|are) no\b|, and is\b")

Error = namedtuple("Error", "codes file line text")


def spread(text):
    """The text with … in place of each value that printf fills in."""
    return CONVERSION.sub("…", text.replace("%%", "\0")).replace("\0", "%")


def tokens(source):
    """The tokens of a C file and their lines; texts side by side, and PRI macros between them, are one token."""
    found, line = [], 1
    for token in TOKEN.findall(source):
        if found and found[-1][0].startswith('"') and token.startswith(('"', "PRI")):
            more = token[1:] if token.startswith('"') else 'd"'
            found[-1] = (found[-1][0][:-1] + more, found[-1][1])
        elif not token.isspace() and not token.startswith(("/*", "//")):
            found.append((token, line))
        line += token.count("\n")
    return found


def arguments(found, at):
    """The arguments of the call whose "(" is at `at`, each as its tokens outside of further brackets."""
    depth, args = 0, [[]]
    for token, _ in found[at:]:
        depth += (token in "([{") - (token in ")]}")
        if depth == 0:
            break
        if token == "," and depth == 1:
            args.append([])
        elif depth == 1:
            args[-1].append(token)
    return args


def texts_of(args):
    """The texts among tokens, without their quotes and escapes."""
    return [spread(re.sub(r'\\(["\\])', r"\1", token[1:-1])) for token in args if token.startswith('"')]


def of_c(name, source, codes):
    """The errors of a C file, then its other texts, with no code."""
    found, errors = tokens(source), []
    for at, (token, line) in enumerate(found[:-1]):
        if found[at + 1][0] == "(" and re.match(r"[a-z_]\w*$", token):
            args = arguments(found, at + 1)
            named = {word[7:] for arg in args for minus, word in zip(arg, arg[1:])
                     if minus == "-" and word.startswith("STAGER_")} & codes
            errors += [Error(named, name, line, text) for arg in args for text in texts_of(arg) if named]
    known = {error.text for error in errors}
    return errors + [Error(set(), name, line, text) for token, line in found for text in texts_of([token])
                     if text not in known]


def text_in_python(node):
    """What a text of Python says: f-strings and sums too."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_in_python(value) for value in node.values)
    if isinstance(node, ast.BinOp):
        return text_in_python(node.left) + text_in_python(node.right)
    return "…"


def of_python(name, source, exceptions):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            kind = getattr(node.exc.func, "id", "")
            yield Error(exceptions.get(kind, set()), name, node.lineno, text_in_python(node.exc.args[0]))


def exceptions_of(root):
    """The exceptions of the package: name, number, status code."""
    return re.findall(r'^class (\w+)\(.*\n    code, status = (\d+), "([A-Z_]+)"', house.read(root, EXCEPTIONS), re.M)


def survey(root):
    """All texts of the code."""
    exceptions = {kind: {code} for kind, _, code in exceptions_of(root)}
    exceptions["MaxInFlightError"] = {"FAILED_PRECONDITION"}
    codes = set().union(*exceptions.values())
    errors = []
    for name in house.tracked(root, ".c", ".h", ".py"):
        if name.startswith(FOLDERS):
            of = (of_python, exceptions) if name.endswith(".py") else (of_c, codes)
            errors += of[0](name, house.read(root, name), of[1])
    return errors


def component_of(name, components):
    """The component with the longest path that the file's name begins with."""
    return max(((path, component) for path, component in components if name.startswith(path)),
               default=("", None), key=lambda entry: len(entry[0]))[1]


def matches(pattern, text):
    """Whether the parts of the pattern are in the text, in this order."""
    at = 0
    for part in pattern.split("…"):
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def line_of(page, position):
    return page.count("\n", 0, position) + 1


def rows_of(page, section, components):
    """The texts of a section: component, text, line."""
    for row in ROW.finditer(page, section.start(2), section.end(2)):
        if row.group(1) in components:
            for text in re.findall(r"`([^`]+)`", row.group(2)):
                yield row.group(1), text, line_of(page, row.start())


def check_section(page, section, errors):
    """Compares a section with the errors of each component."""
    code, found, rows = section.group(1), [], list(rows_of(page, section, errors))
    for component, text, line in rows:
        those = [error for error in errors[component] if matches(text, error.text)]
        if not those:
            found.append(f"{PAGE}:{line}: no text of {component} in the code: {text}")
        elif not any(code in error.codes or not error.codes for error in those):
            found.append(f"{PAGE}:{line}: in {those[0].file} this is {', '.join(sorted(those[0].codes))}: {text}")
    everywhere = [text for component, text, _ in rows if component == ANY]
    for component in sorted(set(errors) - {component for component, _, _ in rows} - {ANY}):
        example = next((error for error in errors[component] if code in error.codes
                        and not any(matches(text, error.text) for text in everywhere)), None)
        if example is not None:
            found.append(f"{PAGE}:{line_of(page, section.start())}: {code} has no row of {component}, which makes it "
                         f"in {example.file}:{example.line}")
    return found


def problems(root):
    page, found = house.read(root, PAGE), []
    components = [(path, match.group(1)) for match in COMPONENT.finditer(page, 0, page.index("\n## CANCELLED\n"))
                  for path in re.findall(r"`(.*?)`", match.group(2))]
    texts = survey(root)
    errors = {component: [] for _, component in components}
    errors[ANY] = texts
    for error in texts:
        odd = ODD.search(error.text) if error.codes else None
        if odd is not None:
            found.append(f"{error.file}:{error.line}: \"{odd.group(0)}\" in an error: name the component, and say what to do")
        component = component_of(error.file, components)
        if component is not None:
            errors[component].append(error)
        elif error.codes:
            found.append(f"{error.file}:{error.line}: makes an error, and is of no component of {PAGE}")
    found += [f"{PAGE}:1: {path} has no texts" for path, _ in components
              if not any(error.file.startswith(path) for error in texts)]
    sections = {match.group(1): match for match in SECTION.finditer(page)}
    for kind, number, code in exceptions_of(root):
        if code not in sections or not all(f"`{word}`" in sections[code].group(2) for word in (f"-{number}", kind)):
            found.append(f"{PAGE}:1: has no section {code} with `-{number}` and `{kind}`")
    for section in sections.values():
        found += check_section(page, section, errors)
    return found


if __name__ == "__main__":
    if sys.argv[2:] == ["--list"]:
        for error in survey(sys.argv[1]):
            if error.codes:
                print(f"{','.join(sorted(error.codes))}\t{error.file}:{error.line}\t{error.text}")
        sys.exit(0)
    house.main(problems, "correct the row of docs/errors.md, or add one: text, cause, remedy")
