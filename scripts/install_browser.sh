#!/bin/sh
# Installs Chromium and its driver for the browser tests where that needs no decision of yours: as root on Debian
# or Ubuntu. Elsewhere says what to do; the browser tests are then skipped.
set -u
have() { command -v "$1" >/dev/null 2>&1; }
install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" chromium-driver >/dev/null; }

for browser in chromium-headless-shell chromium chromium-browser google-chrome; do
    if have $browser && have chromedriver; then
        exit 0
    fi
done
if [ "$(id -u)" = 0 ] && have apt-get; then
    echo "Installing Chromium and its driver with apt-get ..."
    # The shell is Chromium without windows, which costs less time. Not every distribution has it.
    if apt-get update -qq && { install chromium-headless-shell 2>/dev/null || install chromium; }; then
        exit 0
    fi
    echo "apt-get could not install them: the browser tests will be skipped." >&2
    exit 0
fi
echo "Browser tests will be skipped: there is no Chromium with chromedriver. To run them too, install both" >&2
echo "(Debian: apt-get install chromium chromium-driver; elsewhere: your package manager)." >&2
exit 0
