#!/bin/sh
# `keylane`, where HTTP listens for other machines, and a stack lives as long as its container.
case "$1" in
up | demo) set -- "$@" --foreground --http-host 0.0.0.0 ;;
server | serve) command=$1 && shift && set -- "$command" --host 0.0.0.0 --authorization tokens "$@" ;;
esac
exec keylane "$@"
