//! Wake-ups: a message in a queue of the machine's own tells its agent to look at its record.
//!
//! The message says nothing: the record is the only truth, so a message that is lost, late, repeated or
//! forged costs at most a look. It is not deleted either. Received once, it stays hidden until SQS drops
//! it for its age. See `docs/adr/0040-wake-ups.md`.
//!
//! Only a machine that AWS vouches for has a queue: IAM ties the queue to the machine by a tag.

mod listener;
mod orphans;
mod sender;

pub(crate) use listener::Listener;
pub(crate) use orphans::{list as list_queues, prune};
pub(crate) use sender::Sender;
