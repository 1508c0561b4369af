#!/bin/sh
# Runs a command in frontend/ where Node.js is there and new enough; elsewhere says that the step is left out.
# usage: node.sh NAME COMMAND...
set -eu
name=$1
shift
if ! command -v npm >/dev/null 2>&1 ||
    ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(+a > 20 || (+a == 20 && +b >= 19) ? 0 : 1)'; then
    echo "Left out: $name. It needs Node.js 20.19 or newer with npm, which is not here (https://nodejs.org)." >&2
    exit 0
fi
cd "$(dirname "$0")/../frontend"
exec "$@"
