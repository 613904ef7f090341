#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each style check gets a good and a bad sample: a check that cannot fail checks nothing. Checks whose tool is not
installed are left out."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import check_abi
import check_defaults
import check_effects
import check_errors
import check_exports
import check_format
import check_functions
import check_fuzz
import check_headers
import check_kernels
import check_layers
import check_links
import check_man
import check_prototypes
import check_public_header
import check_releases
import check_shape
import check_shell
import check_units
import check_vocabulary
import check_ways
import check_words
import house

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import summary  # noqa: E402

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


class Tree:
    """A small source tree that is removed afterwards."""

    def __init__(self, **files):
        self.root = tempfile.mkdtemp(prefix="stg-style-")
        for name, text in files.items():
            path = os.path.join(self.root, name.replace("__", "/").replace("_DOT_", "."))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def __enter__(self):
        return self.root

    def __exit__(self, *_):
        shutil.rmtree(self.root)


def finds(check, part, **files):
    with Tree(**files) as root:
        found = check.problems(root)
    assert any(part in line for line in found), f"no '{part}' in {found}"


def finds_nothing(check, **files):
    with Tree(**files) as root:
        found = check.problems(root)
    assert found == [], found


def the_daemon_may_not_include_the_client():
    finds(check_layers, "daemon/ may not include client/stager.h",
          daemon__main_DOT_c='#include "client/stager.h"\n', client__stager_DOT_h="")


def core_may_include_no_other_folder():
    finds(check_layers, "core/ may not include ops/base/op.h",
          core__err_DOT_c='#include "ops/base/op.h"\n', ops__base__op_DOT_h="")


def the_thin_library_may_not_include_ops():
    finds(check_layers, "client/ may not include ops/exec/run.h",
          client__stream_DOT_c='#include "ops/exec/run.h"\n', ops__exec__run_DOT_h="")


def an_example_may_include_the_public_header_only():
    finds(check_layers, "examples/ may not include core/err.h",
          examples__x_DOT_c='#include "core/err.h"\n', core__err_DOT_h="")


def only_the_daemon_may_use_libuv():
    finds(check_layers, "only daemon/ may include uv.h",
          client__connect_DOT_c="#include <uv.h>\n")


def only_proto_sees_generated_code():
    finds(check_layers, "only proto/ may include",
          daemon__session_DOT_c='#include "proto/control.pb-c.h"\n')
    finds(check_layers, "daemon/ may not include proto/convert.h",
          daemon__session_DOT_c='#include "proto/convert.h"\n', proto__convert_DOT_h="")


def the_client_parses_no_pipeline():
    finds(check_layers, "client/ may not include proto/load.h",
          client__stream_DOT_c='#include "proto/load.h"\n', proto__load_DOT_h="")


def allowed_includes_pass():
    finds_nothing(check_layers, core__err_DOT_h="", ops__base__op_DOT_h='#include "core/err.h"\n',
                  daemon__main_DOT_c='#include <uv.h>\n#include "ops/base/op.h"\n',
                  proto__wire_DOT_c='#include "control.pb-c.h"\n')


def a_circle_of_headers_is_found():
    finds(check_layers, "a circle of headers", core__a_DOT_h='#include "core/b.h"\n',
          core__b_DOT_h='#include "core/a.h"\n')


def a_circle_of_folders_is_found():
    finds(check_layers, "a circle of folders",
          daemon__a_DOT_h='#include "daemon/dataset/b.h"\n', daemon__dataset__b_DOT_h="",
          daemon__dataset__c_DOT_c='#include "daemon/d.h"\n', daemon__d_DOT_h="")


def a_header_that_needs_another_is_found():
    finds(check_headers, "does not compile alone as c:",
          core__a_DOT_h="static inline size_t a(void) { return 0; }\n")


def a_header_that_is_no_cpp_is_found():
    finds(check_headers, "does not compile alone as c++",
          client__stager_DOT_h="int stager_open(const char *class);\n")


def an_internal_header_with_atomics_need_not_be_cpp():
    finds_nothing(check_headers, core__a_DOT_h="#include <stdatomic.h>\n"
                  "struct a { _Atomic int x; };\n",
                  core__b_DOT_h='#include "core/a.h"\nstruct b { struct a a; int class; };\n')


