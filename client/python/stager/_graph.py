# SPDX-License-Identifier: Apache-2.0
"""Expressions of graph ops. Nothing is computed here, and nothing checked: what an op takes is the
daemon's to say. An expression becomes nodes of a pipeline's graph when the pipeline is written."""
from __future__ import annotations

import contextlib
import difflib
import os
from contextvars import ContextVar
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from ._errors import InvalidArgumentError
from ._names import OPS
from ._places import here


# What NumPy calls the operators.
_OPERATORS = {"add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide",
              "true_divide": "divide", "floor_divide": "floordiv", "remainder": "floormod", "power": "pow",
              "absolute": "abs", "negative": "negative", "matmul": "matmul", "less": "less", "less_equal": "less_equal", "greater": "greater",
              "greater_equal": "greater_equal", "equal": "equal", "not_equal": "not_equal"}


class Symbol:
    """A tensor that will be: a component of an element, an output of a node, or a staged feature. Python's
    operators on it are ops of the graph."""

    def _input(self) -> Output:
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Node:
        """NumPy's scalar or array on the left of an operator; its functions are not for tensors."""
        op = _OPERATORS.get(ufunc.__name__)
        if op is None or method != "__call__" or named:
            near = [ufunc.__name__] if ufunc.__name__ in OPS else difflib.get_close_matches(ufunc.__name__, OPS, 1)
            raise TypeError(f"numpy.{ufunc.__name__} computes on arrays, and a tensor of a pipeline has no value yet; use " +
                            (f"ops.{near[0]}" if near else "an op of dir(stager.ops)"))
        return Node(op, inputs)

    def __getitem__(self, key: Any) -> Any:
        raise _no_slices(self)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self!r} is one tensor, and has no values yet: ops.split makes several of it")

    def __bool__(self) -> bool:
        raise TypeError("a tensor of a pipeline has no value yet: it is traced once, and not run for each "
                        "record; use ops.where, or a filter step")

    def __add__(self, other: Any) -> Node:
        return Node("add", (self, other))

    def __radd__(self, other: Any) -> Node:
        return Node("add", (other, self))

    def __sub__(self, other: Any) -> Node:
        return Node("subtract", (self, other))

    def __rsub__(self, other: Any) -> Node:
        return Node("subtract", (other, self))

    def __mul__(self, other: Any) -> Node:
        return Node("multiply", (self, other))

    def __rmul__(self, other: Any) -> Node:
        return Node("multiply", (other, self))

    def __truediv__(self, other: Any) -> Node:
        return Node("divide", (self, other))

    def __rtruediv__(self, other: Any) -> Node:
        return Node("divide", (other, self))

    def __floordiv__(self, other: Any) -> Node:
        return Node("floordiv", (self, other))

    def __mod__(self, other: Any) -> Node:
        return Node("floormod", (self, other))

    def __pow__(self, other: Any) -> Node:
        return Node("pow", (self, other))

    def __matmul__(self, other: Any) -> Node:
        return Node("matmul", (self, other))

    def __neg__(self) -> Node:
        return Node("negative", (self,))

    def __abs__(self) -> Node:
        return Node("abs", (self,))

    def __lt__(self, other: Any) -> Node:
        return Node("less", (self, other))

    def __le__(self, other: Any) -> Node:
        return Node("less_equal", (self, other))

    def __gt__(self, other: Any) -> Node:
        return Node("greater", (self, other))

    def __ge__(self, other: Any) -> Node:
        return Node("greater_equal", (self, other))

    def __eq__(self, other: Any) -> Any:
        return Node("equal", (self, other))

    def __ne__(self, other: Any) -> Any:
        return Node("not_equal", (self, other))

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Node:
        return Node("logical_and", (self, other))

    def __or__(self, other: Any) -> Node:
        return Node("logical_or", (self, other))

    def __invert__(self) -> Node:
        return Node("logical_not", (self,))


def _no_slices(symbol: Symbol) -> TypeError:
    return TypeError(f"{symbol!r} has no rows and columns to take by [ ]: ops.slice(x, begin=[0, 1], size=[-1, 1]) takes a "
                     "part of a tensor, ops.gather(x, [1], axis=1) some of its columns, ops.split all of them; the first "
                     "dimension behind batch is that of the rows")


