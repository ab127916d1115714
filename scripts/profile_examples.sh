#!/usr/bin/env bash
# Measures the example models the way the profiles in profiles/ were measured: 50 minutes on a machine that does nothing
# else. Usage, in the project's virtual environment:
#   scripts/profile_examples.sh MICROARCHITECTURE FOLDER [MODEL-PRECISION ...]     such as zen1 measured minilm-int8
# Models and profiles go to FOLDER; without a choice all are measured.
set -euo pipefail
microarchitecture=$1 folder=$(realpath "$2")
shift 2
cd "$(dirname "$0")/.."
export OPENBLAS_NUM_THREADS=1 # NumPy makes the inputs; threads of its own would only disturb

measure() { # MODEL PRECISION BATCH-SIZES BUDGET ID
  local model=$1 precision=$2 batch_sizes=$3 budget=$4 id=$5
  local onnx=$folder/$model-$precision.onnx
  [ -e "$onnx" ] || python -m advisor example-model "$model" "$onnx" --precision "$precision"
  python -m advisor profile "$onnx" --output "$folder/$id.json" --name "$model" --id "$id" --batches "$batch_sizes" \
    --budget "$budget" --wait-quiet 1m --quiet || [ $? -eq 3 ] # 3: measured, and the file says what to doubt
}

for choice in ${*:-minilm-fp32 resnet50-fp32 mlp-fp32 minilm-int8 resnet50-int8 mlp-int8 bert-base-fp32 bert-base-int8}; do
  precision=${choice##*-} model=${choice%-*}
  case $model in
  mlp) batch_sizes=1,2,4,8,16,32 budget=2m shape= ;;
  minilm) batch_sizes=1,2,4,8,16 budget=8m shape=-s128 ;;
  resnet50) batch_sizes=1,2,4,8 budget=8m shape= ;;
  bert-base) batch_sizes=1,2 budget=6m shape=-s128 ;;
  *) echo "No example model '$model'." >&2 && exit 2 ;;
  esac
  measure "$model" "$precision" "$batch_sizes" "$budget" "$model-$precision$shape-$microarchitecture-onnxruntime"
done
