use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, Depth, Pool, PortResult, Receipt, ReceivedMessage};
use rusqlite::Transaction;

use crate::inputs::DUPLICATE_TICKETS;
use crate::store::column;
use crate::store::db::Db;

/// The most messages that one call returns, as in SQS.
const BATCH: u8 = 10;

/// The pool: queues in the shared file that behave like SQS.
#[derive(Clone)]
pub struct LocalPool {
    db: Db,
    clock: Arc<dyn Clock>,
}

impl LocalPool {
    pub fn new(db: Db, clock: Arc<dyn Clock>) -> LocalPool {
        LocalPool { db, clock }
    }

    /// Adds a message without checking that it is a ticket.
    pub async fn send_raw(&self, class: &ResourceClass, body: &str) -> PortResult<()> {
        let message = (class.clone(), body.to_owned());
        let visible_at = self.clock.now();
        self.db.write(move |transaction| enqueue(transaction, &[message], visible_at)).await
    }

    async fn show_at(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        at: Timestamp,
    ) -> PortResult<()> {
        const SQL: &str = "UPDATE tickets SET visible_at = ?3
            WHERE class = ?1 AND receipt = ?2 AND receipt <> ''";
        let at = at.to_string();
        let (class, receipts) = (class.clone(), receipts.to_vec());
        self.db
            .write(move |transaction| {
                let mut update = transaction.prepare_cached(SQL)?;
                for Receipt(receipt) in receipts {
                    update.execute((class.as_str(), receipt, &at))?;
                }
                Ok(())
            })
            .await
    }
}

impl fmt::Debug for LocalPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalPool({:?})", self.db)
    }
}

#[async_trait]
impl Pool for LocalPool {
    /// Does nothing: a queue exists as soon as it has a message.
    async fn set_up(&self, _classes: &[ResourceClass]) -> PortResult<()> {
        Ok(())
    }

    async fn receive(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        let class = class.clone();
        let now = self.clock.now();
        let call = ReceiveCall {
            now,
            until: now + hold,
            max: u8::try_from(max).unwrap_or(BATCH).min(BATCH),
        };
        self.db.write(move |transaction| take(transaction, &class, &call)).await
    }

    async fn extend(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        hold: Duration,
    ) -> PortResult<()> {
        self.show_at(class, receipts, self.clock.now() + hold).await
    }

    async fn put_back(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        self.show_at(class, receipts, self.clock.now()).await
    }

    async fn delete(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        const SQL: &str = "DELETE FROM tickets WHERE class = ?1 AND receipt = ?2 AND receipt <> ''";
        let (class, receipts) = (class.clone(), receipts.to_vec());
        self.db
            .write(move |transaction| {
                let mut delete = transaction.prepare_cached(SQL)?;
                for Receipt(receipt) in receipts {
                    delete.execute((class.as_str(), receipt))?;
                }
                Ok(())
            })
            .await
    }

    async fn send(&self, tickets: &[Ticket], delay: Duration) -> PortResult<()> {
        let visible_at = self.clock.now() + delay;
        let message = |ticket: &Ticket| (ticket.spec.resource_class.clone(), ticket.to_json());
        let messages: Vec<_> = tickets.iter().map(message).collect();
        self.db.write(move |transaction| enqueue(transaction, &messages, visible_at)).await
    }

    async fn depth(&self, class: &ResourceClass) -> PortResult<Depth> {
        const SQL: &str = "SELECT count(*) FILTER (WHERE visible_at <= ?2),
            count(*) FILTER (WHERE visible_at > ?2 AND received_count > 0),
            count(*) FILTER (WHERE visible_at > ?2 AND received_count = 0)
            FROM tickets WHERE class = ?1";
        let (class, now) = (class.to_string(), self.clock.now().to_string());
        self.db
            .call(move |connection| {
                connection.prepare_cached(SQL)?.query_row((class, now), |row| {
                    let count = |column| row.get::<_, u32>(column).map(|count| count as usize);
                    Ok(Depth { visible: count(0)?, held: count(1)?, delayed: count(2)? })
                })
            })
            .await
    }
}

fn enqueue(
    transaction: &Transaction<'_>,
    messages: &[(ResourceClass, String)],
    visible_at: Timestamp,
) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT INTO tickets (class, body, visible_at) VALUES (?,?,?)";
    let mut insert = transaction.prepare_cached(SQL)?;
    for (class, body) in messages {
        insert.execute((class.as_str(), body, visible_at.to_string()))?;
    }
    Ok(())
}

struct ReceiveCall {
    now: Timestamp,
    until: Timestamp,
    max: u8,
}

/// Receives the messages that have been visible longest; one that was put back goes to the end. Each
/// gets a new receipt, which invalidates the previous one.
fn take(
    transaction: &Transaction<'_>,
    class: &ResourceClass,
    call: &ReceiveCall,
) -> rusqlite::Result<Vec<ReceivedMessage>> {
    const OLDEST: &str = "SELECT id FROM tickets WHERE class = ?1 AND visible_at <= ?2
        ORDER BY visible_at, id LIMIT ?3";
    // SQS may deliver a message twice. If the setting asks for it, so does this: a message stays
    // visible when it is received for the first time.
    const HOLD: &str = "UPDATE tickets SET receipt = lower(hex(randomblob(16))),
        visible_at = CASE WHEN received_count = 0 AND EXISTS (SELECT 1 FROM settings
            WHERE name = ?4 AND value = 'true') THEN ?2 ELSE ?3 END,
        received_count = received_count + 1
        WHERE id = ?1 RETURNING body, receipt";
    let (now, until) = (call.now.to_string(), call.until.to_string());
    let mut oldest = transaction.prepare_cached(OLDEST)?;
    let ids = oldest
        .query_map((class.as_str(), &now, call.max), |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    let mut hold = transaction.prepare_cached(HOLD)?;
    ids.into_iter()
        .map(|id| {
            hold.query_row((id, &now, &until, DUPLICATE_TICKETS.name), |row| {
                // A message that is not a ticket is returned too, so that the caller can delete it;
                // it must not block the others.
                Ok(ReceivedMessage {
                    receipt: Receipt(row.get("receipt")?),
                    body: column::lossy_text(row)?,
                })
            })
        })
        .collect()
}
