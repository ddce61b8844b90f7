#!/usr/bin/env bash
# Makes sure that Spark will find Java 17 or newer, where Spark itself looks: JAVA_HOME, then the PATH.
# Installs Debian's package when run as root on Debian; else says in one sentence what to do.
set -euo pipefail

needed=17

# "17.0.15" -> 17, and the old spelling "1.8.0_292" -> 8.
major_version() {
    "$1" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

is_new_enough() {
    local version
    version=$(major_version "$1" || true)
    [ -n "$version" ] && [ "$version" -ge "$needed" ]
}

fail() {
    echo "$*" >&2
    exit 1
}

install_from_debian() {
    export DEBIAN_FRONTEND=noninteractive
    local package
    # Slim images have no manual pages, and the package's set-up stumbles over the missing directory.
    mkdir -p /usr/share/man/man1
    apt-get update -qq || true
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
        echo "Installing $package ..."
        if apt-get install -y -qq --no-install-recommends "$package" >/dev/null &&
            is_new_enough java; then
            return
        fi
    done
    fail "Java $needed or newer is needed and apt-get could not install openjdk-17-jre-headless."
}

if [ -n "${JAVA_HOME:-}" ]; then
    is_new_enough "$JAVA_HOME/bin/java" ||
        fail "JAVA_HOME ($JAVA_HOME) holds no Java $needed or newer: point it at one, or unset it."
elif command -v java >/dev/null && is_new_enough java; then
    :
elif [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && command -v apt-get >/dev/null; then
    install_from_debian
else
    fail "Java $needed or newer is needed: install it (Debian: openjdk-17-jre-headless), or set JAVA_HOME."
fi
