#!/usr/bin/env bash
# The whole paper from zero on a machine with GPUs: smoke.sh with the paper's sizes, then every table of its
# ablations and comparisons, then the ledger.
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
EVALUATE=${EVALUATE-"--no-second-look --no-flip-test"}
HYPOTHESES=${HYPOTHESES-1,8}                     # one sample is the paper's Algorithm 2
export PHOTO=${PHOTO-photo.jpg}
export BOXES=${BOXES-}
TABLES=${TABLES-"methods joint-shift levels occlude steps block tokens aux share"}
SEEDS=${SEEDS-3}
JOBS=${JOBS-1}                                   # runs at a time: each has all GPUs
ABLATE=${ABLATE-}                                # further flags of `di2pose ablate`

EVALUATE="--hypotheses $HYPOTHESES $EVALUATE" "$(dirname "$0")/smoke.sh"

# What all tables measure on: the cached test crops of Human3.6M, and for the methods the pictures of 3DPW.
h36m="h36m=$WORK/features/h36m@h36m-p1,h36m-p2"
mkdir -p "$WORK/results"
for table in $TABLES; do
  tests=("$h36m")
  if [[ $table == methods && -n $THREEDPW ]]; then
    tests+=("3dpw=$WORK/prepared/3dpw@3dpw-14,3dpw-occ,advocc-40,advocc-80")
  fi
  printf '\n+ %s\n' "di2pose ablate $table"
  $DI2POSE ablate "$table" --recipe "$RECIPE" --features "$WORK/features/h36m" --data "$WORK/prepared/h36m" \
    --test "${tests[@]}" --seeds "$SEEDS" --jobs "$JOBS" --device "$DEVICE" --launch "$LAUNCH" \
    --hypotheses "$HYPOTHESES" --evaluate="--true-boxes $EVALUATE" --out "$WORK/ablate" $ABLATE
  if [[ -f $WORK/ablate/$table.json ]]; then cp "$WORK/ablate/$table.json" "$WORK/results/"; fi
done
$DI2POSE ledger --results "$WORK/results" --out "$WORK/ledger.md"
