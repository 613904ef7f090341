# SPDX-License-Identifier: Apache-2.0
"""stager: a dedicated stagerd, and a trainer with the Python package."""
import json
import os
import sys

import cases

NAME = "stager"
NEEDS = ["numpy"]
VARIANTS = {
    "ready": {"": {}},
    "transport": {"": {}},
    "csv": {"": {}},
    "tfrecord": {"": {}},
    "jpeg": {"": {}},
    "share": {"broadcast": {}},
    "first": {"": {}},
    "border": {"passes": {}, "repeat": {"endless": True}},
}
MAX_IN_FLIGHT = 3


def package(data):
    folder = os.path.join(data["build"], "client/python")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import stager
    return stager


def transport_steps(case, data):
    n = case.options["bytes"] // 4
    return {"dataset": [{"range": {"stop": 1 << 60}}],
            "graph": [{"name": "x", "op": "constant", "value": cases.VALUE, "shape": [1, n]}],
            "staged": {"features": {"x": "x"}, "capacity": 4}}


def columns(features, nodes, data, rows):
    for title in cases.STRINGS:
        nodes.append({"name": f"ids_{title}", "op": "string_to_hash_bucket_fast", "input": [features[title]],
                      "num_buckets": cases.N_BUCKETS})
        features[title] = f"ids_{title}"
    return {"features": features, "capacity": 4, "num_threads": data["cores"], "max_batch_bytes": rows * 1024}


def csv_steps(case, data):
    defaults = [0] + [0.0] * len(cases.NUMBERS) + [""] * len(cases.STRINGS)
    nodes = [{"name": "columns", "op": "decode_csv", "input": ["record"], "record_defaults": defaults}]
    features = {title: f"columns:{i}" for i, title in enumerate(cases.TITLES)}
    rows = case.options["rows"]
    return {"dataset": [{"files": {"pattern": data[case.kind]}}, {"text_line": {}}, {"batch": {"batch_size": rows}}],
            "graph": nodes, "staged": columns(features, nodes, data, rows)}


def tfrecord_steps(case, data):
    spec = {title: {"dtype": "string", "default_value": ""} if title in cases.STRINGS else
                   {"dtype": "int64", "default_value": 0} for title in cases.TITLES}
    nodes = [{"name": "parsed", "op": "parse_example", "input": ["record"], "features": spec}]
    features = {title: f"parsed:{title}" for title in cases.TITLES}
    rows = case.options["rows"]
    return {"dataset": [{"files": {"pattern": data["tfrecord"]}}, {"tfrecord": {}}, {"batch": {"batch_size": rows}}],
            "graph": nodes, "staged": columns(features, nodes, data, rows)}


def jpeg_steps(case, data):
    size = [cases.SIDE, cases.SIDE]
    graph = [{"name": "crop", "op": "random_resized_crop", "input": ["bytes"], "size": size},
             {"name": "flip", "op": "random_flip", "input": ["crop"]},
             {"name": "image", "op": "normalize_image", "input": ["flip"], "mean": cases.MEAN, "std": cases.STD}]
    return {"dataset": [{"files": {"pattern": data["images"]}}, {"read_file": {}},
                        {"map": {"graph": graph, "output": {"image": "image"}, "num_parallel_calls": "auto"}},
                        {"batch": {"batch_size": case.options["rows"], "drop_remainder": True}}],
            "staged": {"capacity": 2, "memory_budget": 1 << 30}}


def first_steps(case, data):
    return {"dataset": [{"files": {"pattern": [data["tree"] + "/*/*"], "shuffle": True}}, {"read_file": {}},
                        {"batch": {"batch_size": case.options["rows"], "drop_remainder": True}}],
            "staged": {"capacity": 2, "max_batch_bytes": 1 << 20, "memory_budget": 1 << 30}}


STEPS = {"ready": transport_steps, "transport": transport_steps, "csv": csv_steps, "tfrecord": tfrecord_steps,
         "jpeg": jpeg_steps, "share": jpeg_steps, "first": first_steps, "border": csv_steps}


def pipeline(case, data, is_endless, **staged):
    made = STEPS[case.kind](case, data)
    if is_endless and case.kind not in ("transport", "ready"):
        made["dataset"].insert(2, {"repeat": {}})
    made["staged"].update(staged)
    return {"name": "endless" if is_endless else "once", **made}


def apply(server, definition):
    return server.apply(json.dumps(definition))


class Source:
    def __init__(self, case, data):
        self.case, self.data = case, data
        self.server = package(data).serve(stagerd=os.path.join(data["build"], "daemon/stagerd"), memory_budget="6GiB")
        self.streams = {}

    def stream(self, is_endless):
        if is_endless not in self.streams:
            name = apply(self.server, pipeline(self.case, self.data, is_endless))
            self.streams[is_endless] = self.server.open(name, max_in_flight=MAX_IN_FLIGHT)
        return self.streams[is_endless]

    def batches(self, epochs=None):
        return iter(self.stream(epochs is None))

    def close(self):
        for stream in self.streams.values():
            stream.close()
        self.server.close()


def prepare(case, data):
    return Source(case, data)


# ---- k trainers -----------------------------------------------------------------------------

class Shared:
    def __init__(self, case, data, k):
        self.server = package(data).serve(stagerd=os.path.join(data["build"], "daemon/stagerd"), memory_budget="6GiB")
        name = apply(self.server, pipeline(case, data, True, num_clients=k, delivery="broadcast"))
        self.address = {"runtime_dir": self.server.runtime_dir, "name": name}

    def close(self):
        self.server.close()


class Trainer:
    def __init__(self, address, data):
        self.stream = package(data).open(address["name"], runtime_dir=address["runtime_dir"], max_in_flight=MAX_IN_FLIGHT)

    def batches(self, epochs=None):
        return iter(self.stream)

    def close(self):
        self.stream.close()


def share(case, data, k):
    return Shared(case, data, k)


def attach(address, case, data, rank, k):
    return Trainer(address, data)
