//! The queues of tickets, as a simulated process reaches them.

use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::ports::{Depth, Pool, PortResult, Receipt, ReceivedMessage};

use super::{ProcessPorts, named};
use crate::faults::Fault;
use crate::world::{World, at_once};

/// How many messages of a queue may be equal before none of them is delivered twice.
const MOST_COPIES: usize = 4;

#[async_trait]
impl Pool for ProcessPorts {
    async fn set_up(&self, classes: &[ResourceClass]) -> PortResult<()> {
        let classes = classes.to_vec();
        self.ask("pool", "set up pool", String::new, move |w| at_once(w.pool.set_up(&classes)))
            .await
    }

    async fn receive(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        let is_missed = self.injects(Fault::FalselyEmpty);
        self.take(class, max, hold, is_missed).await
    }

    async fn receive_thoroughly(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        self.take(class, max, hold, false).await
    }

    async fn extend(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        hold: Duration,
    ) -> PortResult<()> {
        let (class, receipts) = (class.clone(), receipts.to_vec());
        let extend = move |w: &World| at_once(w.pool.extend(&class, &receipts, hold));
        self.ask("pool", "extend", String::new, extend).await
    }

    async fn put_back(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        let (class, receipts, shown) = (class.clone(), receipts.to_vec(), receipts.to_vec());
        let put_back = move |w: &World| at_once(w.pool.put_back(&class, &receipts));
        self.ask("pool", "put back", move || format!("{shown:?}"), put_back).await
    }

    async fn delete(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        let (class, receipts, shown) = (class.clone(), receipts.to_vec(), receipts.to_vec());
        let by = self.pid;
        let delete = move |w: &World| {
            let now = w.kernel.true_time();
            w.audit().note_deleted(by, receipts.len());
            w.audit().touches_tickets(class.as_str(), now);
            for (body, others) in w.pool.would_delete(&class, &receipts) {
                if let Ok(ticket) = Ticket::from_json(&body) {
                    w.audit().deletes(&ticket, others, now);
                }
            }
            at_once(w.pool.delete(&class, &receipts))
        };
        self.ask("pool", "delete", move || format!("{shown:?}"), delete).await
    }

    async fn send(&self, tickets: &[Ticket], delay: Duration) -> PortResult<()> {
        let (tickets, shown) = (tickets.to_vec(), tickets.to_vec());
        let by = self.pid;
        let send = move |w: &World| {
            for ticket in &tickets {
                w.audit().note_announced(by, &ticket.instance_id);
                let class = ticket.spec.resource_class.as_str();
                w.audit().touches_tickets(class, w.kernel.true_time());
                let machine = w.machines().view(&ticket.instance_id);
                w.audit().announced(ticket, machine.as_ref(), w.kernel.true_time());
            }
            let sent = at_once(w.pool.send(&tickets, delay));
            w.audit().few_tickets(by, &tickets, &w.pool.bodies(), w.kernel.true_time());
            sent
        };
        self.ask("pool", "send", move || named(&shown), send).await
    }

    async fn depth(&self, class: &ResourceClass) -> PortResult<Depth> {
        let class = class.clone();
        self.ask("pool", "depth", String::new, move |w| at_once(w.pool.depth(&class))).await
    }
}

impl ProcessPorts {
    async fn take(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
        is_missed: bool,
    ) -> PortResult<Vec<ReceivedMessage>> {
        let class = class.clone();
        let twice = self.injects(Fault::TicketTwice);
        let shuffled = self.injects(Fault::Reordered).then(|| self.random().u64(..));
        let by = self.pid;
        let receive = move |w: &World| {
            if is_missed {
                return Ok(Vec::new());
            }
            if let Some(seed) = shuffled {
                w.pool.shuffle(seed);
            }
            let held = at_once(w.pool.receive(&class, max, hold))?;
            w.audit().received(by, &held, w.kernel.true_time());
            // A queue delivers a message again; it does not multiply its copies without end.
            if let Some(again) = held.first().filter(|_| twice)
                && w.pool.copies(&class, &again.body) < MOST_COPIES
            {
                w.pool.send_raw(&class, &again.body);
            }
            Ok(held)
        };
        self.ask("pool", "receive", move || format!("up to {max}"), receive).await
    }
}
