#!/bin/sh
# The comparisons with other programs, about 15 minutes on two CPU cores: `make benchmark`.
#
#   sh benchmarks/run.sh [FOLDER]
#
# FOLDER has train, val and test, each as .en and .de (or .gz); default: the corpus that ships with
# nmtdeep, whose val is dev. It is preprocessed, 6+6 layers are trained briefly, and training.py and
# decoding.py run one after the other. On a GPU: benchmarks/gpu/measure.py.
set -eux

python=${PYTHON:-python}
shipped=$("$python" -c "import nmtdeep.demo as demo; print(*demo.__path__)")/corpus
corpus=${1:-$shipped}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
valid=$corpus/val
[ "$corpus" = "$shipped" ] && valid=$corpus/dev
shape="depth: 6, heads: 4, feed_forward: 1024, residual: post_norm"
# A model that has learned little rarely ends a sentence.
limits="beam: 1, max_length_factor: 1.2, max_length_constant: 10"

"$python" -m nmtdeep preprocess multi30k-en-de text.bpe.merges=8000 \
  --train "$corpus/train" --valid "$valid" --out "$work/data"
"$python" -m nmtdeep train multi30k-en-de text.bpe.merges=8000 model.width=256 \
  "model.encoder={$shape}" "model.decoder={$shape}" \
  "model.dropout={embedding: 0.1, residual: 0.1}" \
  "training.batches={tokens_per_update: 4096, group_tokens: 4096}" \
  "training.schedule={type: inverse_square_root, lr: 1e-3, warmup_updates: 100}" \
  "training.validation={every: 200, bleu: false, best_by: loss}" \
  "training.checkpoints={every: 200, average_last: 0}" \
  "decoding={$limits}" \
  --max-updates 200 --no-final-scores --data "$work/data" --out "$work/run"
"$python" benchmarks/training.py --data "$work/data" --repeats 3 --updates 2
set -- "$corpus"/test*  # the target, then the source
"$python" benchmarks/decoding.py --model "$work/run" --repeats 3 --lines 500 \
  --input "$2" --references "$1"
