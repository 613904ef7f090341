# SPDX-License-Identifier: Apache-2.0
"""What the checks of packages share: commands, and cases that run in order until one fails."""
import subprocess


def run(*command):
    """Runs a command; returns what it printed. Raises AssertionError with the end of that if it fails."""
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", check=False)
    if result.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {result.returncode}:\n{result.stdout[-6000:]}")
    return result.stdout


def run_cases(cases):
    """Runs (name, case) in order; a case fails by AssertionError, and those after it are skipped. Prints a line for each, and the
    counts; returns the exit status."""
    passed = 0
    for name, case in cases:
        try:
            case()
        except AssertionError as error:
            print(f"FAIL {name}: {error}", flush=True)
            break
        print(f"ok   {name}", flush=True)
        passed += 1
    failed = int(passed < len(cases))
    print(f"{passed} passed, {failed} failed, {len(cases) - passed - failed} skipped")
    return failed
