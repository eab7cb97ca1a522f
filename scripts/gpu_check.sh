#!/usr/bin/env bash
# Runs the whole catalogue and the tests that need CUDA on this machine, as it is: no network,
# nothing installed. Leaves one archive and ends with a short table.
#
#   scripts/gpu_check.sh [--budget 8m] [any other option of `python -m bench run`]
#
# Environment: PYTHON  the interpreter (python3)
#              WHEELS  a folder of wheels, for packages that the interpreter lacks
#              OUT     where the archive is put (this folder)
#
# Ends with 0 when nothing failed, 1 when a row or a test failed, 2 when nothing could be measured.
set -euo pipefail

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
}

budget=8m
more=()
while (($#)); do
    case $1 in
        --budget)
            budget=${2:?--budget needs a time, such as 8m}
            shift 2
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            more+=("$1")
            shift
            ;;
    esac
done

python=${PYTHON:-python3}
out=$(mkdir -p "${OUT:-.}" && cd "${OUT:-.}" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
run=$work/run
archive=$out/gpu-check-$(date -u +%Y-%m-%dT%H-%M-%SZ).tar.gz

# However this ends, what was measured until then is kept.
pack() {
    [[ ! -d $run ]] || tar -czf "$archive" -C "$work" run
}
trap 'pack; rm -rf "$work"' EXIT

if [[ -n ${WHEELS:-} ]]; then
    # A wheel is an archive of what lies in site-packages, so this needs no installer.
    for wheel in "$WHEELS"/*.whl; do
        "$python" -m zipfile -e "$wheel" "$work/packages"
    done
    export PYTHONPATH="$work/packages${PYTHONPATH:+:$PYTHONPATH}"
fi
cd "$root"

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "$python is missing or older than 3.11. Name another one: PYTHON=python3.12 $0" >&2
    exit 2
fi
missing=$("$python" - <<'EOF'
import importlib.metadata
import re
import tomllib

with open("pyproject.toml", "rb") as file:
    needed = tomllib.load(file)["project"]["dependencies"]
found = {
    re.sub(r"[-_.]+", "-", package.name).lower(): package.version
    for package in importlib.metadata.distributions()
}
lacking = []
for requirement in needed:
    name = re.match(r"[\w.-]+", requirement)[0]
    if name.lower() not in found:
        lacking.append(name)
    elif "packaging" in found and (version := found[name.lower()]):
        from packaging.requirements import Requirement

        if not Requirement(requirement).specifier.contains(version, prereleases=True):
            lacking.append(f"{requirement} (it has {version})")
print(*lacking, sep=", ")
EOF
)
if [[ -n $missing ]]; then
    echo "$python lacks what the suite needs: $missing." >&2
    echo "Put their wheels into a folder (without scikit-image and scikit-learn there are no images) and name it: WHEELS=DIR $0" >&2
    exit 2
fi

"$python" - <<'EOF' || exit 2
import sys
import torch

if not torch.cuda.is_available():
    sys.exit(
        f"torch {torch.__version__} finds no CUDA device, so there is nothing to check here.\n"
        "Look at nvidia-smi; a torch for the CPU alone has no torch.version.cuda."
    )
EOF

failed=0
"$python" -m bench run --budget "$budget" "${more[@]}" --out "$run" || failed=1
if [[ -d $run && ! -e $run/effects.csv ]]; then
    "$python" -m bench report "$run" || failed=1
fi
if [[ ! -e $run/effects.csv ]]; then
    echo "The run ended before there was a result." >&2
    exit 2
fi
# Already now, and once more with the tests: whoever kills this before it ends has the run.
pack
mapfile -t with_cuda < <(grep -l 'pytest.mark.cuda' tests/test_*.py)
"$python" -m pytest -p no:cacheprovider -m cuda -q "${with_cuda[@]}" 2>&1 |
    tee "$run/cuda-tests.txt" || tests=$?
# 5: no test is marked cuda.
if ((${tests:-0} != 0 && ${tests:-0} != 5)); then
    failed=1
fi

echo
"$python" - "$run/effects.csv" <<'EOF'
import csv
import sys

with open(sys.argv[1], encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
for row in rows:
    if row["is_primary"] != "True" or row["is_recommended"] != "True":
        continue
    effect = ""
    if row["effect"]:
        effect = "{:.3f} [{:.3f}, {:.3f}]".format(
            *(float(row[name] or "nan") for name in ("effect", "ci_low", "ci_high"))
        )
    print(f"{row['tip']:22}  {row['variant'][:30]:30}  {effect:22}  {row['verdict']}")
failures = {(row["tip"], row["variant"], row["reason"]) for row in rows if row["verdict"] == "failed"}
for tip, variant, reason in sorted(failures):
    print(f"FAILED {tip}, {variant}: {reason}")
EOF
echo
tail -n 1 "$run/cuda-tests.txt"
echo "$archive"
exit "$failed"
