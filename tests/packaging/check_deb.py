#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: built in a clean root, read by lintian, installed, tried, removed and purged in a bare root. Then two
containers with systemd: in one they are installed, upgraded under trainers, removed and purged (upgrade_inside.py), in the other apt
installs them beside Prometheus and Chromium, which look at two trainers (operate_inside.py).

    check_deb.py [--codename NAME] [--root FOLDER] [--from COMMIT] [--screenshots FOLDER]
    check_deb.py --debs FOLDER [--screenshots FOLDER]

The folder of --root is a root of .ci/root to build in; without it a root is made. The upgrade begins with packages of COMMIT, or with
the same packages under a lower version. --debs: only the container with Prometheus and Chromium, with the packages of that folder.
--screenshots: the page goes there. Its last line is "N passed, N failed, N skipped". Skipped as a whole (77) where no clean root can
be made: without root, debootstrap, namespaces or an archive of Debian.
"""
import argparse
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(os.path.join(HERE, "../.."))
sys.path.insert(0, os.path.join(TOP, "tests/system"))

from container import SKIPPED, SLOW, Container, Skip  # noqa: E402
from upgrade_inside import PACKAGES, USER_DATABASE, files  # noqa: E402

UPGRADE_S = 180 * SLOW
ARCHIVES = "/srv/archives"  # of packages, for an apt without a network
PROTOCOL_6 = "0.3.0"  # the release from which streams continue


class Failed(Exception):
    """A case that failed, with the end of the output of its command."""


def check(condition, what):
    if not condition:
        raise Failed(what)


def run(*command):
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", check=False)
    check(result.returncode == 0, f"{command[0]} ended with {result.returncode}:\n{result.stdout[-6000:]}")
    return result.stdout


class Packages:
    def __init__(self, work, arguments):
        self.work, self.codename, self.old_commit = work, arguments.codename, arguments.commit
        self.build_root = arguments.root or os.path.join(work, "build-root")
        self.bare, self.operated = os.path.join(work, "bare-root"), os.path.join(work, "operated-root")
        self.new, self.old = arguments.debs or os.path.join(work, "new"), os.path.join(work, "old")
        self.screenshots = arguments.screenshots
        self.before = set()

    def inside(self, root, script, user="--as-root"):
        options = [user] if user else []
        return run(f"{TOP}/.ci/root", *options, self.codename, root, f"set -euo pipefail; export DEBIAN_FRONTEND=noninteractive\n{script}")

    def build(self, folder, *commit):
        run(f"{TOP}/packaging/deb/build", "--codename", self.codename, "--root", self.build_root, folder, *commit)
        debs = {os.path.basename(path).split("_")[0] for path in glob.glob(f"{folder}/*.deb")}
        check({name for name in debs if not name.endswith("-dbgsym")} == set(PACKAGES), f"packages: {sorted(debs)}")

    def debs(self, folder):
        return [glob.glob(f"{folder}/{name}_*.deb")[0] for name in PACKAGES]

    def install(self):
        self.inside(self.bare, "apt-get install -y -qq --no-install-recommends /tmp/debs/*.deb")

    def make_root(self, root):
        try:
            self.inside(root, "apt-get update -qq")
        except Failed as error:
            raise Skip(f"no clean root can be made: {error}") from None

    # ---- the cases, in order ----

    def the_packages_build_in_a_clean_root(self):
        self.build(self.new)

    def lintian_has_no_error_and_no_warning(self):
        said = self.inside(self.build_root, "apt-get install -y -qq --no-install-recommends lintian >/dev/null 2>&1\n"
                           "cd /tmp/packages && runuser -u builder -- lintian --fail-on error,warning *.changes")
        check(re.search(r"^[EW]: ", said, re.M) is None, said)

    def they_install_in_a_bare_root(self):
        self.inside(self.bare, "apt-get update -qq && mkdir /tmp/debs")
        for deb in self.debs(self.new):
            shutil.copy(deb, f"{self.bare}/tmp/debs")
        with open(f"{TOP}/packaging/deb/debian/tests/control", encoding="utf-8") as file:
            wanted = re.search(r"^Depends: @, (.*)$", file.read(), re.M).group(1).replace(",", "")
        # First what they depend on: the difference is theirs alone.
        self.inside(self.bare, f"""options='-y -qq --no-install-recommends'
