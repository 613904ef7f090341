# SPDX-License-Identifier: Apache-2.0
"""What calls of ops give: a tensor, or for an op with several outputs all of them, as TensorFlow's function
of that name does. Each op with several outputs has its entry here."""
from __future__ import annotations

import difflib
import keyword
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._batch import Ragged, Sparse
from ._errors import InvalidArgumentError
from ._graph import Node, Output, Symbol, plain
from ._names import OPS, POSITIONAL


class Outputs(List[Any]):
    """The outputs of an op that have numbers: a list, without the arithmetic of lists."""

    __array_ufunc__ = None

    def __mul__(self, other: Any) -> Any:
        raise TypeError(f"these are {len(self)} tensors; an operator takes one of them: [0]")

    __rmul__ = __mul__


class Features(Dict[str, Any]):
    """The outputs of an op that have names: a dict. parsed["x/values"] is a part of parsed["x"], parsed[0]
    the output of that number."""

    def __init__(self, node: Node, values: Dict[str, Any]) -> None:
        super().__init__(values)
        self._node = node

    def __missing__(self, key: Any) -> Output:
        entry, _, part = key.rpartition("/") if isinstance(key, str) else ("", "", "")
        if isinstance(key, int) or part in getattr(self.get(entry), "_fields", ()):
            return Output(node=self._node, key=key)
        near = difflib.get_close_matches(str(key), self, 1)
        raise InvalidArgumentError(f"{self._node!r} has no output {key!r}" +
                                   (f"; did you mean {near[0]!r}?" if near else f": it has {', '.join(self)}"))


def _outputs(node: Node, n: int) -> Outputs:
    return Outputs(node[i] for i in range(n))


def _listed(attribute: str) -> Callable[[Node], Any]:
    """An output for each entry of an attribute."""
    def outputs(node: Node) -> Any:
        value = node.attributes.get(attribute)
        return _outputs(node, len(value)) if isinstance(value, list) else None
    return outputs


def _split(node: Node) -> Any:
    n = node.attributes.get("num_or_size_splits")
    return _outputs(node, n) if isinstance(n, int) and 0 < n < 1 << 16 else _listed("num_or_size_splits")(node)


def _assert(node: Node) -> Any:
    return _outputs(node, len(node.inputs) - 1) if len(node.inputs) > 2 else None


_KINDS: Dict[Any, Any] = {"ragged": Ragged, "var_len": Sparse, "sparse": Sparse}


def _string_split(node: Node) -> Any:
    kind = _KINDS.get(node.attributes.get("result_type", "ragged"))
    return None if kind is None else kind(*(node[i] for i, _ in enumerate(kind._fields)))


def _feature(node: Node, name: str, spec: Any) -> Any:
    kind = _KINDS.get(spec.get("type")) if isinstance(spec, dict) and node.op == "parse_example" else None
    return node[name] if kind is None else kind(*(node[f"{name}/{part}"] for part in kind._fields))


def _features(node: Node) -> Any:
    given = node.attributes.get("features")
    if not isinstance(given, dict):
        return None
    return Features(node, {name: _feature(node, name, spec) for name, spec in given.items()})


_SEVERAL: Dict[str, Callable[[Node], Any]] = {
    "assert": _assert, "augru": lambda node: _outputs(node, 2), "decode_csv": _listed("record_defaults"),
    "gru": lambda node: _outputs(node, 2), "parse_example": _features, "parse_json": _features, "split": _split,
    "string_split": _string_split}


def _split_arguments(op: str, given: Tuple[Any, ...], attributes: Dict[str, Any]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """The inputs, and all attributes: those without a name stand behind the inputs, as in TensorFlow."""
    n, names = POSITIONAL.get(op, (len(given), ()))
    if op in ("concat", "stack") and given and isinstance(given[0], Symbol):
        n = len(given)      # its inputs one by one
    values = dict(zip(names, given[n:]))
    if len(given) > n + len(names):
        raise TypeError(f"ops.{op} takes {n + len(names)} positional arguments at most, but {len(given)} were given")
    for name, value in values.items():
        if name in attributes:
            raise TypeError(f"ops.{op}: {name} is given twice")
        if isinstance(value, Symbol):
            raise TypeError(f"ops.{op}: {name} is an attribute, known before any batch, and not a tensor")
    return given[:n], {**values, **attributes}


class _Ops:
    """ops.NAME(*inputs, name=None, **attributes) is an op of docs/ops.md; `assert`, which Python keeps
    for itself, is ops.assert_."""

    def __getattr__(self, op: str) -> Any:
        if op.startswith("_"):
            raise AttributeError(op)
        op = op.rstrip("_")

        def make(*given: Any, name: Optional[str] = None, **named: Any) -> Any:
            inputs, attributes = _split_arguments(op, given, named)
            node = Node(op, inputs, plain(attributes), name)
            outputs = _SEVERAL[op](node) if op in _SEVERAL else None
            return node if outputs is None else outputs
        make.__name__ = op
        make.__doc__ = f"{op}(*inputs, name=None, **attributes): the op `{op}` of docs/ops.md."
        return make

    def __dir__(self) -> List[str]:
        return sorted([f"{op}_" if keyword.iskeyword(op) else op for op in OPS])


ops = _Ops()
