# SPDX-License-Identifier: Apache-2.0
"""The places in the user's Python code that make the parts of a pipeline. A message of the daemon names lines of
the text that the builder wrote; the package replaces them by file and line of the user's code."""
from __future__ import annotations

import os
import re
import sys
from typing import Any, Dict, NamedTuple, Optional, Tuple

#: The name that messages of the daemon give to the text of a builder.
TEXT = "<pipeline>"

_SAID = re.compile(r"(?P<step>\w+) \(line (?P<step_line>\d+)\)"
                   r"|node (?P<node>\S+) \((?P<op>\w+)\)(?:, line \d+)?"
                   r"|(?:staged\.features|output)(?:\.(?P<feature>[^\s,]+))?, line (?P<feature_line>\d+)"
                   r"|(?P<column> \(line \d+, column \d+\))"
                   r"|\bline (?P<line>\d+)\b")
_HEAD = re.compile(re.escape(TEXT) + r"(?::(\d+):\d+)?: ")


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _caller() -> Tuple[Any, int]:
    """Returns the frame that called this package, and the number of frames of this package above it."""
    frame: Any = sys._getframe(1)
    package, n = _folder(frame.f_code.co_filename), 0
    while frame is not None and _folder(frame.f_code.co_filename) == package:
        frame, n = frame.f_back, n + 1
    return frame, n


def here() -> str:
    """Returns file:line of the code that called this package."""
    frame, _ = _caller()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


def script() -> Optional[str]:
    """Returns the file of the code that called this package; None in a notebook, which has none."""
    frame, _ = _caller()
    path = os.path.realpath(frame.f_code.co_filename) if frame is not None else ""
    return path if os.path.isfile(path) else None


def depth() -> int:
    """Returns the stacklevel by which warnings.warn names the code that called this package."""
    return _caller()[1]


class StepPlace(NamedTuple):
    """A step of a dataset, with the nodes of its graph."""

    name: str
    place: str
    nodes: Dict[str, str]


class Places:
    """The places of the lines, nodes and features of one text."""

    def __init__(self, whole: str) -> None:
        self.whole = whole
        self.lines: Dict[int, str] = {}
        self.steps: Dict[int, StepPlace] = {}
        self.nodes: Dict[str, str] = {}
        self.features: Dict[str, str] = {}

    def named(self, text: str) -> str:
        """Returns a message of the daemon with places in Python. Lines of data files stay: a line of the text has
        the name of a step, a node or a feature beside it."""
        head = _HEAD.match(text)
        step: Optional[StepPlace] = None
        found = False

        def name(match: "re.Match[str]") -> str:
            nonlocal step, found
            said, place = match.group(0), None
            if match["step"]:
                known = self.steps.get(int(match["step_line"]))
                if known is not None and known.name == match["step"]:
                    step, place = known, f"{known.name} ({known.place})"
            elif match["node"]:
                node = (step.nodes if step is not None else self.nodes).get(match["node"])
                place = None if node is None else f"node {match['node']} ({match['op']}), {node}"
            elif head is not None and match["feature_line"]:
                at = self.lines.get(int(match["feature_line"]))
                if said.startswith("staged"):
                    at = self.features.get(match["feature"] or "", at)
                place = said.rpartition(", line ")[0] + f", {at}"
            elif head is not None and match["column"]:
                return ""
            elif head is not None and match["line"]:
                place = self.lines.get(int(match["line"]))
            found = found or place is not None
            return said if place is None else place

        text = _SAID.sub(name, text[head.end():] if head is not None else text)
        if head is not None and (head[1] or not found):
            text = f"{self.lines.get(int(head[1] or 0), self.whole)}: {text}"
        return text

    def named_in(self, value: Any) -> Any:
        """Returns a reply with places in Python in each of its texts."""
        if isinstance(value, str):
            return self.named(value)
        if isinstance(value, dict):
            return {key: self.named_in(part) for key, part in value.items()}
        return [self.named_in(part) for part in value] if isinstance(value, list) else value
