# The recipes are names for cargo commands; everything works without just.

# Pass arguments on with their spaces and quotes.
set positional-arguments

[private]
default:
    @just --list

# Play the life of a pool on this computer
demo *ARGS:
    cargo demo "$@"

# Run all tests; arguments go to nextest
test *ARGS:
    cargo xtask test -- "$@"

# Check formatting, lints, documents, licences, workflows, infrastructure
check *ARGS:
    cargo xtask check "$@"

# Check the links of all documents and build the book
docs:
    cargo xtask docs

# Make and try what a release consists of
release-dry-run *ARGS:
    cargo xtask release --dry-run "$@"

# Measure provision and release on this computer
bench:
    cargo xtask bench

# Count the calls of AWS and the units of DynamoDB that each mode takes
bench-aws:
    cargo xtask bench aws

# Fuzz the parsers
fuzz *ARGS:
    cargo xtask fuzz "$@"

# Run AWS on loopback, to try the aws backend by hand
cloud *ARGS:
    cargo xtask cloud "$@"

# Boot a virtual machine, and play the life of a machine of the pool on it
vm:
    cargo xtask vm

# Run mutation tests of core; takes an hour
mutants *ARGS:
    cargo xtask mutants -- "$@"

# Build what machines of a pool download: the agent for AWS, without the control plane
build-agent:
    CARGO_PROFILE_RELEASE_OPT_LEVEL=z cargo build --release --package ondeck --no-default-features --features aws,github,local
