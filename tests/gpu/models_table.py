# SPDX-License-Identifier: Apache-2.0
"""Judges the results of models.py and formats them as a table."""

# The speedup of DeepRec's smart stage on a GPU (do_smartstage_gpu) over none, on an A100, as published by its authors.
SEEDS = {"DIEN": 1.005, "DIN": 1.200, "DLRM": 2.051, "DSSM": 1.096, "DeepFM": 1.246}
MODELS = list(SEEDS)
TITLES = {"dataloader": "DataLoader", "off": "stager, off", "on": "on", "auto": "auto",
          "gpu": "auto, GPU too", "staged": "all staged", "shared": "all staged, one copy"}
ALONE = [mode for mode in TITLES if mode != "shared"]  # one trainer; this table is for several
LOSS_GAP = {True: 1e-5, False: 2e-3}  # on a CPU; on a GPU floats are added in any order


def cell_of(found, model, mode, k=1, with_mps=False):
    for cell in found["cells"]:
        if (cell["model"], cell["mode"], cell["trainers"], cell["mps"]) == (model, mode, k, with_mps):
            return cell
    return {}


def rate(cell):
    """Steps per second of the slowest trainer; None: not measured."""
    return min(cell["steps_per_s"]) if "steps_per_s" in cell else None


def over(a, b):
    return a / b if a is not None and b is not None else None


def difference(check, other, allowed):
    """Why two trainers did not train on the same rows, or did not reach the same loss."""
    for step, ((loss, sums), (other_loss, other_sums)) in enumerate(zip(check, other)):
        if sums != other_sums:
            return f"step {step}: sums of its rows {sums}, of DataLoader's {other_sums}"
        if not abs(loss - other_loss) <= allowed * max(abs(other_loss), 1):
            return f"step {step}: loss {loss:.8f}, with DataLoader {other_loss:.8f}"
    return None if len(check) == len(other) else f"{len(check)} steps, of DataLoader {len(other)}"


def judge(found):
    """Adds `differ`, the differences from DataLoader; and `ratios` of one trainer."""
    found["differ"], found["ratios"] = [], {}
    for cell in found["cells"]:
        other = cell_of(found, cell["model"], "dataloader")
        if "check" in cell and "check" in other:
            why = difference(cell["check"], other["check"], LOSS_GAP[found["rehearsal"]])
            if why:
                found["differ"].append(f"{cell['model']}, {TITLES[cell['mode']]}, {cell['trainers']} trainers: {why}")
    for model in dict.fromkeys(cell["model"] for cell in found["cells"]):
        rates = {mode: rate(cell_of(found, model, mode)) for mode in TITLES}
        parts = found["parts"].get(model, {})
        bound = 1 / max(parts["stage_s"], parts["copy_s"], parts["compute_s"]) if "stage_s" in parts else None
        found["ratios"][model] = {"auto_over_off": over(rates["auto"], rates["off"]),
                                  "gpu_over_off": over(rates["gpu"], rates["off"]), "seed": SEEDS[model],
                                  "auto_over_dataloader": over(rates["auto"], rates["dataloader"]),
                                  "staged_over_dataloader": over(rates["staged"], rates["dataloader"]),
                                  "bound_steps_per_s": bound, "auto_over_bound": over(rates["auto"], bound)}


def shown(value, form=".1f"):
    return "not run" if value is None else format(value, form)


def table(titles, rows):
    return ["", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"] + [f"| {' | '.join(row)} |" for row in rows]


def one_trainer(found):
    rows = []
    for model, ratios in found["ratios"].items():
        rows.append([model, *[shown(rate(cell_of(found, model, mode))) for mode in ALONE],
                     shown(ratios["bound_steps_per_s"]), shown(ratios["auto_over_bound"], ".2f"),
                     shown(ratios["auto_over_off"], ".3f"), shown(ratios["gpu_over_off"], ".3f"),
                     shown(ratios["seed"], ".3f")])
    return table(["steps/s", *[TITLES[mode] for mode in ALONE], "bound", "auto over it", "auto over off", "auto, GPU too, over off",
                  "the seed's"], rows)


def parts(found):
    keys = {"stage_s": "stage", "copy_s": "copy", "compute_s": "compute", "dataloader_s": "DataLoader"}
    rows = [[model] + [shown(part[key] * 1e3 if key in part else None, ".2f") for key in keys]
            for model, part in found["parts"].items()]
    return table(["ms a batch, each alone", *keys.values()], rows)


def together(found):
    """k trainers on one device, with and without MPS: the slowest one."""
    groups = list(dict.fromkeys((cell["trainers"], cell["mps"]) for cell in found["cells"]))
    modes = [mode for mode in TITLES if any(cell["mode"] == mode and cell["trainers"] > 1 for cell in found["cells"])]
    rows = []
    for model in found["ratios"]:
        for mode in modes:
            rows.append([model, TITLES[mode],
                         *[shown(rate(cell_of(found, model, mode, k, with_mps))) for k, with_mps in groups]])
    titles = [f"{k} trainer{'s' if k > 1 else ''}{', MPS' if with_mps else ''}" for k, with_mps in groups]
    return table(["steps/s of the slowest", "", *titles], rows) if rows else []


def about(found):
    what = (f"Batches of {found['batch_size']} of {found['rows']} rows, up to {found['seen']} items seen before; "
            f"{found['workers']} workers of DataLoader; {found['seconds']:g} s a cell.")
    if found["rehearsal"]:
        return f"**A rehearsal on a CPU**: trainer, copies and stagerd share its cores. {what}"
    return f"{found['card']}. {what}"


def markdown(found):
    lines = [about(found), *one_trainer(found), *parts(found), *together(found)]
    notes = [f"- FAILED: {cell['model']}, {TITLES[cell['mode']]}, {cell['trainers']} trainers: {cell['failure']}"
             for cell in found["cells"] if cell["failure"]]
    notes += [f"- FAILED: {model}, parts: {part['failure']}" for model, part in found["parts"].items() if "failure" in part]
    notes += [f"- DIFFERS: {text}" for text in found["differ"]]
    notes += [f"- MPS: {found['mps']}"] if found.get("mps") else []
    notes += [f"- {found['left_out']}"] if "left_out" in found else []
    return "\n".join(lines + ([""] + notes if notes else [])) + "\n"