apt-get install -s --no-install-recommends /tmp/debs/*.deb | sed -n 's/^Inst \\([^ ]*\\).*/\\1/p' | grep -Evx '{"|".join(PACKAGES)}' >/tmp/needed
apt-get install $options systemd {wanted} $(cat /tmp/needed)""")
        self.before = files(self.bare)
        self.install()
        check(self.inside(self.bare, f"dpkg --verify {' '.join(PACKAGES)}; getent passwd stager | cut -d : -f 6") == "/var/lib/stager\n",
              "dpkg --verify, or no user stager")
        conffiles = self.inside(self.bare, "dpkg-query -W -f '${Conffiles}\\n' " + " ".join(PACKAGES)).split()
        check(conffiles[::2] == ["/etc/stager/stagerd.yaml"], f"conffiles: {conffiles}")

    def batches_are_read_in_c_and_in_python(self):
        shutil.copy(f"{TOP}/packaging/deb/debian/tests/smoke", f"{self.bare}/tmp/smoke")
        self.inside(self.bare, "/tmp/smoke", user="")

    def a_removal_keeps_settings(self):
        path = f"{self.bare}/etc/stager/stagerd.yaml"
        with open(path, "a", encoding="utf-8") as file:
            file.write("# mine\n")
        self.inside(self.bare, f"apt-get remove -y -qq {' '.join(PACKAGES)}")
        self.install()
        with open(path, encoding="utf-8") as file:
            check(file.read().endswith("# mine\n"), "the settings are not those of before")

    def a_purge_leaves_nothing_but_the_user(self):
        self.inside(self.bare, f"apt-get purge -y -qq {' '.join(PACKAGES)}")
        left = files(self.bare) - self.before - USER_DATABASE
        check(left == set(), f"purge leaves {sorted(left)}")

    def lower_version(self):
        """Packs self.new under a lower version into self.old."""
        os.mkdir(self.old)
        self.inside(self.bare, r"""mkdir /tmp/old
