#!/usr/bin/env bash
# Build both files, check them, list what they need, and try each in empty environments:
#   tools/release.sh [python ...]
# Without names, every Python that is allowed and found is tried; those not found are named.
# PYTHON builds, and needs the dependency group "release". Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."
root="$PWD"
builder="$(command -v "${PYTHON:-python3}")"
allowed=(python3.10 python3.11 python3.12 python3.13 python3.14)
found=() missing=()
for python in "${@:-${allowed[@]}}"; do
    if "$python" -c 'import venv, ensurepip' 2>/dev/null; then found+=("$python"); else missing+=("$python"); fi
done
if [ ${#found[@]} -eq 0 ]; then
    echo "none of ${missing[*]} was found" >&2
    exit 1
fi
rm -rf dist
"$builder" -m build --outdir dist .
"$builder" -m twine check --strict dist/*
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
for python in "${found[@]}"; do
    for file in "$root"/dist/*.whl "$root"/dist/*.tar.gz; do
        echo "== $python, $(basename "$file")"
        rm -rf "$scratch/env"
        "$python" -m venv "$scratch/env"
        "$scratch/env/bin/python" -m pip install --quiet --upgrade pip
        "$scratch/env/bin/python" -m pip install --quiet "$file[plot]"
        # Away from the repository, so that only what was installed can be imported.
        (cd "$scratch" && env/bin/tagstream --version && env/bin/tagstream demo)
    done
done
# What an installation brings with it, as a bill of materials.
mkdir -p build
"$builder" -m cyclonedx_py environment --output-reproducible --output-file build/sbom.json "$scratch/env/bin/python"
echo "tried: ${found[*]}; not found: ${missing[*]:-none}; bill of materials: build/sbom.json"
