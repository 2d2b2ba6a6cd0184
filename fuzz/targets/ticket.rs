//! Messages of the pool.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ondeck_core::model::ticket::Ticket;
use ondeck_fuzz::assert_readable;

fuzz_target!(|text: &str| {
    match Ticket::from_json(text) {
        Ok(ticket) => assert_eq!(Ticket::from_json(&ticket.to_json()), Ok(ticket)),
        Err(malformed) => assert_readable(&malformed.to_string()),
    }
});