for deb in /tmp/debs/*.deb; do
    dpkg-deb -R "$deb" /tmp/unpacked
    version=$(sed -n 's/^Version: //p' /tmp/unpacked/DEBIAN/control)
    sed -i "s/$version/$version~old/" /tmp/unpacked/DEBIAN/control
    dpkg-deb -b -Znone /tmp/unpacked /tmp/old
    rm -r /tmp/unpacked
done""")
        for deb in glob.glob(f"{self.bare}/tmp/old/*.deb"):
            shutil.copy(deb, self.old)

    def upgrade(self):
        """The output of the container; its last line counts."""
        if self.old_commit is None:
            self.lower_version()
        else:
            self.build(self.old, self.old_commit)
        released = re.search(r"/stagerd_([\d.]+)", self.debs(self.old)[-1]).group(1)
        mode = "goes-on" if [int(n) for n in released.split(".")] >= [int(n) for n in PROTOCOL_6.split(".")] else "reopens"
        with Container(self.bare) as container:
            self.give(container, {"old": self.old, "new": self.new}, "tests/packaging/upgrade_inside.py", "tests/packaging/trainer.py")
            status, said, log = container.boot(f"/usr/bin/python3 -u /run/boot/upgrade_inside.py {mode}", UPGRADE_S)
        return log if status == 0 else f"{log}{said}"

    def give(self, container, folders, *paths):
        """Copies packages and files of the tree to the container's /run/boot."""
        for name, folder in folders.items():
            os.mkdir(f"{container.out}/{name}")
            for deb in self.debs(folder):
                shutil.copy(deb, f"{container.out}/{name}")
        for path in ("tests/system/boot_inside.py", *paths):
            shutil.copy(f"{TOP}/{path}", container.out)

    def operate(self):
        """As upgrade(). The root has systemd and Python; apt in the container finds everything else that it installs in ARCHIVES."""
        self.make_root(self.operated)
        self.inside(self.operated, "apt-get install -y -qq --no-install-recommends dbus python3 systemd >/dev/null 2>&1\n"
                    f"mkdir -p {ARCHIVES}/partial /tmp/debs")
        for deb in self.debs(self.new):
            shutil.copy(deb, f"{self.operated}/tmp/debs")
        self.inside(self.operated, "apt-get install -d -y -qq --no-install-recommends -o APT::Sandbox::User=root "
                    f"-o Dir::Cache::Archives={ARCHIVES} /tmp/debs/*.deb prometheus chromium")
        with Container(self.operated) as container:
            self.give(container, {"new": self.new}, "tests/packaging/operate_inside.py", "tests/system/browser.py", "tests/system/daemon.py",
                      "examples/prometheus/prometheus.yml", "examples/prometheus/alerts.yml")
            status, said, log = container.boot("/usr/bin/python3 -u /run/boot/operate_inside.py", UPGRADE_S)
            for path in glob.glob(f"{container.out}/*.png") if self.screenshots else ():
                shutil.copy(path, self.screenshots)
        return log if status == 0 else f"{log}{said}"


CASES = ("the_packages_build_in_a_clean_root", "lintian_has_no_error_and_no_warning", "they_install_in_a_bare_root",
         "batches_are_read_in_c_and_in_python", "a_removal_keeps_settings", "a_purge_leaves_nothing_but_the_user")


def report(case):
    """Whether it passed."""
    begin = time.monotonic()
    try:
        case()
    except Failed as error:
        print(f"FAIL {case.__name__}: {error}")
        return False
    print(f"ok   {case.__name__} ({time.monotonic() - begin:.1f} s)")
    return True


def check_container(test):
    """[passed, failed, skipped]"""
    begin = time.monotonic()
    try:
        log = test()
    except Skip as why:
        print(f"skipped: {why}")
        return [0, 0, 1]
    except Failed as error:
        log = str(error)
    counts = re.search(r"^(\d+) passed, (\d+) failed, \d+ skipped$", log, re.M)
    print(re.sub(r"^\d+ passed.*\n?", "", log, flags=re.M).rstrip())
    print(f"     {test.__name__}: {time.monotonic() - begin:.1f} s")
    return [int(counts.group(1)), int(counts.group(2)), 0] if counts else [0, 1, 0]


def check_all(packages):
    for n, name in enumerate(CASES):
        if not report(getattr(packages, name)):
            return [n, len(CASES) - n, 0]
    counts = [[len(CASES), 0, 0], check_container(packages.upgrade), check_container(packages.operate)]
    return [sum(column) for column in zip(*counts)]


def tell(total):
    print("{} passed, {} failed, {} skipped".format(*total))
    return SKIPPED if total[0] + total[1] == 0 else int(total[1] > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codename", default="bookworm")
    parser.add_argument("--root")
    parser.add_argument("--from", dest="commit")
    parser.add_argument("--debs")
    parser.add_argument("--screenshots")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("skipped: no root or no debootstrap (apt-get install debootstrap): no clean root can be made")
        return tell([0, 0, 1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = tempfile.mkdtemp(prefix="stager-deb.", dir="/var/tmp")
    try:
        packages = Packages(work, arguments)
        if arguments.debs:
            return tell(check_container(packages.operate))
        packages.make_root(packages.build_root)
        return tell(check_all(packages))
    except Skip as why:
        print(f"skipped: {why}")
        return tell([0, 0, 1])
    finally:
        run("rm", "-rf", "--one-file-system", work)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main())
