#!/bin/sh
# Checks what `make` cannot install itself, and names the package of each thing that is missing.
# usage: prerequisites.sh PYTHON
set -u
python=${1:-python3}
missing=0

family=other
if [ -r /etc/os-release ]; then
    case " $(. /etc/os-release && echo "${ID:-} ${ID_LIKE:-}") " in
        *" debian "*) family=debian ;;
        *" fedora "*) family=fedora ;;
    esac
fi
[ "$(uname -s)" = Darwin ] && family=darwin

lacks() { # what, Debian's package, Fedora's package, advice elsewhere
    missing=1
    case $family in
        debian) advice="apt-get install $2" ;;
        fedora) advice="dnf install $3" ;;
        darwin) advice="xcode-select --install" ;;
        *) advice=$4 ;;
    esac
    echo "Missing: $1. Install it with: $advice" >&2
}

if ! command -v "$python" >/dev/null 2>&1; then
    lacks "Python 3.10 or newer (there is no '$python')" "python3 python3-venv python3-dev" "python3 python3-devel" \
        "your package manager, then name it: make PYTHON=/path/to/python3"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "Missing: Python 3.10 or newer ('$python' is $("$python" -V 2>&1))." \
        "Name a newer one: make PYTHON=/path/to/python3" >&2
    missing=1
else
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        lacks "the venv module of $version" "$version-venv" "python3-pip" "your package manager"
    fi
    # torch.compile compiles C++ against these on the CPU.
    if ! "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'; then
        lacks "the headers of $version (Python.h)" "$version-dev" "python3-devel" "the development package of $version"
    fi
fi

cxx=${CXX:-g++}
[ -z "${CXX:-}" ] && [ "$family" = darwin ] && cxx=clang++
if ! command -v "${cxx%% *}" >/dev/null 2>&1; then
    lacks "a C++ compiler ('$cxx'), which torch.compile needs on the CPU" "g++" "gcc-c++" "your package manager"
fi

exit $missing
