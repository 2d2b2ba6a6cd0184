//! How the modes wait and repeat: the one retry, the one poll, the batcher that joins concurrent
//! calls, and the signal to stop.

pub mod batcher;
pub mod poll;
pub mod retry;
pub mod stop;
