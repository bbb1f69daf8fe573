#!/usr/bin/env bash
# The whole paper from zero on a machine with GPUs: smoke.sh with the paper's sizes.
#
#   DATA=/data/H36M THREEDPW=/data/3DPW SMPL=/data/SMPL PHOTO=photo.jpg experiments/reproduce.sh
#
# Stage by stage: give the same command again after a stop, and it goes on where it was. TABLES="methods share" runs
# some tables only; ABLATE="--list" prints their commands for a cluster's scheduler instead.
set -euo pipefail

export PYTHON=${PYTHON-python}
export DI2POSE=${DI2POSE-"$PYTHON -m di2pose"}
export LAUNCH=${LAUNCH-"torchrun --nproc-per-node 8 -m di2pose"}
export WORK=${WORK-out/paper}
export DATA=${DATA?"Human3.6M as it was downloaded or processed; empty: stick figures, made here"}
export THREEDPW=${THREEDPW-} SMPL=${SMPL-}       # 3DPW and SMPL as they were downloaded; empty: not evaluated on
export ENCODER=${ENCODER-vitpose:usyd-community/vitpose-base-simple}
export RECIPE=${RECIPE-paper}
export DEVICE=${DEVICE-cuda}
export EVERY=${EVERY-5}
export TOKENIZER_ITERATIONS=${TOKENIZER_ITERATIONS-}
export DENOISER_ITERATIONS=${DENOISER_ITERATIONS-}
export WORKERS=${WORKERS-8}                      # processes of each rank that read and crop pictures for `features`
LOOKS="--no-second-look --no-flip-test"
export EVALUATE=${EVALUATE-"--hypotheses 1,8 $LOOKS"}   # one sample is the paper's Algorithm 2
export PHOTO=${PHOTO-photo.jpg}
export BOXES=${BOXES-}
export TABLES=${TABLES-"methods matrices share steps joint-shift levels block tokens aux"}
export SEEDS=${SEEDS-5}
export JOBS=${JOBS-1}                            # runs at a time: each has all GPUs
export TABLES_LAUNCH=${TABLES_LAUNCH-$LAUNCH} EVALUATE_TABLES=${EVALUATE_TABLES-$LOOKS}
export ABLATE=${ABLATE-"--hypotheses 1,8"}       # further flags of `di2pose ablate`

exec "$(dirname "$0")/smoke.sh"