def a_foreign_export_is_found():
    found = check_exports.of_library("client/libstager.so.0", {"stager_open", "stg_err"},
                                     {"stager_open"})
    assert any("stg_err" in line for line in found), found


def a_declared_but_unexported_name_is_found():
    found = check_exports.of_library("libstager.so.0", {"stager_open"},
                                     {"stager_open", "stager_next"})
    assert any("does not export stager_next" in line for line in found), found


def an_undeclared_export_is_found():
    found = check_exports.of_library("libstager.so.0", {"stager_open", "stager_x"},
                                     {"stager_open"})
    assert any("stager_x, which client/stager.h does not declare" in line for line in found)


def a_plugin_with_two_symbols_is_found():
    assert check_exports.of_library("libstager-cuda.so", {"a", "b"}, set())
    assert not check_exports.of_library("libstager-cuda.so", {"a"}, set())


def declarations_are_read_from_the_header():
    got = check_exports.declared("/* stager_no(void); */\nint stager_a(void);\n"
                                 "const char *stager_b(int x,\n   int y);\nstruct stager_c;\n")
    assert got == {"stager_a", "stager_b"}, got


def a_prototype_without_a_comment_is_found():
    finds(check_prototypes, "stager_b has no comment",
          client__stager_DOT_h="/* Does a. */\nint stager_a(void);\n\nint stager_b(void);\n")


def prototypes_in_one_paragraph_share_a_comment():
    finds_nothing(check_prototypes, client__stager_DOT_h="/* Both. */\nint stager_a(int x,\n"
                  "             int y);\nint stager_b(void);\n\nstruct s {\n    int x;\n};\n")


def a_header_without_prototypes_is_found():
    finds(check_prototypes, "no prototype found", client__stager_DOT_h="struct s;\n")


def a_changed_binary_interface_is_found():
    if check_abi.why_not() is not None:
        return
    header = ("enum stager_code {\n    STAGER_OK = 0,\n};\nstruct stager_info {\n    long struct_size;\n    int n;\n};\n"
              "int stager_info(struct stager_info *ret);\nint stager_close(void);\n")
    with Tree(client__stager_DOT_h=header) as root:
        check_abi.describe(root, os.path.join(root, check_abi.DESCRIPTION))
        assert check_abi.problems(root) == []
        for old, new in (("int n;", "int n, more;"), ("_close(void)", "_close(int x)"), ("OK = 0", "OK = 1"),
                         ("int stager_close(void);\n", ""), ("int n;", "long n;")):
            with open(os.path.join(root, check_abi.HEADER), "w", encoding="utf-8") as file:
                file.write(header.replace(old, new))
            assert "another binary interface" in check_abi.problems(root)[0], (old, new)


def a_cycle_of_files_is_found():
    uses = {"a/x.c": {"a/y.c"}, "a/y.c": {"a/z.c"}, "a/z.c": {"a/x.c"}, "b/x.c": {"a/x.c"}}
    assert check_shape.cycles(uses, {}) == [
        "a/x.c:1: a cycle of 3 files, by their symbols: a/x.c, a/y.c, a/z.c"]
    uses["a/z.c"] = set()
    assert check_shape.cycles(uses, {}) == []


def a_cycle_is_read_from_objects():
    compiler = os.environ.get("CC", "cc").split()
    with Tree(a__x_DOT_c="void y(void);\nvoid x(void);\nvoid x(void) { y(); }\n",
              a__y_DOT_c="void x(void);\nvoid y(void);\nvoid y(void) { x(); }\n") as root:
        objects = {}
        for name in ("a/x.c", "a/y.c"):
            path = os.path.join(root, name[:-1] + "o")
            subprocess.run([*compiler, "-c", os.path.join(root, name), "-o", path], check=True)
            objects[path] = name
        found = check_shape.problems(root, check_shape.symbols(objects))
    assert any("a cycle of 2 files" in line for line in found), found


def a_table_may_close_a_cycle_and_is_not_included():
    uses = {"ops/table.c": {"ops/base/x.c"}, "ops/base/x.c": {"ops/table.c"}}
    assert check_shape.cycles(uses, {}) == []
    assert "includes a table" in check_shape.cycles(uses, {"ops/base/x.c": {"ops/table.c"}})[0]
    for table in check_shape.TABLES:
        uses.update({table: {"x/x.c"}, "x/x.c": set(check_shape.TABLES)})
    assert any("more than two tables" in line for line in check_shape.cycles(uses, {}))


