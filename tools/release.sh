#!/usr/bin/env bash
# Build both files, check them, and try each in empty environments: tools/release.sh [python ...]
# PYTHON builds, and needs the dependency group "release". Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."
root="$PWD"
builder="$(command -v "${PYTHON:-python3}")"
rm -rf dist
"$builder" -m build --outdir dist .
"$builder" -m twine check --strict dist/*
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
for python in "${@:-python3}"; do
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
