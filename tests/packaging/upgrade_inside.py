#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The only service of the container that check_deb.py boots: installs packages there, upgrades and downgrades them while trainers
train, removes and purges them.

    upgrade_inside.py goes-on|reopens      what streams do over the upgrade from old/ to new/, and back

Its last line is "N passed, N failed, 0 skipped".
"""
import glob
import json
import os
import re
import shutil
import sys

import boot_inside
from boot_inside import Trainer, apply, http, journal, processes_of, run, show, systemctl, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ("libstager-dev", "libstager0", "python3-stager", "stagerd")
SETTINGS = "/etc/stager/stagerd.yaml"
STATE = "/var/lib/stager"
USERS = ("stg-one", "stg-two")
# Not part of an installation: caches, logs, and what each of apt, dpkg and systemd notes for itself.
VOLATILE = ("dev", "mnt", "proc", "run", "srv", "sys", "tmp", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/lib/systemd/catalog",
            "var/lib/systemd/random-seed", "var/lib/systemd/timers", "var/log", "var/tmp")
# The user database: the user `stager` stays.
USER_DATABASE = {"etc/.pwd.lock", "etc/group", "etc/group-", "etc/gshadow", "etc/gshadow-", "etc/passwd", "etc/passwd-", "etc/shadow",
                 "etc/shadow-"}


def files(root):
    """Paths below a root, of files and folders, without those of VOLATILE."""
    found = set()
    for folder, folders, names in os.walk(root):
        here = os.path.relpath(folder, root)
        paths = {os.path.normpath(os.path.join(here, name)): name for name in folders + names}
        found |= {path for path in paths if path not in VOLATILE}
        folders[:] = [name for path, name in paths.items() if path in found and name in folders]
    return found


def apt(*arguments):
    run("apt-get", "-y", "-qq", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold", *arguments,
        env={"DEBIAN_FRONTEND": "noninteractive"})


def install(which, *options):
    apt("install", *options, *glob.glob(f"{HERE}/{which}/*.deb"))


def version():
    return run("dpkg-query", "-W", "-f", "${Version}", "stagerd")


def enabled(unit, *options):
    return run("systemctl", *options, "is-enabled", unit, status=None).strip()


def make_rows():
    os.makedirs("/srv/rows")
    with open("/srv/rows/0.csv", "w", encoding="utf-8") as file:
        file.write("id,x,word\n")
        file.writelines(f"{i},{i / 7},word {i}\n" for i in range(boot_inside.N_ROWS))


def settings():
    with open(SETTINGS, encoding="utf-8") as file:
        return file.read()


# ---- the cases, in order --------------------------------------------------------------------

def an_install_starts_the_service_alone():
    install("old")
    assert show("stagerd", "ActiveState", "StatusText", "NRestarts") == ["active", "ready", "0"], journal("-n", "20")
    assert (enabled("stagerd.service"), enabled("stagerd.socket")) == ("enabled", "disabled")
    assert enabled("stagerd.service", "--global") == "disabled"
    assert os.path.isdir("/etc/stager/pipelines")
    for user in USERS:
        run("useradd", "--create-home", "--groups", "stager", user)


def commits():
    """{(tag, client)} of the commits that stagerd has."""
    reply = json.loads(run("stagerctl", "commits", "all", "--json"))
    listed = reply["commits"] if isinstance(reply, dict) else reply  # an array, up to 0.2.0
    return {(commit["tag"], commit["of"]) for commit in listed}


def replace_under_trainers(which, tag, *options):
    """Installs other packages while two trainers are in a pass that both have committed: the trainers lose no row, and stagerd
    neither its commits nor its settings."""
    trainers = [Trainer(user, "all", 3, tag=tag) for user in USERS]
    for trainer in trainers:
        trainer.wait_for("held")
    pid, before, kept = show("stagerd", "MainPID"), version(), commits()
    assert {(tag, user) for user in USERS} <= kept, kept
    install(which, *options)
    assert version() != before
    assert show("stagerd", "ActiveState", "NRestarts") == ["active", "0"], journal("-n", "20")
    assert show("stagerd", "MainPID") != pid
    assert settings().endswith("max_clients: 77\n")
    for trainer in trainers:
        trainer.go_on()
    goes_on = sys.argv[1] == "goes-on"
    for trainer in trainers:
        tally = trainer.finish()
        assert tally == {"rows": boot_inside.N_ROWS, "missing": 0, "reopened": int(not goes_on), "reconnects": int(goes_on)}, tally
    assert kept <= commits(), (kept, commits())


def trainers_continue_after_an_upgrade():
    with open(SETTINGS, "a", encoding="utf-8") as file:
        file.write("max_clients: 77\n")
    systemctl("reload", "stagerd")
    apply("all", "broadcast")
    replace_under_trainers("new", "older")


def trainers_continue_after_a_downgrade_and_another_upgrade():
    """A definition of a later release, with a key that this one does not know, is reported, left out and kept."""
    later = f"{STATE}/pipelines/later.yaml"
    with open(f"{STATE}/pipelines/all.yaml", encoding="utf-8") as file:
        text = file.read().replace("name: all\n", "name: later\nkey_of_a_later_release: 1\n")
    with open(later, "w", encoding="utf-8") as file:
        file.write(text)
    shutil.chown(later, "stager", "stager")
    replace_under_trainers("old", "newer", "--allow-downgrades")
    assert names_listed() == ["all"]
    assert re.search("later.yaml.*key_of_a_later_release", journal()), journal()
    replace_under_trainers("new", "older-again")
    with open(later, encoding="utf-8") as file:
        assert file.read() == text
    os.unlink(later)


def names_listed():
    reply = json.loads(run("stagerctl", "list", "--json"))
    pipelines = reply["pipelines"] if isinstance(reply, dict) else reply  # an array, up to 0.2.0
    return [pipeline["name"] for pipeline in pipelines]


def the_same_version_installs_again():
    install("new", "--reinstall")
    assert show("stagerd", "ActiveState") == ["active"]
    assert names_listed() == ["all"]


def metrics_are_served(pid):
    """By another process than that one; returns its pid."""
    wait_for(lambda: http("/readyz").startswith("HTTP/1.1 200 "), "stager-metrics is ready")
    now, = show("stagerd-metrics", "MainPID")
    assert now != pid
    return now


def metrics_are_served_once_they_are_started():
    assert (enabled("stagerd-metrics.service"), *show("stagerd-metrics", "ActiveState")) == ("disabled", "inactive")
    systemctl("enable", "--now", "stagerd-metrics")
    pid = metrics_are_served(None)
    install("new", "--reinstall")
    metrics_are_served(pid)


def an_upgrade_leaves_socket_activation_as_it_is():
    """Without stager-metrics: its question every ten seconds would start stagerd."""
    systemctl("disable", "--now", "stagerd-metrics", "stagerd.service")
    systemctl("enable", "--now", "stagerd.socket")
    install("new", "--reinstall")
    assert show("stagerd.socket", "ActiveState") == ["active"]
    assert (enabled("stagerd.service"), enabled("stagerd.socket")) == ("disabled", "enabled")
    assert show("stagerd", "ActiveState") == ["inactive"], journal("-n", "20")
    for trainer in [Trainer(user, "all", tag="") for user in USERS]:
        assert trainer.finish()["missing"] == 0
    assert show("stagerd", "ActiveState") == ["active"]
    systemctl("enable", "stagerd-metrics")


def a_removal_keeps_settings_and_pipelines():
    apt("remove", *PACKAGES)
    assert show("stagerd.socket", "ActiveState") == show("stagerd", "ActiveState") == ["inactive"]
    assert processes_of("stager") == [], processes_of("stager")
    assert not os.path.exists("/run/stager/attach.sock")
    assert settings().endswith("max_clients: 77\n")
    left = [path for path in files("/") - BEFORE if os.path.basename(path).startswith(("stager", "libstager"))]
    stated = ("etc/stager", "etc/systemd/system", "var/lib/stager", "var/lib/systemd/deb-systemd-")
    assert [path for path in left if not path.startswith(stated)] == [], left


def an_install_after_a_removal_has_them_again():
    install("new")
    assert settings().endswith("max_clients: 77\n")
    assert (enabled("stagerd.service"), enabled("stagerd.socket")) == ("disabled", "enabled")
    assert enabled("stagerd-metrics.service") == "enabled"
    assert names_listed() == ["all"]


def a_purge_leaves_state_and_user():
    apt("purge", *PACKAGES)
    assert processes_of("stager") == [], processes_of("stager")
    left = files("/") - BEFORE - USER_DATABASE
    assert left and {path for path in left if not f"{path}/".startswith(("var/lib/stager/", "home/"))} == set(), left
    assert not os.path.exists("/run/stager")
    run("getent", "passwd", "stager")


CASES = [
    an_install_starts_the_service_alone, trainers_continue_after_an_upgrade, trainers_continue_after_a_downgrade_and_another_upgrade,
    the_same_version_installs_again, metrics_are_served_once_they_are_started, an_upgrade_leaves_socket_activation_as_it_is,
    a_removal_keeps_settings_and_pipelines, an_install_after_a_removal_has_them_again, a_purge_leaves_state_and_user,
]

if __name__ == "__main__":
    boot_inside.TRAINER = f"{HERE}/trainer.py"
    boot_inside.CASES = CASES
    make_rows()
    BEFORE = files("/")
    sys.exit(boot_inside.main())