def a_cycle_of_folders_by_symbols_is_found():
    uses = {"a/x.c": {"b/y.c"}, "b/z.c": {"a/w.c"}}
    assert check_shape.cycles(uses, {}) == ["a:1: a cycle of folders: a, b"]
    assert check_shape.cycles({"a/x.c": {"b/y.c"}}, {"b/z.h": {"a/w.h"}}) == ["a:1: a cycle of folders: a, b"]


def a_folder_of_too_many_files_is_found():
    assert check_shape.sizes([f"a/{i}.c" for i in range(check_shape.MAX_FILES)]) == []
    assert "a:1: has 41 source files" in check_shape.sizes([f"a/{i}.c" for i in range(41)])[0]


def a_folder_without_a_short_README_is_found():
    with Tree(a__README_DOT_md="line\n" * 16) as root:
        assert check_shape.readmes(root, ["b/x.c"]) == ["b:1: has no README.md"]
        assert check_shape.readmes(root, ["a/x.c"]) == ["a/README.md:1: has more than 15 lines"]
        assert check_shape.readmes(root, ["a/b/x.c", "tests/x.c"]) == []


def a_fuzz_mode_without_a_row_is_found():
    modes = 'const struct stg_fuzz_mode stg_fuzz_modes[] = {\n    {"a", run_a}, {"b", run_b},\n};\n'
    with Tree(tests__fuzz__README_DOT_md="| input | mode |\n|---|---|\n| x | `p/a`, `p/c` |\n",
              tests__fuzz__fuzz_p_DOT_c=modes) as root:
        assert check_fuzz.problems(root) == ["tests/fuzz/fuzz_p.c:1: p/b is not in the table of tests/fuzz/README.md",
                                             "tests/fuzz/README.md:1: p/c is no mode"]


def a_tag_that_means_two_types_is_found():
    finds(check_shape, "stg_a is another type in b/y.c", a__x_DOT_h="struct stg_a {\n    int x;\n};\n",
          b__y_DOT_c="struct stg_a {\n    long x;\n};\n")
    finds_nothing(check_shape, b__README_DOT_md="", a__README_DOT_md="", a__x_DOT_h="struct stg_a;\nstruct a {\n    int x;\n};\n",
                  b__y_DOT_c="struct stg_a {\n    long x;\n};\nstruct a {\n    long x;\n};\n")


def differing_status_codes_are_found():
    block = "#ifndef STAGER_STATUS_DEFINED\nenum e { A = %d };\n#endif\n"
    finds(check_public_header, "says 'enum e { A = 2 };'", core__status_DOT_h=block % 1,
          client__stager_DOT_h=block % 2)
    finds_nothing(check_public_header, core__status_DOT_h=block % 1,
                  client__stager_DOT_h=block % 1)


def a_missing_line_in_the_block_is_found():
    finds(check_public_header, "says '#endif' where core/status.h says 'b'",
          core__status_DOT_h="#ifndef STAGER_STATUS_DEFINED\na\nb\n#endif\n",
          client__stager_DOT_h="#ifndef STAGER_STATUS_DEFINED\na\n#endif\n")


def a_long_function_is_found():
    finds(check_functions, "too_long has 131 lines",
          core__a_DOT_c="int too_long(int x,\n             int y)\n{\n" + "    x++;\n" * 127 + "}\n")
    finds_nothing(check_functions,
                  core__a_DOT_c="int long_enough(void)\n{\n" + "    x++;\n" * 100 + "}\n")


def a_function_over_80_lines_is_listed():
    with Tree(core__a_DOT_c="int f(void)\n{\n" + "    x++;\n" * 80 + "}\n") as root:
        listed, found = check_functions.survey(root)
    assert "f has 83 lines" in listed[0] and found == [], (listed, found)


