# The recipes are names for cargo aliases; everything works without just.

# Arguments are passed on as they were typed, with their spaces and quotes.
set positional-arguments

[private]
default:
    @just --list

# A pool on this machine, in a minute
demo *ARGS:
    cargo demo "$@"

# Every test; arguments go to nextest
test *ARGS:
    cargo xtask test -- "$@"

# Formatting, lints, documentation, licences
check *ARGS:
    cargo xtask check "$@"

# What provisioning costs on this computer, in a minute after the build
bench:
    cargo xtask bench

# How many calls of AWS the modes take
bench-aws:
    cargo xtask bench aws

# Feed what ondeck reads, with inputs that reach ever more of it
fuzz *ARGS:
    cargo xtask fuzz "$@"

# AWS on loopback, to try the aws backend by hand
cloud *ARGS:
    cargo xtask cloud "$@"

# Whether the tests notice mistakes in core's rules; takes an hour
mutants *ARGS:
    cargo xtask mutants -- "$@"

# What the machines of a pool download: the agent for AWS, without the control plane
build-agent:
    cargo build --release --package ondeck --no-default-features --features aws,github,local
