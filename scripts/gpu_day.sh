#!/usr/bin/env bash
# Measures example models on a GPU, and on the CPUs beside it, when the machine is at hand for minutes only: what tells
# most comes first, what the time does not reach is named in the log, and what is done is kept when it is stopped.
# Needs PyTorch and the light install (see README); builds all models on the spot.
# Usage: scripts/gpu_day.sh [--budget 8m] [--device cuda|cpu] [--label h200] [--output FOLDER] [--quick]
#   --label   names the profiles;  --quick  a tiny model and a few seconds, to try the script itself
set -uo pipefail

budget=8m device=cuda label= output=gpu-day quick=
while [ $# -gt 0 ]; do
  case $1 in
  --budget) budget=$2 && shift ;;
  --device) device=$2 && shift ;;
  --label) label=$2 && shift ;;
  --output) output=$2 && shift ;;
  --quick) quick=yes ;;
  *) echo "gpu_day.sh: '$1' is no option; allowed: --budget 8m, --device cuda|cpu, --label NAME, --output FOLDER, --quick" >&2 && exit 2 ;;
  esac
  shift
done
case $device in cuda | cpu) ;; *) echo "gpu_day.sh: --device is '$device'; allowed: cuda or cpu" >&2 && exit 2 ;; esac
case $budget in
*[0-9]m) seconds=$((${budget%m} * 60)) ;;
*[0-9]s) seconds=${budget%s} ;;
*) echo "gpu_day.sh: --budget is '$budget'; allowed: a time such as 8m or 90s" >&2 && exit 2 ;;
esac
label=${label:-$device}
python=${PYTHON:-python3}
mkdir -p "$output" && output=$(cd "$output" && pwd) || exit 1
cd "$(dirname "$0")/.." || exit 1
export OPENBLAS_NUM_THREADS=1 # NumPy makes the inputs; threads of its own would only disturb
# A process that opened the GPU is closed by Ctrl-C like any other; only this script has to go on to the archive.
stopped=
trap 'stopped=yes' INT TERM
log=$output/log.txt
: >"$log"

say() { printf '%5d s  %s\n' "$SECONDS" "$*" | tee -a "$log" >&2; }
left() { echo $((seconds - SECONDS)); }

run() { # SECONDS NAME COMMAND...   runs it if so much time is left; it is interrupted when it takes twice as long
  local need=$1 name=$2 code
  shift 2
  if [ -n "$stopped" ] || [ "$(left)" -lt "$need" ]; then
    say "$name: left out, $(left) s of the budget are left and it takes $need s" && return 1
  fi
  say "$name"
  timeout --foreground -s INT -k 20 "$((2 * need + start_s))" "$@" >>"$log" 2>&1
  code=$?
  [ $code -eq 0 ] || say "$name: exit code $code$([ $code -eq 3 ] && echo ', measured, with doubts in the file')"
  [ $code -eq 0 ] || [ $code -eq 3 ]
}

profile() { # SECONDS NAME MODEL PRECISION BATCHES WHERE OPTIONS...
  local need=$1 name=$2 model=$3 precision=$4 batches=$5 where=$6
  shift 6
  run "$need" "profile $name" "$python" -m advisor profile "scripts.gpu_models:${model}_$precision" --device "$where" \
    --name "$(name_of "$model")" --id "$name" --output "$output/$name.json" --batches "$batches" \
    --budget "$((need - start_s))s" --repeats 3 --force --quiet "$@"
}

name_of() { # the name that scenarios ask for
  case $1 in bert_base_*) echo bert-base ;; decoder_*) echo gpt2-prefill ;; *) echo "$1" ;; esac
}

verify() { # SECONDS NAME
  [ -e "$output/$2.json" ] || { say "verify $2: left out, there is no profile" && return; }
  run "$1" "verify $2" "$python" -m advisor verify "$output/$2.json" --rates "$loads" --duration "$load_s"
}

batches=1,4,16,64,256 loads=0.3,0.5,0.7 load_s=4s
start_s=12 short=32 long=45 verifying=35 # seconds: to start a process and build a model, and for a step with that
[ -n "$quick" ] && batches=1,2 loads=0.5 load_s=1s start_s=8 short=13 long=24 verifying=15
record=()
[ "$device" = cuda ] && record=(--record-gpu "$output/nvml-$label.jsonl")
low=fp16
[ "$device" = cpu ] && low=fp32 # half precision is emulated on most CPUs

run 5 "doctor" "$python" -m advisor doctor --json
"$python" -c 'import torch; print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())' >>"$log" 2>&1
[ "$device" = cuda ] && nvidia-smi >>"$log" 2>&1

on_device() { # SECONDS NAME MODEL PRECISION BATCHES OPTIONS...   one replica on the device
  profile "$1" "$2" "$3" "$4" "$5" "$device" --replicas 1 --threads 1 "${@:6}" ${record[@]+"${record[@]}"}
  record=() # the card is recorded once: the file is for the replay device of the tests
}

if [ -n "$quick" ]; then
  on_device $short "tiny-fp32-$label-pytorch" tiny fp32 $batches
  verify $verifying "tiny-fp32-$label-pytorch"
  on_device $long "tiny-fp32-$label-pytorch-compiled" tiny fp32 $batches --compile
else
  on_device $short "resnet50-$low-$label-pytorch" resnet50 $low $batches
  verify $verifying "resnet50-$low-$label-pytorch"
  on_device $short "minilm-$low-s128-$label-pytorch" minilm $low $batches
  on_device $short "bert-base-$low-s128-$label-pytorch" bert_base_128 $low $batches
  verify $verifying "bert-base-$low-s128-$label-pytorch"
  if [ "$device" = cuda ]; then
    profile $short "resnet50-fp32-cpu-of-$label-pytorch" resnet50 fp32 1,4,16 cpu
    profile $short "minilm-fp32-s128-cpu-of-$label-pytorch" minilm fp32 1,4,16 cpu
    on_device $short "resnet50-fp32-$label-pytorch" resnet50 fp32 $batches
    on_device $short "bert-base-fp32-s128-$label-pytorch" bert_base_128 fp32 $batches
    on_device $short "minilm-fp32-s128-$label-pytorch" minilm fp32 $batches
  fi
  on_device $long "minilm-$low-s128-$label-pytorch-compiled" minilm $low $batches --compile
  on_device $long "resnet50-$low-$label-pytorch-compiled" resnet50 $low $batches --compile
  if [ "$device" = cuda ]; then
    on_device $short "bert-base-fp16-s384-$label-pytorch" bert_base_384 fp16 1,4,16,64
    on_device $short "gpt2-prefill-fp16-s128-$label-pytorch" decoder_128 fp16 1,4,16,64
    on_device $short "resnet50-bf16-$label-pytorch" resnet50 bf16 $batches
    on_device $short "bert-base-bf16-s128-$label-pytorch" bert_base_128 bf16 $batches
  fi
fi

say "$(find "$output" -name '*.json' | wc -l) profiles are there"
archive=$output.tar.gz
tar -czf "$archive" -C "$(dirname "$output")" "$(basename "$output")" && say "archive: $(basename "$archive")"
[ -n "$(find "$output" -name '*.json' -print -quit)" ]
