#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for `srun` and `scontrol` of Slurm, by the name of the link: tasks are processes of this machine, of nodes by name.

Environment: SLURM_JOB_NODELIST, or with --het-group=G SLURM_JOB_NODELIST_HET_GROUP_G, has the names, with commas, and
SLURM_NTASKS_PER_NODE, or with _HET_GROUP_G, the tasks of a node. As srun does: the input goes to all tasks, a task that fails ends
the step unless --kill-on-bad-exit=0, and a signal ends it by SIGKILL. An option that is not here is an error.
"""
import os
import re
import signal
import subprocess
import sys
import threading

FLAGS = {"--overlap": None}
VALUES = {"--ntasks": r"\d+", "--ntasks-per-node": r"\d+", "--cpus-per-task": r"\d+", "--het-group": r"\d+", "--kill-on-bad-exit": r"0"}


def options(arguments):
    """The options, and the command behind them."""
    found = {}
    while arguments and arguments[0].startswith("-"):
        name, _, value = arguments[0].partition("=")
        if not (arguments[0] in FLAGS or (name in VALUES and re.fullmatch(VALUES[name], value))):
            sys.exit(f"srun: unrecognized option {arguments[0]}")
        found[name] = value
        arguments = arguments[1:]
    if not arguments:
        sys.exit("srun: no command")
    return found, arguments


def feed(tasks):
    for line in sys.stdin.buffer:
        for task in tasks:
            task.stdin.write(line)
    for task in tasks:
        task.stdin.close()


def srun(arguments):
    """Returns the exit status."""
    found, command = options(arguments)
    group = f"_HET_GROUP_{found['--het-group']}" if "--het-group" in found else ""
    nodes = os.environ["SLURM_JOB_NODELIST" + group].split(",")
    each = int(found.get("--ntasks-per-node", os.environ["SLURM_NTASKS_PER_NODE" + group]))
    if int(found.get("--ntasks", each * len(nodes))) != each * len(nodes):
        sys.exit("srun: --ntasks is not that of all nodes")
    tasks = []
    signal.signal(signal.SIGTERM, lambda *_: os._exit([task.kill() for task in tasks] and 143))
    for rank in range(each * len(nodes)):
        env = {**os.environ, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % each), "SLURMD_NODENAME": nodes[rank // each],
               "SLURM_STEP_NUM_TASKS": str(each * len(nodes)), "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{len(nodes)})"}
        tasks.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE))
    threading.Thread(target=feed, args=(tasks,), daemon=True).start()
    waiting, status = {task.pid: task for task in tasks}, 0
    while waiting:
        pid, code = os.wait()
        task = waiting.pop(pid, None)
        if task is None:
            continue
        task.returncode = os.waitstatus_to_exitcode(code)
        status = max(status, abs(task.returncode))
        if task.returncode != 0 and "--kill-on-bad-exit" not in found:
            for other in waiting.values():
                other.kill()
    return status


def scontrol(arguments):
    if arguments[:2] != ["show", "hostnames"] or len(arguments) != 3:
        sys.exit(f"scontrol: {arguments}")
    print("\n".join(arguments[2].split(",")))
    return 0


if __name__ == "__main__":
    status = {"srun": srun, "scontrol": scontrol}[os.path.basename(sys.argv[0])](sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)    # a thread may read the input
