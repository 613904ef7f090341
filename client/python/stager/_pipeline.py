# SPDX-License-Identifier: Apache-2.0
"""Pipelines from Python, by tf.data's names. What is built here is the text of a pipeline file: the
daemon alone reads and checks it, and has the list of steps and ops."""
from __future__ import annotations

import difflib
import json
import keyword
import math
import os
import re
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union, cast

from . import _admin
from ._errors import Error, InvalidArgumentError, UnimplementedError
from ._graph import Output, Symbol, Writer, dtype_name, is_parts, one, plain
from ._names import STEPS
from ._places import Places, StepPlace, here

#: For capacity, num_threads, num_parallel_calls and the buffer_size of prefetch: found by measurement.
AUTOTUNE = -1

#: What DeepRec and tf.data call functions of this package, and where each is.
ELSEWHERE = {
    "make_prefetch_hook": "no hook is needed: stagerd runs the stage; stager.open(stager.apply(staged)) has its batches",
    "mark_target_node": "staged(…).targets(node) names the nodes that stream.run fetches",
    "SmartStageOptions": "staged(…, smart_stage=\"auto\") takes the options as arguments",
    "prefetch_join": "Dataset.interleave reads files in parallel, and stager.zip joins datasets",
    "list_files": "stager.files(pattern) has these paths, in random order",
    "TextLineDataset": "stager.files(…).text_line() reads lines",
    "TFRecordDataset": "stager.files(…).tfrecord() reads TFRecords",
    "FixedLengthRecordDataset": "stager.files(…).fixed_length_record(n) reads them",
    "CsvDataset": "stager.files(…).csv() reads records for ops.decode_csv",
    "make_csv_dataset": "stager.files(…).csv({\"price\": \"float32\"}).batch(…) has the columns by name",
    "from_tensor_slices": "write the array by numpy.save: stager.files(…).npy(dtype, shape) has its rows",
    "from_generator": "no Python runs in stagerd: write files, or call a py_function on the numbers of stager.range(n)",
}

# The parameters that tf.data takes without their names.
_POSITIONAL: Dict[str, Tuple[str, ...]] = {
    "batch": ("batch_size", "drop_remainder"), "cache": ("filename",), "enumerate": ("start",),
    "fixed_length_record": ("record_bytes", "header_bytes", "footer_bytes", "buffer_size", "compression_type"),
    "ignore_errors": ("log_warning",), "npy": ("dtype", "shape"),
    "padded_batch": ("batch_size", "padded_shapes", "padding_values", "drop_remainder"),
    "prefetch": ("buffer_size",), "ragged_batch": ("batch_size", "drop_remainder"),
    "rebatch": ("batch_size", "drop_remainder"), "repeat": ("count",),
    "shard": ("num_shards", "index"), "shuffle": ("buffer_size", "seed", "reshuffle_each_iteration"),
    "shuffle_and_repeat": ("buffer_size", "count", "seed"), "skip": ("count",), "take": ("count",),
    "tar": ("parts",), "text_line": ("compression_type", "buffer_size"), "tfrecord": ("compression_type", "buffer_size"),
}


def _key(name: str) -> str:
    """global_ stands for global, which Python does not take as a name."""
    return name[:-1] if name.endswith("_") and keyword.iskeyword(name[:-1]) else name


def _arguments(step: str, given: Tuple[Any, ...], named: Dict[str, Any]) -> Dict[str, Any]:
    names = _POSITIONAL.get(step, ())
    near = difflib.get_close_matches(step, _POSITIONAL, 1) if given and not names else []
    if near:
        raise TypeError(f"{step}() takes no positional arguments; did you mean {near[0]}()?")
    if len(given) > len(names):
        raise TypeError(f"{step}() takes {len(names)} positional arguments, but {len(given)} were "
                        "given")
    values = dict(zip(names, given))
    for name in values:
        if name in named:
            raise TypeError(f"{step}(): {name} is given twice")
    return {_key(name): plain(value) for name, value in {**values, **named}.items() if value is not None}


def _no_loop(what: str) -> TypeError:
    return TypeError(f"{what} describes batches and has none: `stager.open(stager.apply(it))` is what a loop "
                     "goes over")


