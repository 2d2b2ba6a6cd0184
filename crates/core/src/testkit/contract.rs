//! The suites that every store and every pool must pass.
