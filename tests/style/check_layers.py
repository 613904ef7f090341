#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The includes that each folder may have (CONTRIBUTING.md, "Layers"). No cycle among folders or headers."""
import os
import re

import house

# The longest prefix of a path decides. None: everything.
MAY_INCLUDE = {
    "core/": ["core/"],
    "proto/": ["core/", "proto/"],
    "ops/": ["core/", "ops/"],
    "cuda/": ["core/", "cuda/"],
    "daemon/": ["core/", "proto/load.h", "proto/wire.h", "ops/", "daemon/"],
    # stager-gate and stager-gpu are not trusted: they include nothing of the daemon.
    "daemon/gate/main.c": ["core/", "daemon/gate/confine.h", "daemon/gate/frame.h"],
    "daemon/gate/confine": ["core/", "daemon/gate/confine.h"],
    "daemon/gate/frame.h": ["core/"],
    "daemon/gpu/main.c": ["core/", "daemon/gpu/frame.h"],
    "daemon/gpu/frame.h": ["core/"],
    "daemon/worker/main.c": ["core/", "daemon/worker/frame.h", "daemon/worker/http.h", "proto/load.h"],
    "daemon/worker/http": ["core/", "daemon/worker/frame.h", "daemon/worker/http.h", "daemon/worker/path.h"],
    "daemon/worker/path": ["daemon/worker/frame.h", "daemon/worker/path.h"],
    "daemon/worker/frame.h": ["core/division/deal.h"],
    "client/": ["core/", "proto/wire.h", "client/"],  # the daemon is the only parser
    "client/compute/": ["core/", "ops/", "client/"],
    "client/metrics/main.c": ["core/", "proto/load.h", "client/"],  # for stagerd.yaml
    "examples/": ["client/stager.h", "examples/"],
    "tests/": None,
}
# Libraries and generated code, and the only places that may include them (tests always may).
ONLY_IN = [
    (r"uv(/.*)?\.h$", ["daemon/"]),
    (r".*\.pb-c\.h$", ["proto/"]),
    (r"protobuf-c/.*", ["proto/"]),
    (r"yaml\.h$", ["proto/"]),
    (r"systemd/.*", ["daemon/"]),
    (r"curl/.*", ["daemon/storage/", "daemon/remote_stage/", "daemon/cluster/etcd.c"]),
    (r"flatbuffers/.*", ["daemon/format/arrow/metadata.cc"]),
    (r"expat\.h$", ["daemon/storage/http/xml.c"]),
    (r"gnutls/.*", ["core/library/tls_loaded.c"]),
    (r"microhttpd\.h$", ["client/metrics/http.c", "daemon/worker/http.c"]),
    (r"nanomsg/.*", ["daemon/gate/main.c", "daemon/gate/confine.c", "client/stagerctl/endpoint.c"]),
    (r"j(peglib|error)\.h$", ["ops/kernels/image/jpeg.c"]),
    (r"spng\.h$", ["ops/kernels/image/png.c"]),
    (r"isa-l/.*", ["daemon/storage/", "ops/kernels/text/decode_compressed.c"]),
    (r"cuda.*\.h$", ["cuda/"]),
    (r"Python\.h$", ["client/python/"]),
]
# Made by the build, like *.pb-c.h.
GENERATED = ("client/metrics/page.h",)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(root, name):
    for number, line in enumerate(house.read(root, name).split("\n"), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def rule(name):
    prefixes = [prefix for prefix in MAY_INCLUDE if name.startswith(prefix)]
    return max(prefixes, key=len) if prefixes else ""


def one_file(root, name):
    found = []
    layer = rule(name)
    if layer == "":
        return [f"{name}:1: lies in no known layer"]
    allowed = MAY_INCLUDE[layer]
    for number, mark, header in includes(root, name):
        ours = os.path.isfile(os.path.join(root, header))
        if ours and allowed is not None and not header.startswith(tuple(allowed)):
            found.append(f"{name}:{number}: {layer} may not include {header}")
        if mark == '"' and not ours and not header.endswith((".pb-c.h",) + GENERATED):
            found.append(f'{name}:{number}: "{header}" is no path from the top of the tree')
        for pattern, places in ONLY_IN:
            if re.match(pattern, header) and not ours and not name.startswith(
                    tuple(places) + ("tests/",)):
                found.append(f"{name}:{number}: only {', '.join(places)} may include {header}")
    return found


def circle(graph):
    """Some cycle of a graph {node: set of nodes} as a list, or None."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        path.append(node)
        for other in sorted(graph.get(node, ())):
            ring = visit(other)
            if ring:
                return ring
        path.pop()
        done.add(node)
        return None

    for start in sorted(graph):
        ring = visit(start)
        if ring:
            return ring
    return None


def circles(root, names):
    headers, folders = {}, {}
    for name in names:
        if name.startswith("tests/"):
            continue
        for _, _, header in includes(root, name):
            if not os.path.isfile(os.path.join(root, header)):
                continue
            if name.endswith(".h"):
                headers.setdefault(name, set()).add(header)
            here, there = os.path.dirname(name), os.path.dirname(header)
            if here != there:
                folders.setdefault(here, set()).add(there)
    found = []
    for what, graph in (("headers", headers), ("folders", folders)):
        ring = circle(graph)
        if ring:
            found.append(f"{ring[0]}:1: a circle of {what}: {' -> '.join(ring)}")
    return found


def problems(root):
    names = house.tracked(root, ".c", ".h", ".cu", ".cuh")
    found = []
    for name in names:
        found += one_file(root, name)
    return found + circles(root, names)


if __name__ == "__main__":
    house.main(problems, "move what both sides need down (core/ for structs and bytes, proto/ for "
               "messages), or pass it in as an argument; the layers are in CONTRIBUTING.md")