def badly_formatted_code_is_found():
    if shutil.which("clang-format") is None:
        return
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.clang-format")
    with open(here, encoding="utf-8") as file:
        style = file.read()
    with Tree(core__a_DOT_c="int  x;\n", _DOT_clang_DOT_=style) as root:
        os.rename(os.path.join(root, ".clang."), os.path.join(root, ".clang-format"))
        found = check_format.problems(root)
        assert any("core/a.c:1" in line for line in found), found
        with open(os.path.join(root, "core/a.c"), "w", encoding="utf-8") as file:
            file.write("int x;\n")
        assert check_format.problems(root) == []


def a_source_without_licence_is_found():
    finds(check_words, "core/a.c:1: no line with SPDX", core__a_DOT_c="int x;\n")
    finds(check_words, "quickstart:1: no line with SPDX", quickstart="#!/bin/bash\n\n\n# " + SPDX)
    finds_nothing(check_words, core__a_DOT_c=SPDX + "int x;\n")


def a_word_left_behind_is_found():
    for word in ("TO" + "DO", "FIX" + "ME", "X" + "XX"):
        finds(check_words, f"core/a.c:2: {word}", core__a_DOT_c=SPDX + f"/* {word}: later */\n")
    finds_nothing(check_words, core__a_DOT_c=SPDX + 'char t[] = "/tmp/a' + "X" * 6 + '";\n')


def sentences_without_a_named_subject_are_counted():
    bad = "/* Whoever reads it is " + "to" + "ld. */\n"
    finds(check_words, "core/a.c:2: told: one of 41, at most 40", core__a_DOT_c=SPDX + bad * 41)
    finds_nothing(check_words, core__a_DOT_c=SPDX + bad * 40)


def a_term_of_our_own_is_found():
    finds(check_vocabulary, "docs/a.md:1: Tickets: access token", docs__a_DOT_md="Tickets expire.\n")
    finds(check_vocabulary, "core/a.c:1: bell: doorbell", core__a_DOT_c="int ring_bell(void);\n")
    finds(check_vocabulary, "daemon/stage/a.c:2: cut: partition", daemon__stage__a_DOT_c="/* cut */\nint stg_stage_cut;\n")
    finds_nothing(check_vocabulary, core__a_DOT_c="int ring_doorbell(void); /* cut short, kept */\n",
                  daemon__placement__a_DOT_c='#include "daemon/placement/min_cut.h"\nint stg_network_cut;\nchar t[] = "kept";\n',
                  docs__a_DOT_md="A drawing is kept.\n")


def a_wall_clock_that_decides_is_found():
    finds(check_words, "core/a.c:2: CLOCK_REALTIME", core__a_DOT_c=SPDX + "clock_gettime(CLOCK_REALTIME, &now);\n")
    finds_nothing(check_words, core__log_DOT_c=SPDX + "clock_gettime(CLOCK_REALTIME, &now);\n")


WAY = "| file | function | called as | what |\n|---|---|---|---|\n"
TAKE = "static int take(void)\n{\n    return 0;\n}\n"
NEXT = "int stager_next(struct stream *stream)\n{\n    return stream->impl->take();\n}\n"


def a_way_that_the_code_does_not_go_is_found():
    row = "| `client/api/next.c` | `stager_next` | | |\n| `client/stream/take.c` | `take` |{} | |\n"
    files = {"client__api__next_DOT_c": NEXT, "client__stream__take_DOT_c": TAKE}
    finds_nothing(check_ways, docs__architecture_DOT_md=WAY + row.format(" `->take`"), **files)
    back = "| `client/stream/take.c` | `take` | | |\n| `client/api/next.c` | `stager_next` | `->take` | |\n"
    finds_nothing(check_ways, docs__architecture_DOT_md=WAY + back, **files)
    finds(check_ways, "take is not called from the row before it",
          docs__architecture_DOT_md=WAY + row.format(" `pull`"), **files)
    finds(check_ways, "client/stream/take.c has no function take", docs__architecture_DOT_md=WAY + row.format(""),
          client__api__next_DOT_c=NEXT)
    finds(check_ways, "the chain comes back to client/api",
          docs__architecture_DOT_md=WAY + row.format("") + "| `client/api/next.c` | `stager_next` | | |\n", **files)