def _signature(given: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """Of what a py_function gives: the step's output_types and output_shapes."""
    if given is None:
        return {}
    types, shapes = {}, {}
    if not isinstance(given, dict):
        raise TypeError(f"output_signature must map names to (dtype, shape), as in {{\"image\": (\"float32\", "
                        f"[None, 3, 224, 224])}}, not {given!r}")
    for name, spec in given.items():
        if not (isinstance(spec, tuple) and len(spec) == 2) and not hasattr(spec, "dtype"):
            raise TypeError(f"output_signature[{name!r}] must be (dtype, shape), or an object with both, not "
                            f"{spec!r}")
        dtype, shape = spec if isinstance(spec, tuple) else (spec.dtype, spec.shape)
        types[name] = dtype_name(dtype)
        shapes[name] = [None if size is None or size == -1 else int(size) for size in shape]
    return {"output_types": types, "output_shapes": shapes}


# The dtypes of pyarrow's types, by the first word of their names. A decimal is a string where it is no integer.
_ARROW = {"bool": "bool", "halffloat": "float16", "float": "float32", "double": "float64", "string": "string",
          "large_string": "string", "binary": "string", "large_binary": "string", "fixed_size_binary": "string",
          "date32": "int32", "time32": "int32", "time64": "int64", "timestamp": "int64", "duration": "int64"}


def _arrow_columns(step: str, name: str, kind: Any,
                   shape: List[Optional[int]]) -> Iterator[Tuple[str, str, List[Optional[int]]]]:
    """The columns of a field of a schema of pyarrow: name, dtype and shape."""
    word = re.split(r"[\[(<]", str(kind))[0]
    if word in ("list", "large_list") and len(shape) < 2:
        yield from _arrow_columns(step, name, kind.value_type, [*shape, None])
    elif word == "fixed_size_list" and len(shape) < 2:
        yield from _arrow_columns(step, name, kind.value_type, [*shape, kind.list_size])
    elif word == "map" and len(shape) < 2:
        yield from _arrow_columns(step, f"{name}/key", kind.key_type, [*shape, None])
        yield from _arrow_columns(step, f"{name}/value", kind.item_type, [*shape, None])
    elif word == "dictionary":
        yield from _arrow_columns(step, name, kind.value_type, shape)
    elif word in _ARROW or re.match(r"u?int\d+$", word):
        yield name, _ARROW.get(word, word), shape
    else:
        raise TypeError(f"{step}: column {name} is {kind}: name its dtype, or leave it out, with a mapping")


def _columns(step: str, given: Any, shapes: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """The columns of a `parquet` or `arrow` step, by name: their dtypes; and the shapes of lists."""
    if isinstance(given, dict):
        return {"columns": {name: dtype_name(dtype) for name, dtype in given.items()}, "shapes": shapes}
    if not (hasattr(given, "names") and hasattr(given, "types")):
        raise TypeError(step + ": columns maps names to dtypes, as in {\"price\": \"float32\"}, or is a schema of "
                        f"pyarrow; stager.{step}(pattern, columns=[\"price\"]) asks stagerd for dtypes; found {given!r}")
    columns = [column for name, kind in zip(given.names, given.types)
               for column in _arrow_columns(step, name, kind, [])]
    lists = {name: shape for name, _, shape in columns if shape}
    return {"columns": {name: dtype for name, dtype, _ in columns}, "shapes": {**lists, **(shapes or {})} or None}


def _described(step: str, pattern: Any, names: Any, shapes: Optional[Dict[str, Any]],
               runtime_dir: Optional[str]) -> Tuple[Any, Optional[Dict[str, Any]]]:
    """Columns that are named only, or not at all, with the dtypes and the shapes that the first file has."""
    if names is not None and (isinstance(names, (str, dict)) or hasattr(names, "names") or
                              not all(isinstance(name, str) for name in names)):
        return names, shapes
    first = pattern if isinstance(pattern, (str, os.PathLike)) else next(iter(pattern))
    found = _admin.schema(_whole_path(first, True), runtime_dir=runtime_dir)
    if found["format"] != step:
        raise InvalidArgumentError(f"{step}: {found['url']} is a file of the step {found['format']}")
    columns = {column["name"]: column for column in found["columns"]}
    readable = [name for name, column in columns.items() if column["dtype"]]
    chosen = readable if names is None else list(names)
    for name in chosen:
        if name not in columns:
            near = difflib.get_close_matches(name, columns, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ": it has " + ", ".join(columns)
            raise InvalidArgumentError(f"{step}: {found['url']} has no column {name!r}{hint}")
        if not columns[name]["dtype"]:
            raise UnimplementedError(f"{step}: {found['url']}: column {name}: {columns[name]['problem']}")
    lists = {name: columns[name]["shape"] for name in chosen if columns[name]["shape"]}
    return {name: columns[name]["dtype"] for name in chosen}, {**lists, **(shapes or {})} or None


def _filters(given: Optional[Sequence[Any]]) -> Optional[List[Any]]:
    """Conditions as lists, and sets of values as lists in order."""
    if given is None:
        return None
    if not isinstance(given, (list, tuple)):
        raise TypeError("filters is a list of conditions, as in [(\"price\", \">\", 3.5)], or a list of such lists; "
                        f"found {given!r}")
    if all(isinstance(one, (list, tuple)) and one and isinstance(one[0], str) for one in given):
        return [[sorted(value, key=str) if isinstance(value, (set, frozenset)) else
                 list(value) if isinstance(value, tuple) else value for value in one] for one in given]
    return [_filters(one) for one in given]


def _function_name(function: Any) -> str:
    """module:name of what workers import."""
    if not isinstance(function, str):
        name = getattr(function, "__qualname__", "")
        if not callable(function) or not name or "<" in name:
            raise InvalidArgumentError(
                f"py_function takes a function of a module, or \"module:name\", not {function!r}: it is imported "
                "by other processes")
        function = f"{function.__module__}:{name}"
    if function.startswith("__main__:"):
        raise InvalidArgumentError(
            f"py_function {function}: a script or notebook cannot be imported by other processes: write the "
            "function into a separate module, such as features.py beside it")
    return str(function)


class Component(Output):
    """A component of an element, or a staged feature. The parts of a ragged or sparse one are tensors for ops;
    as a feature it is one value."""

    def _part(self, name: str) -> Output:
        return Output(name=f"{self.name}/{name}", dataset=self.dataset)

    @property
    def values(self) -> Output:
        return self._part("values")

    @property
    def row_splits(self) -> Output:
        return self._part("row_splits")

    @property
    def indices(self) -> Output:
        return self._part("indices")

    @property
    def dense_shape(self) -> Output:
        return self._part("dense_shape")


class Element:
    """What a dataset yields, to be written about: element["record"] is its component of that name."""

    def __init__(self, dataset: Optional[Dataset] = None) -> None:
        self._dataset = dataset

    def __getitem__(self, name: Union[str, int]) -> Component:
        return Component(name=str(name), dataset=self._dataset)

    def __iter__(self) -> Any:
        raise TypeError("components of an element have names: element[\"record\"]")

    def __repr__(self) -> str:
        return "<stager.Element>"


class _Step(NamedTuple):
    name: str
    arguments: Dict[str, Any]
    special: Optional[Tuple[str, Any]]  # ("output", function), ("from", datasets) …
    place: str


def _source(name: str, arguments: Dict[str, Any], special: Optional[Tuple[str, Any]] = None) -> Dataset:
    return Dataset((_Step(name, arguments, special, here()),))


class Dataset:
    """A row of steps. Each method is a step of docs/dataset.md and gives a new dataset; the
    parameters have its names."""

    def __init__(self, steps: Tuple[_Step, ...] = ()) -> None:
        self._steps = steps

    def _with(self, name: str, arguments: Dict[str, Any], special: Optional[Tuple[str, Any]] = None) -> Dataset:
        return Dataset(self._steps + (_Step(name, arguments, special, here()),))

    def __getattr__(self, step: str) -> Callable[..., Dataset]:
        if step.startswith("_"):
            raise AttributeError(step)

        def add(*given: Any, **named: Any) -> Dataset:
            return self._with(step, _arguments(step, given, named))
        add.__name__ = step
        return add

    def __iter__(self) -> Any:
        raise _no_loop("a Dataset")

    # ---- steps with functions, which are traced into graphs ----

    def map(self, map_func: Callable[[Element], Any], num_parallel_calls: Union[int, str, None] = None,
            deterministic: Optional[bool] = None, **named: Any) -> Dataset:
        """map_func(element) says in ops what becomes of each element. Behind all other steps, and without other
        arguments, it is the pipeline's `graph` and `features`; else a step `map`."""
        if not callable(map_func):
            raise TypeError(f"map takes a function of an element, not {map_func!r}")
        given = {"num_parallel_calls": num_parallel_calls, "deterministic": deterministic, **named}
        return self._with("map", _arguments("map", (), given), ("output", map_func))

    def map_and_batch(self, map_func: Callable[[Element], Any], batch_size: int,
                      num_parallel_batches: Optional[int] = None, drop_remainder: Optional[bool] = None,
                      num_parallel_calls: Union[int, str, None] = None, **named: Any) -> Dataset:
        """`map` and `batch` in one step."""
        given = {"batch_size": batch_size, "num_parallel_batches": num_parallel_batches, "drop_remainder": drop_remainder,
                 "num_parallel_calls": num_parallel_calls, **named}
        return self._with("map_and_batch", _arguments("map_and_batch", (), given), ("output", map_func))

    def filter(self, predicate: Callable[[Element], Any]) -> Dataset:
        """Keeps the elements for which predicate(element), a tensor of bool, is true."""
        return self._with("filter", {}, ("predicate", predicate))

    def bucket_by_sequence_length(self, element_length_func: Callable[[Element], Any],
                                  bucket_boundaries: Sequence[int],
                                  bucket_batch_sizes: Sequence[int], padded_shapes: Any = None,
                                  padding_values: Any = None, pad_to_bucket_boundary: Optional[bool] = None,
                                  no_padding: Optional[bool] = None, drop_remainder: Optional[bool] = None,
                                  **named: Any) -> Dataset:
        """element_length_func(element) is the length."""
        given = {"bucket_boundaries": bucket_boundaries, "bucket_batch_sizes": bucket_batch_sizes,
                 "padded_shapes": padded_shapes, "padding_values": padding_values,
                 "pad_to_bucket_boundary": pad_to_bucket_boundary, "no_padding": no_padding,
                 "drop_remainder": drop_remainder, **named}
        return self._with("bucket_by_sequence_length", _arguments("bucket_by_sequence_length", (), given),
                          ("element_length", element_length_func))

    def py_function(self, function: Union[str, Callable[..., Any]], output_signature: Optional[Dict[str, Any]] = None,
                    **named: Any) -> Dataset:
        """Calls "module:name", or a function of a module, in processes of this user, with each element: a
        dict of arrays by name. A parameter `context` of the function gets a `stager.Context`. output_signature: what it
        gives, by name: (dtype, shape), or what has a dtype and a shape, as tf.TensorSpec; without it
        the names, dtypes and shapes that it gets."""
        return self._with("py_function", {"function": _function_name(function), **_signature(output_signature),
                                          **_arguments("py_function", (), named)})

    def csv(self, columns: Union[None, Dict[str, Any], Sequence[str]] = None,
            defaults: Optional[Dict[str, Any]] = None, **named: Any) -> Dataset:
        """The records of CSV files, each the component `record`; or, with columns, those of the header of each file:
        {"price": "float32", "site": "string"}, or names of columns of strings. defaults: by name, what stands for an
        empty field."""
        if columns is None:
            return self._with("csv", _arguments("csv", (), {"defaults": defaults, **named}))
        if isinstance(columns, str) or not (isinstance(columns, dict) or all(isinstance(name, str) for name in columns)):
            raise TypeError("csv: columns maps names to dtypes, as in {\"price\": \"float32\"}, or lists the names of "
                            f"columns of strings, not {columns!r}")
        dtypes = columns if isinstance(columns, dict) else {name: "string" for name in columns}
        return self._with("csv", _arguments("csv", (), {
            "header": True, "columns": {name: dtype_name(dtype) for name, dtype in dtypes.items()}, "defaults": defaults,
            **named}))

    def parquet(self, columns: Any, defaults: Optional[Dict[str, Any]] = None,
                shapes: Optional[Dict[str, Any]] = None, filters: Optional[Sequence[Any]] = None) -> Dataset:
        """The rows of Parquet files. columns: {"price": "float32", "user/id": np.int64}, the only ones that are read,
        each a component; or a schema of pyarrow, `pyarrow.parquet.read_schema(file)`, for all of its columns. defaults:
        by name, what stands for a null. shapes: of columns of lists, {"ids": [None], "embedding": [64]}. filters: the
        rows that are kept, as of pyarrow: [("price", ">", 3.5), ("site", "in", ["a", "b"])], or a list of such lists, of
        which one is fulfilled; ("site", "is null") too. A column in it need not be one of `columns`."""
        return self._with("parquet", _arguments("parquet", (), {
            **_columns("parquet", columns, shapes), "defaults": defaults, "filters": _filters(filters)}))

    def arrow(self, columns: Any, defaults: Optional[Dict[str, Any]] = None,
              shapes: Optional[Dict[str, Any]] = None, indices: Optional[Path] = None,
              filters: Optional[Sequence[Any]] = None) -> Dataset:
        """The rows of Arrow files, in the file format (Feather 2) or the stream format. columns: as of `parquet`; a schema
        of pyarrow is `pyarrow.ipc.open_file(file).schema`. defaults: by name, what stands for a null. shapes: of
        columns of lists, {"ids": [None], "embedding": [768]}. indices: an Arrow file with the numbers of the rows, in
        the order in which they come, as datasets writes it. filters: as of `parquet`."""
        order = None if indices is None else _whole_path(indices, False)
        return self._with("arrow", _arguments("arrow", (), {**_columns("arrow", columns, shapes), "defaults": defaults,
                                                            "indices": order, "filters": _filters(filters)}))

    # ---- steps with readers or other datasets ----

    def interleave(self, map_func: Callable[[Dataset], Dataset], cycle_length: Optional[int] = None,
                   block_length: Optional[int] = None, num_parallel_calls: Union[int, str, None] = None,
                   deterministic: Optional[bool] = None, **named: Any) -> Dataset:
        """map_func: `lambda file: file.text_line(skip_header_lines=1)`, a reader and `map`s behind it."""
        return self._interleave("interleave", map_func, {
            "cycle_length": cycle_length, "block_length": block_length, "num_parallel_calls": num_parallel_calls,
            "deterministic": deterministic, **named})

    def parallel_interleave(self, map_func: Callable[[Dataset], Dataset], cycle_length: int,
                            block_length: Optional[int] = None, sloppy: Optional[bool] = None,
                            buffer_output_elements: Optional[int] = None,
                            prefetch_input_elements: Optional[int] = None, **named: Any) -> Dataset:
        """As `interleave`, by tf.data's earlier name."""
        return self._interleave("parallel_interleave", map_func, {
            "cycle_length": cycle_length, "block_length": block_length, "sloppy": sloppy,
            "buffer_output_elements": buffer_output_elements, "prefetch_input_elements": prefetch_input_elements, **named})

    def flat_map(self, map_func: Callable[[Dataset], Dataset]) -> Dataset:
        """The elements of each file after those of the one before: the steps of map_func on the files."""
        steps = self._reader("flat_map", map_func)
        return Dataset(self._steps + steps)

    def _reader(self, step: str, map_func: Callable[[Dataset], Dataset]) -> Tuple[_Step, ...]:
        """Returns a reader and the maps behind it."""
        inside = map_func(Dataset())
        steps = inside._steps if isinstance(inside, Dataset) else ()
        if not steps or steps[0].special is not None or any(other.name != "map" for other in steps[1:]):
            raise InvalidArgumentError(f"{step}: its function returns a reader, and `map`s behind it, such as "
                                       "`lambda file: file.text_line().map(parse)`; other steps stand behind "
                                       f"{step}, not {inside!r}")
        return steps

    def _interleave(self, step: str, map_func: Callable[[Dataset], Dataset], named: Dict[str, Any]) -> Dataset:
        """A map of each file's elements is a map of all elements: the same elements in the same order. It works on
        as many at once as measuring finds, as the readers do."""
        reader, *maps = self._reader(step, map_func)
        arguments = _arguments(step, (), named)
        dataset = self._with(step, {"reader": {reader.name: reader.arguments}, **arguments})
        is_ordered = arguments.get("deterministic", not arguments.get("sloppy", False))
        parallelism = {"num_parallel_calls": AUTOTUNE, **({} if is_ordered else {"deterministic": False})}
        return Dataset(dataset._steps + tuple(
            one_map._replace(arguments={**parallelism, **one_map.arguments}) for one_map in maps))

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """What transformation_func makes of this dataset."""
        made = transformation_func(self)
        if not isinstance(made, Dataset):
            raise TypeError(f"apply takes a function from a Dataset to a Dataset; this one returned {made!r}")
        return made

    def zip(self, *others: Dataset) -> Dataset:
        return self._with("zip", {}, ("from", others))

    def concatenate(self, *others: Dataset) -> Dataset:
        return self._with("concatenate", {}, ("from", others))

    # ---- what becomes of it ----

    def get_next(self) -> Element:
        """Its element, to write a graph about: `staged` takes what is made of it."""
        return Element(self)

    def staged(self, **parameters: Any) -> Pipeline:
        """The pipeline that stages what this dataset yields; parameters as of `stager.staged`, but on_timeout is
        "wait": no batch is dropped."""
        return staged(self, **{"on_timeout": "wait", **parameters})

    def yaml(self) -> str:
        return self.staged().yaml()

    def _written(self) -> Tuple[str, Places]:
        return self.staged()._written()

    def __repr__(self) -> str:
        return f"<stager.Dataset {' -> '.join(step.name for step in self._steps)}>"


def _add_methods() -> None:
    """A method for each step that has no special one, so that `dir` and completion know it."""
    def method(step: str) -> Callable[..., Dataset]:
        def add(self: Dataset, *given: Any, **named: Any) -> Dataset:
            return self._with(step, _arguments(step, given, named))
        add.__name__, add.__qualname__ = step, f"Dataset.{step}"
        add.__doc__ = f"The step `{step}` of docs/dataset.md."
        return add
    for step in STEPS:
        if step not in vars(Dataset):
            setattr(Dataset, step, method(step))


_add_methods()


def _split_maps(dataset: Dataset) -> Tuple[Dataset, List[Callable[[Element], Any]]]:
    """The dataset without the maps behind it, which have no parameters, and their functions."""
    steps = list(dataset._steps)
    functions: List[Callable[[Element], Any]] = []
    while steps and steps[-1].name == "map" and not steps[-1].arguments:
        functions.insert(0, cast(Callable[[Element], Any], (steps.pop().special or ("", None))[1]))
    return Dataset(tuple(steps)), functions


def _called(function: Callable[[Any], Any], element: Any) -> Any:
    value = function(element)
    if value is None:
        raise InvalidArgumentError(f"{getattr(function, '__qualname__', function)} returned None: a function "
                                   "of a step must return its output tensors; is its `return` missing?")
    return value


class _Steps:
    """Writes datasets: lists of steps, and branches for those that other steps take."""

    def __init__(self) -> None:
        self.branches: Dict[str, List[Any]] = {}
        self.places: Dict[str, List[StepPlace]] = {}  # of branches
        self._names: List[Tuple[Dataset, str]] = []

    def write(self, dataset: Dataset, branch: str = "") -> List[Any]:
        writers = [Writer() for _ in dataset._steps]
        rows = [self._step(step, writer) for step, writer in zip(dataset._steps, writers)]
        self.places[branch] = [StepPlace(step.name, step.place, writer.places)
                               for step, writer in zip(dataset._steps, writers)]
        return rows

    def _step(self, step: _Step, writer: Writer) -> Any:
        name, arguments, special = step.name, dict(step.arguments), step.special
        if "choice_dataset" in arguments:
            arguments["choice_dataset"] = self._branch(arguments["choice_dataset"])
        if special is None:
            return {name: arguments} if arguments else name
        key, value = special
        if key == "from":
            return {name: {"from": [self._branch(other) for other in value], **arguments}}
        result = _called(value, Element())
        if key != "output":
            one(result, f"{name}: what its function returns")
        result = writer.structure(result)
        return {name: {**({"graph": writer.nodes} if writer.nodes else {}), key: result, **arguments}}

    def _branch(self, dataset: Dataset) -> str:
        for known, name in self._names:
            if known is dataset:
                return name
        name = f"branch_{len(self._names)}"
        self._names.append((dataset, name))
        self.branches[name] = self.write(dataset, name)
        return name


# What of `staged`'s parameters stands at the top of the pipeline file.
_AT_TOP = ("container", "smart_stage", "smart_stage_gpu", "gpu")


class Pipeline:
    """A pipeline to be applied: `stager.apply(pipeline)`, `pipeline.yaml()`. pipeline["ids"] is the
    staged feature of that path, for ops that run in the trainer (`targets`)."""

    def __init__(self, features: Any, parameters: Dict[str, Any], feed_dict: Dict[Any, Any],
                 name: Optional[str], targets: Tuple[Symbol, ...] = ()) -> None:
        self._features, self._parameters, self._feed_dict = features, parameters, feed_dict
        self._name, self._targets, self._place = name, targets, here()

    def __getitem__(self, path: str) -> Component:
        return Component(name=f"staged:{path}")

    def __iter__(self) -> Any:
        raise _no_loop("a Pipeline")

    def targets(self, *targets: Symbol) -> Pipeline:
        """With tensors that the trainer's `stream.run` computes."""
        for number, target in enumerate(targets):
            one(target, f"targets(): argument {number + 1}")
        return Pipeline(self._features, self._parameters, self._feed_dict, self._name, targets)

    def _with(self, **parameters: Any) -> Pipeline:
        """With other parameters of `staged`."""
        return Pipeline(self._features, {**self._parameters, **parameters}, self._feed_dict, self._name, self._targets)

    def _feeds(self, writer: Writer) -> Dict[str, Any]:
        feeds = {}
        for key, value in self._feed_dict.items():
            name = writer.reference(key) if isinstance(key, Symbol) else key
            if isinstance(value, Symbol):
                feeds[name] = {"tensor": writer.reference(value)}
            elif is_parts(value) or isinstance(value, (list, tuple)) and any(isinstance(v, Symbol) for v in value):
                one(value, f"feed_dict: {name}")
            elif isinstance(value, dict):
                feeds[name] = plain(value)
            else:
                feeds[name] = {"value": plain(value)}
        return feeds

    def _structure(self, writer: Writer) -> Tuple[Dataset, Any]:
        """The dataset, and the features; None: what the dataset yields."""
        if isinstance(self._features, Dataset):
            dataset, functions = _split_maps(self._features)
            value: Any = Element(dataset)
            for number, function in enumerate(functions):
                value = _called(function, value)
                if number + 1 < len(functions) and isinstance(value, Symbol):
                    value = _Single(value)
            writer.datasets.append(dataset)
            return dataset, writer.structure(value) if functions else None
        features = writer.structure(self._features)
        if len(writer.datasets) != 1:
            raise InvalidArgumentError(
                f"features must come from the elements of one dataset, not of {len(writer.datasets)}: call "
                "dataset.get_next() once, or zip the datasets")
        return writer.datasets[0], features

    def document(self) -> Dict[str, Any]:
        """The pipeline file, as it would be loaded."""
        return self._document(Writer(), _Steps())

    def _document(self, writer: Writer, steps: _Steps) -> Dict[str, Any]:
        dataset, features = self._structure(writer)
        feeds = self._feeds(writer)
        targets = [writer.reference(target) for target in self._targets]
        below = {key: value for key, value in self._parameters.items() if key not in _AT_TOP}
        staged_part = {**({} if features is None else {"features": features}), **below,
                       **({"feed_dict": feeds} if feeds else {})}
        document: Dict[str, Any] = {} if self._name is None else {"name": self._name}
        document.update((key, self._parameters[key]) for key in _AT_TOP if key in self._parameters)
        rows = steps.write(dataset)
        if steps.branches:
            document["datasets"] = steps.branches
        document["dataset"] = rows
        if writer.nodes:
            document["graph"] = writer.nodes
        if staged_part:
            document["staged"] = staged_part
        if targets:
            document["targets"] = targets
        return document

    def yaml(self) -> str:
        """The text of the pipeline file."""
        return self._written()[0]

    def _written(self) -> Tuple[str, Places]:
        """The text, and where in Python its lines come from."""
        writer, steps, places = Writer(), _Steps(), Places(self._place)
        lines: List[str] = []

        def add(text: str, place: str = self._place) -> None:
            lines.append(text)
            places.lines[len(lines)] = place

        def add_steps(rows: List[Any], branch: str, indent: str) -> None:
            for row, step in zip(rows, steps.places[branch]):
                add(f"{indent}- {_json(row)}", step.place)
                places.steps[len(lines)] = step

        for key, value in self._document(writer, steps).items():
            if key == "datasets":
                add("datasets:")
                for name, branch in value.items():
                    add(f"  {name}:")
                    add_steps(branch, name, "    ")
            elif key == "dataset":
                add("dataset:")
                add_steps(value, "", "  ")
            elif key == "graph":
                add("graph:")
                for node in value:
                    add(f"  - {_json(node)}", writer.places[node["name"]])
            else:
                add(f"{key}: {_json(value)}")
        places.nodes, places.features = writer.places, writer.feature_places
        return "\n".join(lines) + "\n", places

    def __repr__(self) -> str:
        return f"<stager.Pipeline {self._name or 'without a name'}>"


def _json(value: Any) -> str:
    """JSON, in which numbers that JSON cannot write are YAML's."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key), ensure_ascii=False)}: {_json(part)}"
                               for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value, ensure_ascii=False)


class _Single:
    """What a map left that gives one tensor: the next one finds it under any name."""

    def __init__(self, symbol: Symbol) -> None:
        self._symbol = symbol

    def __getitem__(self, name: str) -> Symbol:
        return self._symbol


def _codes(types: Sequence[Any]) -> List[Union[str, int]]:
    return [kind.status if isinstance(kind, type) and issubclass(kind, Error) else kind
            for kind in types]


def staged(features: Any, feed_dict: Optional[Dict[Any, Any]] = None, capacity: int = 1,
           num_threads: int = 1, num_clients: Union[int, str] = 1, timeout_millis: int = 300000,
           closed_exception_types: Optional[Sequence[Any]] = None,
           ignored_exception_types: Optional[Sequence[Any]] = None,
           use_stage_subgraph_thread_pool: bool = False, stage_subgraph_thread_pool_id: int = 0,
           stage_subgraph_stream_id: int = 0, name: Optional[str] = None, on_timeout: str = "drop",
           **parameters: Any) -> Pipeline:
    """As tf.staged: what is staged, and how. features: a dataset, or a tensor, list or dict of tensors
    made of `dataset.get_next()`; exception types: names of status codes or exceptions of this package.
    parameters: the others of `staged` in the pipeline file (delivery, redeliver …), and `container`, `smart_stage`,
    `smart_stage_gpu` and `gpu`, which may be the name of the device alone. As tf.staged,
    this function drops a batch that no client takes within timeout_millis; on_timeout="wait" drops none, and is
    the default of `Dataset.staged` and of pipeline files."""
    given = {"capacity": capacity, "num_threads": num_threads, "num_clients": num_clients,
             "timeout_millis": timeout_millis, "on_timeout": on_timeout,
             "use_stage_subgraph_thread_pool": use_stage_subgraph_thread_pool,
             "stage_subgraph_thread_pool_id": stage_subgraph_thread_pool_id,
             "stage_subgraph_stream_id": stage_subgraph_stream_id}
    defaults = {"capacity": 1, "num_threads": 1, "num_clients": 1, "timeout_millis": 300000,
                "on_timeout": "wait"}
    settings: Dict[str, Any] = {
        key: value for key, value in given.items() if value != defaults.get(key, False)}
    for key, types in (("closed_exception_types", closed_exception_types),
                       ("ignored_exception_types", ignored_exception_types)):
        if types is not None:
            settings[key] = _codes(types)
    gpu = parameters.pop("gpu", None)
    if gpu is not None:
        parameters["gpu"] = gpu if isinstance(gpu, dict) else {"device": str(gpu)}
    return Pipeline(features, {**settings, **plain(parameters)}, dict(feed_dict or {}), name)


# ---- sources ----

Path = Union[str, "os.PathLike[str]"]


def _whole_path(path: Path, is_pattern: bool) -> str:
    """stagerd does not run in this process's folder; urls stay."""
    text = os.fspath(path)
    if "://" in text or not text:
        return text
    folder = re.sub(r"([*?\[\\{])", r"\\\1", os.getcwd()) if is_pattern else os.getcwd()
    return os.path.join(folder, os.path.expanduser(text))


def _whole_paths(paths: Union[Path, Iterable[Path]], is_pattern: bool) -> Union[str, List[str]]:
    if isinstance(paths, (str, os.PathLike)):
        return _whole_path(paths, is_pattern)
    return [_whole_path(path, is_pattern) for path in paths]


def files(pattern: Union[None, Path, Iterable[Path]] = None, **named: Any) -> Dataset:
    """The paths that match, of which a reader follows: `.text_line()`, `.tfrecord()`, `.interleave(…)`. A
    relative one, and one in `listing`, is in this process's folder."""
    given = {"pattern": pattern, "listing": named.pop("listing", None)}
    paths = {key: _whole_paths(value, key == "pattern") for key, value in given.items() if value is not None}
    return _source("files", {**paths, **_arguments("files", (), named)})


def parquet(pattern: Union[Path, Iterable[Path]], columns: Any = None,
            defaults: Optional[Dict[str, Any]] = None, shapes: Optional[Dict[str, Any]] = None,
            runtime_dir: Optional[str] = None, filters: Optional[Sequence[Any]] = None, **named: Any) -> Dataset:
    """The rows of the Parquet files that match: `files(pattern, …).parquet(columns, defaults, shapes, filters)`. columns
    may be names alone, ["label", "price"], or None for all that can be read: their dtypes, and the shapes of lists, are
    those of the first file, for which a running stagerd is asked."""
    columns, shapes = _described("parquet", pattern, columns, shapes, runtime_dir)
    return files(pattern, **named).parquet(columns, defaults, shapes, filters)


def _saved_files(folder: Union[Path, Iterable[Path]]) -> Tuple[Union[Path, Iterable[Path]], Optional[str]]:
    """The files of a folder that `datasets.Dataset.save_to_disk` wrote, in order, and that of its indices; or what was
    given. Older releases wrote indices."""
    if not isinstance(folder, (str, os.PathLike)) or not os.path.isdir(folder):
        return folder, None
    file_name = os.path.join(folder, "state.json")
    if not os.path.isfile(file_name):
        raise InvalidArgumentError(f"arrow: {os.fspath(folder)} has no state.json: name its files, or the folder of one split")
    with open(file_name, encoding="utf-8") as file:
        state = json.load(file)
    indices = [os.path.join(folder, part["filename"])
               for part in state.get("_indices_files") or state.get("_indices_data_files") or ()]
    if len(indices) > 1:
        raise InvalidArgumentError(f"arrow: the state.json of {os.fspath(folder)} has {len(indices)} files of indices: one is "
                                   "read; call flatten_indices of datasets, and save it again")
    return [os.path.join(folder, part["filename"]) for part in state["_data_files"]], indices[0] if indices else None


def arrow(pattern: Union[Path, Iterable[Path]], columns: Any = None, defaults: Optional[Dict[str, Any]] = None,
          shapes: Optional[Dict[str, Any]] = None, runtime_dir: Optional[str] = None, indices: Optional[Path] = None,
          filters: Optional[Sequence[Any]] = None, **named: Any) -> Dataset:
    """The rows of the Arrow files that match: `files(pattern, …).arrow(columns, defaults, shapes, indices, filters)`. pattern may be
    a folder that `save_to_disk` of Hugging Face datasets wrote, with its indices. With indices the files keep their order.
    columns: as of `parquet`."""
    pattern, saved = _saved_files(pattern)
    order = saved if indices is None else indices
    if order is not None:
        named.setdefault("shuffle", False)
    columns, shapes = _described("arrow", pattern, columns, shapes, runtime_dir)
    return files(pattern, **named).arrow(columns, defaults, shapes, order, filters)


def range(*bounds: int) -> Dataset:  # pylint: disable=redefined-builtin
    """range(stop), range(start, stop), range(start, stop, step): int64, as the component `value`."""
    names = ("stop",) if len(bounds) == 1 else ("start", "stop", "step")
    if not 1 <= len(bounds) <= 3:
        raise TypeError(f"range() takes 1 to 3 numbers, but {len(bounds)} were given")
    return _source("range", dict(zip(names, bounds)))


def zip_datasets(*datasets: Union[Dataset, Sequence[Dataset]]) -> Dataset:
    """Element i is element i of every dataset, side by side. They may come in one tuple, as in tf.data."""
    if len(datasets) == 1 and isinstance(datasets[0], (list, tuple)):
        datasets = tuple(datasets[0])
    return _source("zip", {}, ("from", datasets))


def sample_from_datasets(datasets: Sequence[Dataset], weights: Optional[Sequence[float]] = None,
                         seed: Optional[int] = None, stop_on_empty_dataset: Optional[bool] = None,
                         rerandomize_each_iteration: Optional[bool] = None, **named: Any) -> Dataset:
    """Each element is the next of a dataset that is drawn for it."""
    arguments = _arguments("sample_from_datasets", (), {
        "weights": weights, "seed": seed, "stop_on_empty_dataset": stop_on_empty_dataset,
        "rerandomize_each_iteration": rerandomize_each_iteration, **named})
    return _source("sample_from_datasets", arguments, ("from", tuple(datasets)))


def choose_from_datasets(datasets: Sequence[Dataset], choice_dataset: Dataset,
                         stop_on_empty_dataset: Optional[bool] = None, **named: Any) -> Dataset:
    """Each element is the next of the dataset whose number choice_dataset says."""
    arguments = {"choice_dataset": choice_dataset, **_arguments("choose_from_datasets", (), {
        "stop_on_empty_dataset": stop_on_empty_dataset, **named})}
    return _source("choose_from_datasets", arguments, ("from", tuple(datasets)))
