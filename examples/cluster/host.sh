#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs on each host: a stagerd of its own, the command, and the end of that stagerd.
#
#     host.sh COMMAND...
#     host.sh torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=HOST0:29400 train.py '/data/*.csv'
set -eu
[ $# -gt 0 ] || { sed -n 3,7p "$0"; exit 2; }
if [ -n "${STAGER_FOLDER:-}" ]; then # a new one
    folder=$STAGER_FOLDER
    mkdir -m 700 "$folder"
else
    folder=$(mktemp -d "${TMPDIR:-/tmp}/stager.XXXXXX")
fi
export STAGER_RUNTIME_DIR=$folder/run
mkdir "$STAGER_RUNTIME_DIR" "$folder/state"
cat > "$folder/stagerd.yaml" <<END
runtime_dir: $STAGER_RUNTIME_DIR
state_dir: $folder/state
memory_budget: ${STAGER_MEMORY:-4GiB}
END
stagerd --config "$folder/stagerd.yaml" &
daemon=$!
trap 'kill "$daemon" 2>/dev/null || true; wait "$daemon" || true; rm -rf "$folder"' EXIT
until [ -S "$STAGER_RUNTIME_DIR/attach.sock" ]; do
    kill -0 "$daemon" || exit 1
    sleep 0.1
done
"$@"