def a_link_to_nowhere_is_found():
    finds(check_links, "docs/a.md:1: b.md is not there", docs__a_DOT_md="see [b](b.md#part)\n")
    finds_nothing(check_links, docs__a_DOT_md="[b](../b.md), [w](https://x.org/y)\n",
                  b_DOT_md="")


def a_link_to_a_heading_that_is_not_there_is_found():
    page = "# A page\n\n## `on`, off: [it](b.md)\n\n```\n# no heading\n```\n## on, off: it\n"
    for anchor in ("a-page", "on-off-it", "on-off-it-1"):
        finds_nothing(check_links, docs__a_DOT_md=page, docs__b_DOT_md=f"[a](a.md#{anchor})\n")
    finds(check_links, "docs/b.md:1: docs/a.md has no heading #no-heading", docs__a_DOT_md=page,
          docs__b_DOT_md="[a](a.md#no-heading)\n")
    finds(check_links, "docs/b.md:2: docs/b.md has no heading #y", docs__b_DOT_md="# x\n[y](#y), `[z](#z)`\n")


def a_page_that_the_index_lacks_is_found():
    index = "[a](a.md)\n"
    finds_nothing(check_links, docs__README_DOT_md=index, docs__a_DOT_md="")
    finds(check_links, "docs/README.md:1: docs/b.md is not in the index", docs__README_DOT_md=index,
          docs__a_DOT_md="", docs__b_DOT_md="")


def a_default_that_the_document_does_not_give_is_found():
    schema = "message Staged {\n  optional uint32 capacity = 2 [default = 1]; // x\n  optional bool keep_warm = 3;\n}\n"
    page = "## `staged`: x\n\n| `capacity` | `1` | |\n| `keep_warm` | as needed | |\n\n## next\n"
    finds_nothing(check_defaults, proto__pipeline_DOT_proto=schema, docs__pipeline_DOT_md=page)
    finds(check_defaults, "capacity: the default is 1, not 2", proto__pipeline_DOT_proto=schema,
          docs__pipeline_DOT_md=page.replace("`1`", "`2`"))
    finds(check_defaults, "lacks keep_warm", proto__pipeline_DOT_proto=schema,
          docs__pipeline_DOT_md=page.replace("keep_warm", "keep_cold"))


def a_release_that_is_no_release_is_found():
    files = {"meson_DOT_build": "project('stager', 'c', version: '0.2.0')\n", "CHANGELOG_DOT_md": "# C\n\n## 0.2.0\n",
             "pyproject_DOT_toml": 'version = "0.2.0"\n'}
    line = "0.2.0 2026-11-22 " + "a" * 40 + "\n"
    with Tree(RELEASES=line, **files) as root:
        assert check_releases.problems(root, lambda *_: files["meson_DOT_build"]) == []
        assert "has version 0.1.0" in check_releases.problems(root, lambda *_: "project('s', version: '0.1.0')")[0]
    finds(check_releases, "RELEASES:1: is not VERSION DATE COMMIT", RELEASES="0.2.0\n", **files)
    files["meson_DOT_build"] = files["meson_DOT_build"].replace("0.2.0", "0.3.0")
    finds(check_releases, "has no section 0.3.0", RELEASES=line, **files)
    finds(check_releases, "pyproject.toml:1: has version 0.2.0", RELEASES=line, **files)


