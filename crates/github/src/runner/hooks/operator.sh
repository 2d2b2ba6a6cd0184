#!/bin/sh
# Runs the operator's hook, if there is one, in place of this process: that of the stage in $1, which
# is started or completed. Chooses the interpreter as the runner does.

here=${0%/*}
[ -r "$here/operator-$1" ] || exit 0
IFS= read -r hook <"$here/operator-$1"
case $hook in
*.ps1) exec pwsh -command ". '$hook'" ;;
*.sh) exec bash -e "$hook" ;;
*.js)
    IFS= read -r software <"$here/software"
    for node in "${ACTIONS_RUNNER_FORCED_INTERNAL_NODE_VERSION:-node20}" node20 node24; do
        node=$software/externals/$node/bin/node
        [ ! -x "$node" ] || exec "$node" "$hook"
    done
    echo "::error::the runner has no node to run the operator's hook: $hook"
    ;;
*) echo "::error::the operator's hook does not end in .sh, .ps1 or .js: $hook" ;;
esac
exit 1
