#!/bin/bash
# Like the real one, it checks for libicu before anything else, even if the runner does not need it.
if [ -e @GITHUB@/faults/no-icu ]; then
    echo "Libicu's dependencies is missing for Dotnet Core 6.0"
    exit 1
fi
cd "$(dirname "$0")" || exit 1
echo "$PATH" >.path
if [ "$1" = remove ]; then
    ./bin/Runner.Listener "$@"
else
    ./bin/Runner.Listener configure "$@"
fi
