# SPDX-License-Identifier: Apache-2.0
"""stager worker NAME: runs the function of a pipeline's step py_function, in processes of this user."""
from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import List, Optional

from . import _work
from ._errors import Error
from ._workers import Supervisor


def _arguments(given: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="stager", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    worker = commands.add_parser("worker", help="runs a pipeline's py_function until it is stopped")
    worker.add_argument("name", metavar="NAME", help="the pipeline")
    worker.add_argument("-n", "--number", type=int, help="processes; without it as many as the pipeline "
                        "has threads, those of others counted")
    worker.add_argument("--runtime-dir", help="of stagerd; else STAGER_RUNTIME_DIR")
    worker.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    worker.add_argument("--control", type=int, help=argparse.SUPPRESS)
    worker.add_argument("--most", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def _stop(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def main(given: Optional[List[str]] = None) -> int:
    arguments = _arguments(given)
    if arguments.runtime_dir is not None:
        os.environ["STAGER_RUNTIME_DIR"] = arguments.runtime_dir
    if os.getcwd() not in sys.path:  # as `python -m stager` has it
        sys.path.insert(0, os.getcwd())
    if arguments.control is not None:
        return _work.main(arguments.name, arguments.control, arguments.most)
    signal.signal(signal.SIGTERM, _stop)
    try:
        Supervisor(arguments.name, arguments.number, arguments.parent).run()
    except Error as error:
        if arguments.parent is not None:
            print(f"{error.code} {error.text}".replace("\n", " "), flush=True)
        else:
            print(f"stager: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def program() -> None:
    """The commands stagerd, stagerctl and stager-metrics of a wheel: the programs beside this file."""
    name = os.path.basename(sys.argv[0])
    os.execv(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), [name, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
