#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Steps of a Slurm job: a stagerd on each host, and what runs beside it.
#
#     srun --overlap --ntasks-per-node=1 ... step.sh stagerd [PIPELINE.yaml...]
#     srun --overlap ... step.sh COMMAND...
#
# The first applies the pipelines, and runs until its input ends: srun answers signals with SIGKILL. The second waits for it.
set -eu
[ $# -gt 0 ] || { sed -n 3,8p "$0"; exit 2; }
export STAGER_FOLDER=${TMPDIR:-/tmp}/stager-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-$SLURMD_NODENAME
if [ "$1" = stagerd ]; then
    shift
    # shellcheck disable=SC2016 # for the shell that host.sh starts
    exec "$(dirname "$0")/host.sh" bash -euc 'for file; do stagerctl apply "$file"; done; touch "$STAGER_FOLDER/ready"; cat > /dev/null' - "$@"
fi
until [ -e "$STAGER_FOLDER/ready" ]; do
    sleep 0.1
done
export STAGER_RUNTIME_DIR=$STAGER_FOLDER/run
exec "$@"
