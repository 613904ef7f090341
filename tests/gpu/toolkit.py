# SPDX-License-Identifier: Apache-2.0
"""Builds stager for tests/gpu/run: with packages in a folder (tests/gpu/carry), or with installed ones."""
import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig

import row

TARGETS = ["daemon/stagerd", "daemon/gpu/stager-gpu", "client/stagerctl/stagerctl", "cuda/libstager-cuda.so",
           "tests/core/test_core_device", "tests/kernels/test_kernels", "tests/kernels/test_launch",
           "tests/kernels/test_launch_models", "tests/kernels/test_launch_ops", "tests/kernels/test_blas", "tests/gpu/bench_gpu_scores",
           "tests/client/test_client_device", "tests/standin/libstager-cuda.so", "tests/gpu/test_gpu",
           "tests/gpu/bench_gpu", "tests/gpu/bench_gpu_copy", "tests/gpu/bench_gpu_shared"]
MORE_TARGETS = r"client/(python/stager/[^/]+|libstager-compute\.so[.0-9]*)"
# The folders of a driver's libraries and programs when it is mounted into a container.
DRIVER_FOLDERS = ["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"]
DRIVER_PROGRAMS = "/usr/local/nvidia/bin"
LIB = "usr/lib/x86_64-linux-gnu"


class Failed(Exception):
    pass


def carried(folder, env):
    """Adds the search paths of packages in a folder to env; returns meson's options for them."""
    root = os.path.join(folder, "root")
    if not os.path.isdir(root):
        return []
    headers = [f"{root}/usr/include", f"{root}/usr/include/x86_64-linux-gnu"]
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        # The extension uses only the stable interface: headers of another Python work.
        headers += glob.glob(f"{root}/usr/include/python3*")
    env.update(PATH=os.path.join(folder, "bin") + os.pathsep + env["PATH"],
               PKG_CONFIG_LIBDIR=f"{root}/{LIB}/pkgconfig:{root}/usr/share/pkgconfig",
               C_INCLUDE_PATH=":".join(headers), LIBRARY_PATH=f"{root}/{LIB}")
    link = f"-Wl,--disable-new-dtags,-rpath,{root}/{LIB},-rpath-link,{root}/{LIB}"
    return [f"-Dc_link_args={link}"]


def cudaroot():
    """The folder of the CUDA toolkit: CUDA_HOME, the usual one, or that of the nvcc on PATH."""
    nvcc = shutil.which("nvcc")
    beside = os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if nvcc else ""
    for folder in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", beside):
        if folder and os.path.exists(os.path.join(folder, "bin/nvcc")):
            return folder
    raise Failed("there is no CUDA toolkit: no nvcc on PATH, none in /usr/local/cuda, and CUDA_HOME names none")


def program(name, module):
    """A build tool: on PATH, or a module of this Python."""
    return [name] if shutil.which(name) else [sys.executable, "-m", module]


def with_libraries(env, *folders):
    """Libraries are found in these folders first, then in the previous ones: a driver mounted into a container may lie
    where env points, or in no known folder."""
    mounted = [folder for folder in DRIVER_FOLDERS if os.path.isdir(folder)]
    before = [folder for folder in env.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    return dict(env, LD_LIBRARY_PATH=os.pathsep.join(dict.fromkeys([*folders, *before, *mounted])))


def environment(folder):
    """(env, options of meson). This Python is found first."""
    env = with_libraries(dict(os.environ))
    env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), env.get("PATH", os.defpath), DRIVER_PROGRAMS])
    return env, carried(folder, env)


def wanted_targets(ninja, folder, env):
    text = subprocess.run([*ninja, "-C", folder, "-t", "targets", "all"], env=env, capture_output=True,
                          text=True, check=False).stdout
    known = sorted({line.split(":")[0] for line in text.split("\n")})
    return TARGETS + [name for name in known if re.fullmatch(MORE_TARGETS, name)]


def build(folder, packages, root, log, seconds, jobs=None):
    """Builds stager in folder; returns the environment of the build. Failed names the step that failed."""
    env, options = environment(packages)
    clock = row.Clock(seconds)

    def step(*command):
        code, text = row.execute(list(command), env, root, log, clock.left())
        if code != 0:
            raise Failed("\n".join(text.split("\n")[-40:]) + f"\n{command[0]} {row.why(code, seconds)}; all of it is in {log}")
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        step(*program("meson", "mesonbuild.mesonmain"), "setup", folder, "-Dcuda=enabled", f"-Dcudaroot={cudaroot()}",
             "-Dsystemd=disabled", "-Dwerror=false", *options)
    ninja = program("ninja", "ninja")
    step(*ninja, "-C", folder, *(["-j", str(jobs)] if jobs else []), *wanted_targets(ninja, folder, env))
    return env