def errors_that_the_page_does_not_have_are_found():
    page = ("## Components\n\n| component | errors of | code |\n|---|---|---|\n| lists | lists | `core/list` |\n"
            "| GPU | devices | `core/gpu.c` |\n\n## CANCELLED\n\n`-1`, `CancelledError`\n\n| component | text |\n"
            "|---|---|\n| any | `stopped` | c | r |\n| lists | `no list … of …`, `row …` | c | r |\n")
    kinds = 'class CancelledError(Error):\n    code, status = 1, "CANCELLED"\n'
    more = kinds + 'class NotFoundError(Error):\n    code, status = 5, "NOT_FOUND"\n'
    names = ("docs__errors_DOT_md", "client__python__stager___errors_DOT_py", "core__list_DOT_c", "core__gpu_DOT_c")
    code = 'f(err, -STAGER_CANCELLED, "no list %" PRIu64 " of"\n " %s", n, s);\nchar *why = "row %d";\n'
    good = dict(zip(names, (page, kinds, code, 'f(x ? -STAGER_CANCELLED : 0, "stopped");\n')))
    finds_nothing(check_errors, **good)
    for part, change in (
            ("no text of lists in the code: row …", {names[2]: code.replace("row", "line")}),
            ("in core/list.c this is NOT_FOUND", {names[1]: more, names[2]: code.replace("CANCELLED", "NOT_FOUND")}),
            ("has no section NOT_FOUND with `-5` and `NotFoundError`", {names[1]: more}),
            ("CANCELLED has no row of GPU, which makes it in core/gpu.c:1", {names[3]: 'f(-STAGER_CANCELLED, "lost");\n'}),
            ("core/log.c:1: makes an error, and is of no", {"core__log_DOT_c": 'f(-STAGER_CANCELLED, "x");\n'}),
            ("client/x.py:1: makes an error", {"client__x_DOT_py": 'raise CancelledError(f"no {x}" + y)\n'}),
            ("core/gpu.c:1: \"is no\" in an error", {names[3]: 'f(-STAGER_CANCELLED, "stopped: this is no list");\n'}),
            ("core/gpu.c has no texts", {names[3]: ""})):
        finds(check_errors, part, **{**good, **change})


def a_long_README_is_found():
    finds(check_links, "README.md:151: 151 lines", README_DOT_md="line\n" * 151)
    finds(check_links, "1801 words", README_DOT_md="word " * 1801)
    finds_nothing(check_links, README_DOT_md="line\n" * 150, docs__a_DOT_md="word\n" * 2000)


def a_careless_script_is_found():
    if shutil.which("shellcheck") is not None:
        finds(check_shell, "SC2086", quickstart="#!/bin/sh\necho $1\n")
        finds_nothing(check_shell, quickstart='#!/bin/sh\necho "$1"\n')


def a_unit_with_an_unknown_value_is_found():
    if check_units.missing() is not None:
        return
    unit = "[Service]\nType=%s\nExecStart=/nowhere/stagerd\n"
    assert check_units.verify(unit % "notifyy", "--system") != []
    assert check_units.verify(unit % "notify", "--system") == []


def a_page_that_groff_warns_of_is_found():
    if shutil.which("groff") is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.1")
        for text, bad in ((".TH X 1\n.SH NAME\nx \\- y\n", False), (".TH X 1\n.SX NAME\n", True)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            assert bool(check_man.warnings(path)) == bad


def an_option_without_a_word_is_found():
    assert check_man.compare("x.md", "--one FILE, --two", "--one FILE, --two") == []
    assert "shows --two" in check_man.compare("x.md", "--one", "--one --two")[0]
    assert "page shows --two" in check_man.compare("x.md", "--one --two", "--one")[0]
    assert check_man.missing("x.md", "runtime_dirs", ["runtime_dir"], "setting") != []


def an_open_unit_is_found():
    if check_units.missing() is not None:
        return
    unit = "[Service]\nType=notify\nExecStart=/bin/true\n"
    assert check_units.security(unit, check_units.THRESHOLD) != []


def a_finding_makes_the_check_fail():
    assert house.report(["x:1: y"], "do z") == 1
    assert house.report([], "do z") == 0


def the_summary_counts_the_cases_of_a_c_test():
    entry = {"name": "arena", "result": "OK", "stdout": "ok   a\n5 passed, 0 failed, 1 skipped\n"}
    assert summary.count(entry) == [5, 0, 1]


def the_summary_counts_a_script_as_one():
    assert summary.count({"name": "x", "result": "OK"}) == [1, 0, 0]
    assert summary.count({"name": "x", "result": "SKIP", "stdout": "no nm"}) == [0, 0, 1]


def the_summary_sees_a_failure_without_a_count():
    for result in ("FAIL", "TIMEOUT", "ERROR", "INTERRUPT"):
        assert summary.count({"name": "x", "result": result, "stdout": "ok   a\n"}) == [0, 1, 0]


def a_kernel_below_O3_is_found():
    entry = {"file": "../ops/kernels/image/rows.c", "output": "ops/libx.a.p/rows.c.o", "command": "cc -O3 -Os -c x"}
    crc = {"file": "../daemon/storage/codec/crc32c_kernel.c", "output": "daemon/x.o", "command": "cc -O3 -c x"}
    assert any("-Os, not -O3" in line for line in check_kernels.levels([entry, crc]))
    assert not check_kernels.levels([dict(entry, command="cc -O2 -O3 -c x"), crc])
    assert any("no kernel" in line for line in check_kernels.levels([crc]))


def a_kernel_that_is_not_vectorised_is_found():
    code = "   0:\tmulss  %xmm0,%xmm1\n   4:\tmulps  %xmm0,%xmm1\n"
    assert check_kernels.too_few("x.a", code, check_kernels.PACKED, 2)
    assert not check_kernels.too_few("x.a", code, check_kernels.PACKED, 1)
    assert not check_kernels.too_few("x.a", "", check_kernels.PACKED, 1)


def what_leaves_a_stage_by_another_way_is_found():
    found = check_effects.symbols({"commit.c": {"send"}, "split.c": check_effects.undefined("send U\nrecv U\n"),
                                   "partition.c": check_effects.undefined("send T 0 10\nmalloc U\n")})
    assert found == ["daemon/stage/split.c:1: refers to send, which only commit.c may"], found
    found = check_effects.symbols({"observe.c": {"stg_tune_look"}, "partition.c": {"stg_tune_look", "stg_tuning_hold"}})
    assert found == ["daemon/stage/partition.c:1: refers to stg_tune_look, which only observe.c may"], found
    found = check_effects.symbols({"client.c": {"stg_segment_destroy", "munmap"}, "stage.c": {"stg_segment_destroy"}})
    assert found == ["daemon/stage/client.c:1: refers to stg_segment_destroy, which only commit.c and stage.c may",
                     "daemon/stage/client.c:1: refers to munmap, which only other folders may"], found
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "daemon/stage"))
        for name in ("commit", "stage"):
            with open(os.path.join(root, f"daemon/stage/{name}.c"), "w", encoding="utf-8") as file:
                file.write("stage->config.wake(stage->config.owner);\n")
        assert check_effects.hooks(root) == ["daemon/stage/stage.c:1: calls a hook of the loop"]


