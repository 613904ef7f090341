#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the pipelines of stagerd and follows what happens to them, by stock packages alone.

    pip install pynng protobuf grpcio-tools
    python -m grpc_tools.protoc -I DIR --python_out=. control.proto pipeline.proto
    STAGER_TOKEN=$(stagerctl token) gate_watch.py [/run/stager/gate [N_EVENTS]]
"""
import os
import sys

import control_pb2 as stager
import pynng

GATE = "ipc://" + (sys.argv[1] if len(sys.argv) > 1 else "/run/stager/gate")
TOKEN = bytes.fromhex(os.environ["STAGER_TOKEN"])


def ask(endpoint, request):
    request.token = TOKEN
    endpoint.send(request.SerializeToString())
    reply = stager.Reply.FromString(endpoint.recv())
    if reply.code != 0:
        sys.exit(f"code {reply.code}: {reply.text.decode()}")
    return reply


def pipelines(endpoint):
    return {entry.pipeline: entry for entry in ask(endpoint, stager.Request(list={})).list.entry}


limit = int(sys.argv[2]) if len(sys.argv) > 2 else None
with pynng.Sub0(dial=GATE + "/events.sock", topics=b"") as events, \
        pynng.Req0(dial=GATE + "/admin.sock", recv_timeout=10000) as endpoint:
    known, seen, n = pipelines(endpoint), None, 0
    for entry in known.values():
        print(f"{entry.name}: {entry.state}, {entry.n_clients} clients", flush=True)
    while limit is None or n < limit:
        event = stager.Event.FromString(events.recv())
        if seen is not None and event.sequence <= seen[1] and event.instance == seen[0]:
            continue  # a repeat: nothing has happened
        if seen is None:
            print("following", flush=True)
        elif event.sequence != seen[1] + 1:
            print("events were lost", flush=True)
        if seen is not None and event.pipeline:
            known.update(pipelines(endpoint))  # keeps the names of what is deleted
            entry = known.get(event.pipeline)
            print(entry.name if entry else "?", stager.EventKind.Name(event.kind), flush=True)
            n += 1
        seen = (event.instance, event.sequence)
