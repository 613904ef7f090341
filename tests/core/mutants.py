#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The simulator of the lease core can fail: it must catch each change below, a plausible mistake in core/. Usage:
mutants.py [WORD] runs only the mutants with WORD in their name."""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# name, file, text in the source, its replacement
MUTANTS = [
    ("a lease keeps the generation of the last one", "lease", "slot->generation++;", ""),
    ("the last generation is given out again", "lease",
     "if (slot->generation == UINT32_MAX) {", "if (false) {"),
    ("a stale generation is accepted", "lease",
     "if (!slot->out || slot->generation != lease.generation)", "if (!slot->out)"),
    ("a second release is accepted", "lease",
     "if (!slot->out || slot->generation != lease.generation)",
     "if (slot->generation != lease.generation)"),
    ("another's release is accepted", "lease",
     "if (slot->client != client_id)", "if (false)"),
    ("a lease id is compared one too far", "lease",
     "if (lease.id >= core->max_leases)", "if (lease.id > core->max_leases)"),
    ("a quarantined extent is freed", "lease", "        return QUARANTINED;", "        return FREE;"),
    ("an extent is freed with a lease out", "lease",
     "if (extent->n_leases == 0)", "if (extent->n_leases <= 1 && !extent->lender)"),
    ("the lender's reference does not keep an extent", "lease",
     "return extent->lender ? READY : FREE;", "return FREE;"),
    ("quarantine does not wait for the last client", "lease",
     "extent->n_detached == extent->n_leases", "extent->n_detached > 0"),
    ("detaching counts no extent", "lease",
     "        core->extents[core->slots[id].extent].n_detached++;\n", ""),
    ("a release of a detached client is not counted off", "lease",
     "    if (client->detached)\n        extent->n_detached--;\n", ""),
    ("a detached client may borrow", "lease", "if (client->detached || client->n_held",
     "if (client->n_held"),
    ("one credit too many", "lease", "client->n_held == client->max_in_flight",
     "client->n_held > client->max_in_flight"),
    ("the credits of a detached client are reported", "lease",
     "return client->detached ? 0 : client->max_in_flight - client->n_held;",
     "return client->max_in_flight - client->n_held;"),
    ("a dead process keeps its last lease", "lease",
     "    while (client->first != NONE) {",
     "    while (client->first != NONE && core->slots[client->first].next != NONE) {"),
    ("a dead process may borrow while it is reaped", "lease",
     "    stg_lease_client_detach(core, client_id);\n    while", "    while"),
    ("a client id is given out twice", "lease",
     "core->free_client = core->clients[id].first;", ""),
    ("a lease id is lost when it ends", "lease", "        core->free_slot = id;\n", ""),
    ("bytes stay in the counter that they leave", "lease",
     "    core->bytes[extent->state] -= extent->bytes;\n    extent->state = state_of(extent);",
     "    extent->state = state_of(extent);"),
    ("sealing does not trim", "lease", "    stg_arena_trim(core->arena, id, bytes);\n", ""),
    ("trimming counts the old bytes", "lease",
     "    extent->bytes = stg_arena_bytes(core->arena, id);\n    core->bytes[FILLING] += "
     "extent->bytes;", "    core->bytes[FILLING] += extent->bytes;"),
    ("unlinking drops the predecessor", "lease",
     "        core->slots[slot->prev].next = slot->next;", "        ;"),
    ("slots are one granule longer", "arena", "if (over + n > arena->slot && arena->slot > 0)",
     "if (over + n > arena->slot + 1 && arena->slot > 0)"),
    ("slots are one granule shorter", "arena", "if (over + n > arena->slot && arena->slot > 0)",
     "if (over + n >= arena->slot && arena->slot > 0 && over > 0)"),
    ("more than a slot is found room for", "arena",
     "if (n > (arena->slot > 0 ? arena->slot : arena->n_granules))",
     "if (n > arena->n_granules)"),
    ("the last granule is not used", "arena", "if (n > arena->n_granules - pos)",
     "if (n >= arena->n_granules - pos)"),
    ("a gap one granule short is enough", "arena", "if (taken == pos + n)",
     "if (taken + 1 >= pos + n)"),
    ("a full word is taken for one with room", "arena",
     "if (arena->words[w] == UINT64_MAX)", "if (false)"),
    ("a word is full for ever", "arena", "        arena->full[w / WORD_BITS] &= ~bit;", "        ;"),
    ("trimming gives one granule too many", "arena",
     "give_back(arena, extent->start + (uint32_t)n, extent->n - (uint32_t)n);",
     "give_back(arena, extent->start + (uint32_t)n - 1, extent->n - (uint32_t)n + 1);"),
    ("trimmed granules are lost", "arena",
     "    give_back(arena, extent->start + (uint32_t)n, extent->n - (uint32_t)n);\n",
     "    arena->n_free += extent->n - (uint32_t)n;\n"),
    ("an extent id is given back and not taken away", "arena",
     "    arena->alive[id / WORD_BITS] |= 1ull << id % WORD_BITS;\n", ""),
    ("a counter that makes no sense is believed", "ring",
     "if (available > STG_RELEASE_ENTRIES)", "if (false)"),
    ("a full queue of releases is a violation", "ring",
     "if (available > STG_RELEASE_ENTRIES)", "if (available >= STG_RELEASE_ENTRIES)"),
    ("a release is read twice", "ring", "    reader->cursor++;\n    memcpy(ret",
     "    memcpy(ret"),
    ("releases are read from the next slot", "ring",
     "&page->releases[reader->cursor % STG_RELEASE_ENTRIES]",
     "&page->releases[(reader->cursor + 1) % STG_RELEASE_ENTRIES]"),
    ("a descriptor follows the terminal status", "ring", "    if (!writer->finished)\n        publish",
     "    publish"),
    ("the terminal status is not said", "ring",
     "    publish(writer, &(struct stg_descriptor){.kind = STG_DESCRIPTOR_FINAL});\n", ""),
    ("descriptors wrap one slot early", "ring", "page->entries[writer->head % STG_RING_ENTRIES]",
     "page->entries[writer->head % (STG_RING_ENTRIES - 1)]"),
    ("a doorbell is rung though a batch is there", "ring",
     "n_ready(reader) > few", "few > STG_RING_ENTRIES"),
    ("a doorbell is rung for ever", "ring", "    reader->doorbell_rung = wanted;\n", ""),
]

CORE = ["arena", "lease", "ring", "trace", "err", "status"]
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-w"]
# Only reading past a table shows it; needs twice the time.
SEEN_BY_ASAN = "a lease id is compared one too far"


def mutate(text, old, new, name):
    if text.count(old) < 1:
        sys.exit(f"{name}: what it changes is not there any more: {old!r}")
    return text.replace(old, new, 1)


def compiler(asan):
    return ["cc", *FLAGS, *(["-fsanitize=address"] if asan else [])]


def compile_to(asan, source, out, includes):
    subprocess.run([*compiler(asan), *includes, "-c", str(source), "-o", str(out)],
                   check=True)
    return str(out)


def build(folder, fixed, which, asan):
    """Compiles only the changed file. lease.c is included by lease_peek.c."""
    includes = [f"-I{folder}", f"-I{ROOT}"]
    objects = dict(fixed)
    source = ROOT / "tests/core/lease_peek.c" if which == "lease" else folder / f"core/{which}.c"
    objects[which] = compile_to(asan, source, folder / "mutant.o", includes)
    program = folder / "sim"
    subprocess.run([*compiler(asan), *objects.values(), "-o", str(program)], check=True)
    return program


def fixed_objects(folder, asan):
    sources = {name: ROOT / f"core/{name}.c" for name in CORE}
    sources["lease"] = ROOT / "tests/core/lease_peek.c"
    for name in ("core/test_lease_sim", "core/lease_sim_process", "core/lease_model", "check"):
        sources[name] = ROOT / f"tests/{name}.c"
    return {name: compile_to(asan, source, folder / f"{name.replace('/', '_')}.{asan}.o", [f"-I{ROOT}"])
            for name, source in sources.items()}


def run(program):
    done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, env={**os.environ, "STG_SIM_SEEDS": "2000", "STG_SEED": "0"})
    return done.returncode, done.stderr.strip()


def main():
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    survivors = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "core").mkdir()
        fixed = {asan: fixed_objects(folder, asan) for asan in (False, True)}
        for name, which, old, new in MUTANTS:
            if word not in name:
                continue
            text = (ROOT / f"core/{which}.c").read_text()
            mutant = folder / f"core/{which}.c"
            mutant.write_text(mutate(text, old, new, name))
            asan = name == SEEN_BY_ASAN
            code, said = run(build(folder, fixed[asan], which, asan))
            mutant.unlink()
            print(f"{'caught' if code else 'LIVES '} {name}: {said.splitlines()[0] if said else ''}")
            if code == 0:
                survivors.append(name)
    print(f"{len(survivors)} of {len(MUTANTS)} live")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
