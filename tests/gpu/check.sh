#!/usr/bin/env bash
# Real models on one CUDA GPU, from files in the checkout, in under 8 minutes: prompting baselines on each benchmark;
# two updates with GRAFT, full and LoRA, through transformers and (where installed) colocated vLLM, each killed and
# resumed; evaluation of checkpoints; a table. Prints tokens/s, rows/s, seconds by stage and peak GPU memory, and ends
# with one line, PASS or FAIL.
#
#   bash tests/gpu/check.sh            needs CUDA
#   bash tests/gpu/check.sh --cpu      a shortened version on the CPU; --help tells the rest
#
# PYTHON names the interpreter of an environment with creditbench (default: python3).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export PYTHONPATH="$here/../..${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" "$here/check.py" "$@"