class Output(Symbol):
    """A tensor with a name: of a component, of a staged feature, or output `key` of a node."""

    def __init__(self, name: str = "", node: Optional[Node] = None, key: Any = None,
                 dataset: Any = None) -> None:
        self.name, self.node, self.key, self.dataset = name, node, key, dataset
        self.place = here() if node is None else node.place

    def _input(self) -> Output:
        return self

    def __repr__(self) -> str:
        return f"<tensor {self.name or f'{self.node!r}:{self.key}'}>"


# Nodes that each node made now runs after.
_after: ContextVar[Tuple[Node, ...]] = ContextVar("stager_control_dependencies", default=())


@contextlib.contextmanager
def control_dependencies(control_inputs: Optional[Sequence[Any]]) -> Iterator[None]:
    """As tf.control_dependencies: the ops written in its `with` run after these. None: after no others."""
    nodes = []
    for output in _flatten("control_dependencies", list(control_inputs or ())):
        if output.node is None:
            raise InvalidArgumentError(f"{output!r} is made by no op: control_dependencies takes results of ops")
        nodes.append(output.node)
    token = _after.set(() if control_inputs is None else _after.get() + tuple(nodes))
    try:
        yield
    finally:
        _after.reset(token)


class Node(Symbol):
    """An op with one output, or with outputs that `_outputs.py` does not know: node[0], node[1] … are its
    outputs, node["label"] one that has a name, node[1:14] a list of them."""

    def __init__(self, op: str, inputs: Tuple[Any, ...], attributes: Optional[Dict[str, Any]] = None,
                 name: Optional[str] = None) -> None:
        self.op, self.name, self.place = op, name, here()
        self.attributes = attributes or {}
        self.inputs: List[Output] = [output for value in inputs for output in _flatten(op, value)]
        self.controls: Tuple[Node, ...] = () if op == "constant" else _after.get()

    def _input(self) -> Output:
        return Output(node=self)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, (int, str, slice)):
            raise _no_slices(self)
        if isinstance(key, slice):
            if key.stop is None or key.stop < 0 or (key.start or 0) < 0:
                raise InvalidArgumentError(f"{self!r}[{key.start}:{key.stop}]: give both ends; the number of "
                                           "its outputs is not known here")
            return [self[i] for i in range(key.start or 0, key.stop, key.step or 1)]
        return Output(node=self, key=key)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self!r} is one tensor, or its number of outputs is not known here: take them by "
                        "number, [0], [1] … or [0:3]")

    def __repr__(self) -> str:
        return f"<op {self.op}>"


def is_parts(value: Any) -> bool:
    """Is it a Ragged or Sparse?"""
    return isinstance(value, tuple) and hasattr(value, "_asdict")


# Ops that read the parts of a ragged or sparse tensor, one input each.
_READ_PARTS = ("embedding_lookup",)


def _holds_symbol(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_symbol(part) for part in value)
    return isinstance(value, (Symbol, dict))