def the_summary_sees_a_test_that_dies_after_its_count():
    entry = {"name": "x", "result": "FAIL", "stdout": "5 passed, 0 failed, 0 skipped\n"}
    assert summary.count(entry) == [5, 1, 0]


def the_summary_knows_what_was_skipped_for_root():
    entries = [
        {"name": "unit / a", "result": "OK", "stdout": "ok   x\nskip y_z\n1 passed, 0 failed, 1 skipped", "stderr": "    skipped: needs root, to be another user"},
        {"name": "unit / b", "result": "OK", "stdout": ""},
        {"name": "system / c", "result": "SKIP", "stdout": "skipped: a container is booted by root\n"},
        {"name": "python / d", "result": "OK", "stdout": "test_x (__main__.X.test_x) ... ok\n"
                                                         "test_y (__main__.X.test_y) ... skipped 'only root can change the user'\n"
                                                         "test_z (__main__.X.test_z)\nA docstring. ... skipped 'no cupy'\n1 passed, 0 failed, 2 skipped"},
        {"name": "python / e", "result": "SKIP", "stdout": "skipped: no torch\n"}]
    with tempfile.TemporaryDirectory() as build:
        os.mkdir(f"{build}/meson-logs")
        with open(f"{build}/meson-logs/testlog.json", "w", encoding="utf-8") as file:
            file.write("\n".join(json.dumps(entry) for entry in entries))
        assert summary.skipped_for_root(build) == {"a": ["y_z"], "c": [], "d": ["test_y", "test_z"]}


def the_summary_of_nothing_is_a_failure():
    assert summary.tell([0, 0, 0]) == 1
    assert summary.tell([1, 0, 5]) == 0
    assert summary.tell([1, 1, 0]) == 1


def main():
    failed = 0
    tests = [value for value in globals().values()
             if callable(value) and getattr(value, "__module__", "") == "__main__"
             and value not in (Tree, finds, finds_nothing, main)]
    for test in tests:
        try:
            test()
            print("ok  ", test.__name__)
        except Exception as error:  # noqa: BLE001: a test runner reports all
            failed += 1
            print("FAIL", test.__name__, "-", repr(error))
    print(f"{len(tests) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
