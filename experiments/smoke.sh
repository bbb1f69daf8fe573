#!/usr/bin/env bash
# The paper's whole road by the README's commands: prepare, features, tokenizer, denoiser, evaluate, predict; then the
# tables of its ablations and comparisons, and the ledger.
#
#   experiments/smoke.sh      stick figures in Human3.6M's layout, a ViTPose with random weights: minutes on 2 cores
#
# The same road with the real data is a matter of settings alone, empty iterations being the recipe's own epochs:
# reproduce.sh is these settings.
#
# Give the same command again after a stop: every step goes on where it was, and skips what is done.
set -euo pipefail

PYTHON=${PYTHON-python}
DI2POSE=${DI2POSE-"$PYTHON -m di2pose"}
LAUNCH=${LAUNCH-$DI2POSE}                       # starts features, training, evaluation: torchrun on several GPUs
WORK=${WORK-out/smoke}                          # everything is written below this folder
DATA=${DATA-}                                   # Human3.6M as it was downloaded or processed; empty: made here
EVERY=${EVERY-1}                                # keep every n-th frame of it
THREEDPW=${THREEDPW-}                           # 3DPW as it was downloaded, to be evaluated on, too; empty: it is not
SMPL=${SMPL-}                                   # the SMPL files that its 14 joints need
ENCODER=${ENCODER-}                             # vitpose:FOLDER-OR-HUB-NAME; empty: a small random one, made here
RECIPE=${RECIPE-tiny}                           # tiny has the paper's form; paper has its sizes
DEVICE=${DEVICE-cpu}
WORKERS=${WORKERS-0}                            # processes that read and crop pictures beside the encoder
TOKENIZER_ITERATIONS=${TOKENIZER_ITERATIONS-150}
DENOISER_ITERATIONS=${DENOISER_ITERATIONS-60}
PROTOCOLS=${PROTOCOLS-h36m-p1,h36m-p2,advocc-40}
# One record a clip, the paper's one look at it.
EVALUATE=${EVALUATE-"--every 1000 --hypotheses 1 --steps 4 --no-second-look --no-flip-test --batch 32"}
EVALUATE_TABLES=${EVALUATE_TABLES-"--every 1000 --no-second-look --no-flip-test --batch 32"}
PHOTO=${PHOTO-$WORK/photo.jpg}
BOXES=${BOXES-$WORK/boxes.json}                 # where people are in the photo; empty: the detector looks
TABLES=${TABLES-"methods matrices share steps joint-shift levels block"}   # of `di2pose ablate`
SEEDS=${SEEDS-1}
JOBS=${JOBS-2}                                  # runs at a time
ABLATE=${ABLATE-"--iterations 3 --hypotheses 2,4"}                         # further flags; --list only prints commands
export OMP_NUM_THREADS=${OMP_NUM_THREADS-1}     # CPU threads of a process: for networks this small more only wait

run() { printf '\n+'; printf ' %q' "$@"; printf '\n'; "$@"; }

if [[ -z $DATA || -z $ENCODER ]]; then
  run $PYTHON "$(dirname "$0")/make_smoke_data.py" "$WORK"
fi
DATA=${DATA:-$WORK/H36M}
ENCODER=${ENCODER:-vitpose:$WORK/vitpose}

run $DI2POSE data prepare h36m --src "$DATA" --every "$EVERY" --out "$WORK/prepared/h36m"
run $LAUNCH features "$WORK/prepared/h36m" --encoder "$ENCODER" --device "$DEVICE" --workers "$WORKERS" \
  --out "$WORK/features/h36m"
run $LAUNCH train tokenizer --recipe "$RECIPE" --data "$WORK/prepared/h36m" --device "$DEVICE" \
  ${TOKENIZER_ITERATIONS:+--iterations "$TOKENIZER_ITERATIONS"} --out "$WORK/runs/tokenizer"
run $LAUNCH train denoiser --recipe "$RECIPE" --tokenizer "$WORK/runs/tokenizer" --features "$WORK/features/h36m" \
  --device "$DEVICE" ${DENOISER_ITERATIONS:+--iterations "$DENOISER_ITERATIONS"} --out "$WORK/runs/denoiser"
run $LAUNCH evaluate "$WORK/runs/denoiser" --data "$WORK/prepared/h36m" --protocol "$PROTOCOLS" --true-boxes $EVALUATE \
  --device "$DEVICE" --out "$WORK/evaluation"
if [[ -n $THREEDPW ]]; then
  run $DI2POSE data prepare 3dpw --src "$THREEDPW" --smpl "$SMPL" --out "$WORK/prepared/3dpw"
  run $LAUNCH evaluate "$WORK/runs/denoiser" --data "$WORK/prepared/3dpw" \
    --protocol 3dpw-14,3dpw-occ,advocc-40,advocc-80 --true-boxes $EVALUATE --device "$DEVICE" --out "$WORK/evaluation-3dpw"
fi
run $DI2POSE predict "$PHOTO" --model "$WORK/runs/denoiser/model" ${BOXES:+--boxes "$BOXES"} --device "$DEVICE" \
  --out "$WORK/prediction"

# What all tables measure on: the cached test crops of Human3.6M, and for the methods the pictures of 3DPW.
mkdir -p "$WORK/results"
for table in $TABLES; do
  tests=("h36m=$WORK/features/h36m@h36m-p1,h36m-p2")
  if [[ $table == methods && -n $THREEDPW ]]; then
    tests+=("3dpw=$WORK/prepared/3dpw@3dpw-14,3dpw-occ,advocc-40,advocc-80")
  fi
  run $DI2POSE ablate "$table" --recipe "$RECIPE" --features "$WORK/features/h36m" --data "$WORK/prepared/h36m" \
    --test "${tests[@]}" --seeds "$SEEDS" --jobs "$JOBS" --device "$DEVICE" ${TABLES_LAUNCH:+--launch "$TABLES_LAUNCH"} \
    --evaluate="--true-boxes $EVALUATE_TABLES" --out "$WORK/ablate" $ABLATE
  if [[ -f $WORK/ablate/$table.json ]]; then cp "$WORK/ablate/$table.json" "$WORK/results/"; fi
done
run $DI2POSE ledger --results "$WORK/results" --out "$WORK/ledger.md"
