#!/bin/bash
cd "$(dirname "$0")" || exit 1
echo "$PATH" >.path
if [ "$1" = remove ]; then
    ./bin/Runner.Listener "$@"
else
    ./bin/Runner.Listener configure "$@"
fi
