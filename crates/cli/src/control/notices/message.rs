//! The message of a notice: a text for people, as Slack's incoming webhooks take it, and beside it the
//! same as data, which Slack ignores.

use ondeck_core::model::finding::{Notice, NoticeItem};
use serde::Serialize;

/// The longest text. Slack cuts at 40,000 characters.
const LONGEST: usize = 30_000;

#[derive(Debug, Serialize)]
struct Message<'a> {
    text: String,
    /// The text is plain: names are no markup.
    mrkdwn: bool,
    ondeck: Data<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    schema_version: u32,
    pool: &'a str,
    new: Vec<Item<'a>>,
    lasting: Vec<Item<'a>>,
    resolved: Vec<Item<'a>>,
}

#[derive(Debug, Serialize)]
struct Item<'a> {
    kind: &'static str,
    subject: &'a str,
    text: &'a str,
    since: String,
}

/// The body of the request.
pub(super) fn json(pool: &str, notice: &Notice) -> String {
    let message = Message {
        text: text(pool, notice),
        mrkdwn: false,
        ondeck: Data {
            schema_version: 1,
            pool,
            new: items(&notice.new),
            lasting: items(&notice.lasting),
            resolved: items(&notice.resolved),
        },
    };
    serde_json::to_string(&message).unwrap_or_default()
}

fn items(items: &[NoticeItem]) -> Vec<Item<'_>> {
    items.iter().map(item).collect()
}

fn item(item: &NoticeItem) -> Item<'_> {
    let NoticeItem { finding, since } = item;
    Item {
        kind: finding.kind.as_str(),
        subject: &finding.subject,
        text: &finding.text,
        since: since.to_string(),
    }
}

fn text(pool: &str, notice: &Notice) -> String {
    let mut text = format!("ondeck, pool {}", escaped(pool));
    for (word, items) in
        [("new", &notice.new), ("still", &notice.lasting), ("resolved", &notice.resolved)]
    {
        for NoticeItem { finding, since } in items {
            let line = match word {
                "still" => format!("\n• {word}, since {since}: {}", escaped(&finding.text)),
                _ => format!("\n• {word}: {}", escaped(&finding.text)),
            };
            if text.len() + line.len() <= LONGEST {
                text.push_str(&line);
            }
        }
    }
    text
}

/// Slack takes these three characters for the beginning of a mention, a link or an entity.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::finding::{Finding, FindingKind};
    use ondeck_core::model::timestamp::Timestamp;

    use super::*;

    fn item(kind: FindingKind, subject: &str, text: &str) -> NoticeItem {
        let finding = Finding { kind, subject: subject.to_owned(), text: text.to_owned() };
        NoticeItem { finding, since: Timestamp::parse("2026-11-18T10:00:00Z").unwrap() }
    }

    #[test]
    fn a_message_is_for_people_and_for_programs() {
        let notice = Notice {
            new: vec![item(FindingKind::StrandedRun, "17", "jobs wait: 17")],
            lasting: vec![item(FindingKind::DeadMachine, "i-1", "machine i-1 is silent")],
            resolved: vec![item(FindingKind::RunnerDeadline, "", "no deadline is near")],
        };
        let message: serde_json::Value = serde_json::from_str(&json("acme/shop", &notice)).unwrap();
        insta::assert_snapshot!(message["text"].as_str().unwrap(), @"
        ondeck, pool acme/shop
        • new: jobs wait: 17
        • still, since 2026-11-18T10:00:00.000Z: machine i-1 is silent
        • resolved: no deadline is near
        ");
        insta::assert_snapshot!(serde_json::to_string(&message["ondeck"]).unwrap(), @r#"{"lasting":[{"kind":"dead-machine","since":"2026-11-18T10:00:00.000Z","subject":"i-1","text":"machine i-1 is silent"}],"new":[{"kind":"stranded-run","since":"2026-11-18T10:00:00.000Z","subject":"17","text":"jobs wait: 17"}],"pool":"acme/shop","resolved":[{"kind":"runner-deadline","since":"2026-11-18T10:00:00.000Z","subject":"","text":"no deadline is near"}],"schemaVersion":1}"#);
        assert_eq!(message["mrkdwn"], false);
    }

    /// The reason of an agent may contain any text of a job.
    #[test]
    fn no_text_mentions_anybody_and_none_is_too_long() {
        let bad = "<!channel> <@U0> <https://evil|click> & more";
        let all = vec![item(FindingKind::FailingMachine, "i-1", bad); 1_000];
        let notice = Notice { new: all, ..Notice::default() };
        let text = text("<p>", &notice);
        assert!(!text.contains(['<', '>']) && text.len() <= LONGEST, "{text}");
        assert!(text.contains("&lt;!channel&gt;") && text.contains("&amp; more"), "{text}");
    }
}
