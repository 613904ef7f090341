#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A trainer with the installed Python package, for upgrade_inside.py: takes a pipeline with a feature `id` to its end, and counts.
If stagerd ends and the stream with it, it opens again and restarts its count.

    trainer.py PIPELINE ROWS [HOLD [TAG [CLIENT]]]

After HOLD batches it commits its state under TAG, as CLIENT, prints "held" and waits for a line on standard input. Its last line:
rows N missing N reopened N reconnects N
"""
import sys
import time

import stager

REOPEN_S = 30


def hold(stream, tag):
    if tag:
        stream.commit(stream.state_dict(), tag)
    print("held", flush=True)
    sys.stdin.readline()


def train(name, batches_before_hold, tag, client):
    """Returns (ids, reconnects); None instead if stagerd has ended."""
    ids = []
    try:
        with stager.open(name, client_id=client or None, resume="start") as stream:
            for n, batch in enumerate(stream, 1):
                ids += batch["id"].tolist()
                if n == batches_before_hold:
                    hold(stream, tag)
            return ids, stream.info.get("reconnects", 0)
    except (stager.UnavailableError, stager.FailedPreconditionError) as error:
        if isinstance(error, stager.FailedPreconditionError) and not ids:
            raise  # a stagerd without protocol 6 ends streams that have begun
        print(error, flush=True)
        return None


def main(name, n_rows, batches_before_hold="0", tag="", client=""):
    reopened, end = 0, time.monotonic() + REOPEN_S
    result = train(name, int(batches_before_hold), tag, client)
    while result is None and time.monotonic() < end:
        reopened = 1
        time.sleep(0.02)
        result = train(name, 0, tag, client)
    ids, reconnects = result
    print(f"rows {len(ids)} missing {len(set(range(int(n_rows))) - set(ids))} reopened {reopened} reconnects {reconnects}")


if __name__ == "__main__":
    main(*sys.argv[1:])
