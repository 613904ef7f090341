# SPDX-License-Identifier: Apache-2.0
"""Batches from stagerd, in shared memory, without a copy.

    import stager
    for batch in stager.open("criteo"):
        train(batch["ids"], batch["label"])
"""
import importlib
from typing import TYPE_CHECKING, Any

from ._admin import Applied, apply, audit, check, commits, delete, explain, list, rollback, schema, status, versions
from ._ahead import Hook
from ._batch import Batch, BatchInfo, Ragged, Sparse, Strings
from ._core import Tensor, version as __version__
from ._errors import (AbortedError, AlreadyExistsError, CancelledError, DataLossError,
                      DeadlineExceededError, Error, FailedPreconditionError, InternalError,
                      InvalidArgumentError, MaxInFlightError, NotFoundError, OutOfRangeError,
                      PermissionDeniedError, ResourceExhaustedError, UnauthenticatedError,
                      UnavailableError, UnimplementedError, UnknownError)
from ._gpu import Gpu, Gpus, gpu_available
from ._graph import Node, Symbol, control_dependencies
from ._outputs import ops
from ._pipeline import (AUTOTUNE, Dataset, Element, Pipeline, arrow, choose_from_datasets, files, parquet, range,
                        sample_from_datasets, staged)
from ._pipeline import zip_datasets as zip
from ._serve import Server, serve
from ._stream import Stream, merge_states
from ._trace import merge_traces
from ._work import Context

#: Opens a pipeline as one more trainer: a Stream.
open = Stream

if not TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        """stager.torch, stager.jax, stager.tensorflow and stager.ray import what they are for when they are used."""
        if name in ("torch", "jax", "tensorflow", "ray"):
            return importlib.import_module(f"{__name__}.{name}")
        hint = importlib.import_module(f"{__name__}._pipeline").ELSEWHERE.get(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}" + (f": {hint}" if hint else ""))

__all__ = [
    "AUTOTUNE", "AbortedError", "AlreadyExistsError", "Applied", "Batch", "BatchInfo", "CancelledError",
    "Context", "DataLossError", "Dataset", "DeadlineExceededError", "Element", "Error", "FailedPreconditionError", "Gpu", "Gpus", "Hook", "InternalError",
    "InvalidArgumentError", "MaxInFlightError", "Node", "NotFoundError", "OutOfRangeError",
    "PermissionDeniedError", "Pipeline", "Ragged", "ResourceExhaustedError", "Server", "Sparse", "Stream",
    "Strings", "Symbol", "Tensor", "UnauthenticatedError", "UnavailableError", "UnimplementedError",
    "UnknownError", "__version__", "apply", "arrow", "audit", "check", "choose_from_datasets", "commits", "control_dependencies", "delete", "explain", "files", "gpu_available", "list",
    "merge_states", "merge_traces", "open", "ops", "parquet", "range", "rollback", "sample_from_datasets", "schema", "serve", "staged", "status", "versions", "zip"]