def _is_number(value: Any) -> bool:
    """A number takes the dtype of the tensor beside it."""
    if isinstance(value, list):
        return bool(value) and all(_is_number(part) for part in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _flatten(op: str, value: Any) -> Iterator[Output]:
    """The inputs that an argument of an op stands for."""
    if isinstance(value, Symbol):
        yield value._input()
    elif isinstance(value, dict):
        raise TypeError(f"{op} takes tensors, not a dict of them: name one, [{next(iter(value), '')!r}]")
    elif is_parts(value) and op not in _READ_PARTS:
        kind, others = type(value).__name__, value._fields[1:]
        raise TypeError(f"{op} takes dense tensors, not a {kind.lower()} one: {op}(x.values) computes on its values, and "
                        f"stager.{kind}(…, {', '.join(f'x.{name}' for name in others)}) puts the result together")
    elif isinstance(value, (list, tuple)) and _holds_symbol(value):
        for part in value:
            yield from _flatten(op, part)
    else:
        value = plain(value)
        yield Node("constant", (), {"value": value, **({"weak": True} if _is_number(value) else {})})._input()


def one(value: Any, what: str) -> Any:
    """Returns value, which has to be one tensor."""
    if isinstance(value, Symbol):
        return value
    if isinstance(value, dict):
        found = f"a dict of {len(value)}: take one, [{next(iter(value), '')!r}]"
    elif is_parts(value):
        found = f"a {type(value).__name__.lower()} one of {len(value)}: take .{value._fields[0]}"
    elif isinstance(value, (list, tuple)):
        found = f"a list of {len(value)}: take one, [0]"
    else:
        found = repr(value)
    raise TypeError(f"{what} is one tensor, not {found}")


def dtype_name(dtype: Any) -> str:
    """Of a name, a type of Python's or NumPy's, or a dtype of NumPy's, TensorFlow's or torch's."""
    if isinstance(dtype, str):
        return dtype
    if hasattr(dtype, "as_numpy_dtype"):
        return str(dtype.name)
    if str(dtype).startswith("torch."):
        return str(dtype)[len("torch."):]
    kind = np.dtype(dtype)
    if kind.kind not in "biufSU" and dtype is not object:
        raise TypeError(f"{dtype!r} is no dtype of a tensor")
    return "string" if kind.kind in "SUO" else kind.name


def _is_dtype(value: Any) -> bool:
    return isinstance(value, (type, np.dtype)) or hasattr(value, "as_numpy_dtype") or str(type(value)) == "<class 'torch.dtype'>"


def plain(value: Any) -> Any:
    """What JSON can write: NumPy's scalars and arrays become Python's, paths text, dtypes their names."""
    if _is_dtype(value):
        return dtype_name(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


class Writer:
    """Names the nodes of expressions and writes them as entries of a graph."""

    def __init__(self) -> None:
        self.nodes: List[Dict[str, Any]] = []
        self.datasets: List[Any] = []  # of the components that were met
        self.places: Dict[str, str] = {}  # of nodes
        self.feature_places: Dict[str, str] = {}
        self._names: Dict[int, str] = {}
        self._retained: List[Node] = []  # so that no id is used twice
        self._used: Dict[str, int] = {}

    def reference(self, symbol: Symbol) -> str:
        """How a graph calls that tensor: "record", "columns:2"."""
        output = symbol._input()
        if output.node is None:
            if output.dataset is not None and not any(d is output.dataset for d in self.datasets):
                self.datasets.append(output.dataset)
            return output.name
        name = self._name(output.node)
        return name if output.key is None else f"{name}:{output.key}"

    def structure(self, value: Any, path: str = "") -> Any:
        """The same structure with names of tensors as leaves."""
        if isinstance(value, Symbol):
            name = self.reference(value)
            self.feature_places[path or name] = value._input().place
            return name
        if value is None:
            return None
        if is_parts(value):
            return {type(value).__name__.lower(): self.structure(value._asdict(), path)}
        below = f"{path}/" if path else ""
        if isinstance(value, dict):
            return {key: self.structure(part, f"{below}{key}") for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.structure(part, f"{below}{i}") for i, part in enumerate(value)]
        raise InvalidArgumentError(f"{value!r} is not a tensor of a pipeline; for a constant: "
                                   f"ops.constant(value={value!r})")

    def _name(self, node: Node) -> str:
        if id(node) in self._names:
            return self._names[id(node)]
        inputs = [self.reference(output) for output in node.inputs]
        inputs += dict.fromkeys(f"^{self._name(control)}" for control in node.controls)
        name = node.name or self._free(node.op)
        if any(entry["name"] == name for entry in self.nodes):
            raise InvalidArgumentError(f"two nodes have the name {name!r}")
        self._names[id(node)] = name
        self._retained.append(node)
        self.places[name] = node.place
        entry: Dict[str, Any] = {"name": name, "op": node.op}
        if inputs:
            entry["input"] = inputs
        self.nodes.append({**entry, **node.attributes})
        return name

    def _free(self, op: str) -> str:
        """op, op_1, op_2 …: as tf.Graph names its nodes."""
        taken = {entry["name"] for entry in self.nodes}
        while True:
            count = self._used.get(op, 0)
            self._used[op] = count + 1
            name = f"{op}_{count}" if count else op
            if name not in taken:
                return name
