//! Properties of the model and of the runtime, checked over generated inputs.

mod patterns;
mod persistence;
mod records;
mod settings;
mod strategies;
mod tickets;
mod timing;
mod transitions;
