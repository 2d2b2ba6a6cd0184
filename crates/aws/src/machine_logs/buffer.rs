//! The lines that wait to be copied.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most bytes that wait. If more are logged, the oldest go: what came last says why a machine
/// ended.
const MOST_WAITING: usize = 1 << 20;
/// The most bytes of one batch, as CloudWatch Logs counts them. It takes twice as many.
const MOST_IN_BATCH: usize = 1 << 19;
/// The most lines of one batch, which is what CloudWatch Logs takes.
const MOST_LINES: usize = 10_000;
/// What CloudWatch Logs counts for each line beside its text.
const OVERHEAD: usize = 26;
/// The longest time between the first and the last line of a batch. CloudWatch Logs refuses one that
/// spans more than a day.
const LONGEST_SPAN_MILLIS: u64 = 23 * 3_600_000;
/// The longest line. The rest of a longer one is left out.
const LONGEST_LINE: usize = 8 << 10;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogLine {
    /// Milliseconds since 1970. Never less than those of the line before, as CloudWatch Logs requires.
    pub(super) at_millis: u64,
    pub(super) text: String,
}

impl LogLine {
    fn size(&self) -> usize {
        self.text.len() + OVERHEAD
    }
}

/// Lines that wait to be copied. A clone shares them. What is written to it is split into lines.
#[derive(Debug, Clone, Default)]
pub struct LogBuffer(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<LogLine>,
    size: usize,
    left_out: usize,
    last_millis: u64,
    /// The beginning of a line whose end has not been written.
    unfinished: Vec<u8>,
}

/// Lines on their way. Unless they are discarded, they are put back when this is dropped.
pub(super) struct Batch<'a> {
    lines: Vec<LogLine>,
    buffer: &'a LogBuffer,
}

impl LogBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting().lines.is_empty()
    }

    /// Takes the oldest lines, as many as one request may carry.
    pub(super) fn take(&self) -> Batch<'_> {
        let mut waiting = self.waiting();
        let (mut lines, mut size) = (Vec::new(), 0);
        if waiting.left_out > 0 {
            let text = format!("{} lines of the log were left out", waiting.left_out);
            let at_millis = waiting.lines.front().map_or(waiting.last_millis, |it| it.at_millis);
            lines.push(LogLine { at_millis, text });
            waiting.left_out = 0;
        }
        let begin = waiting.lines.front().map_or(0, |line| line.at_millis);
        let fits = |line: &LogLine, size: usize| {
            size + line.size() <= MOST_IN_BATCH && line.at_millis - begin <= LONGEST_SPAN_MILLIS
        };
        while lines.len() < MOST_LINES && waiting.lines.front().is_some_and(|line| fits(line, size))
        {
            if let Some(line) = waiting.lines.pop_front() {
                size += line.size();
                lines.push(line);
            }
        }
        waiting.size -= size;
        drop(waiting);
        Batch { lines, buffer: self }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn lines(&self) -> &[LogLine] {
        &self.lines
    }

    /// Forgets the lines, which have arrived.
    pub(super) fn discard(&mut self) {
        self.lines.clear();
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut waiting = self.buffer.waiting();
        for line in self.lines.drain(..).rev() {
            waiting.size += line.size();
            waiting.lines.push_front(line);
        }
        waiting.shrink();
    }
}

impl Waiting {
    fn add(&mut self, text: &[u8], now_millis: u64) {
        if text.is_empty() {
            return;
        }
        let cut = &text[..text.len().min(LONGEST_LINE)];
        // A character that the cut has halved goes too.
        let text = String::from_utf8_lossy(cut).trim_end_matches('\u{fffd}').to_owned();
        self.last_millis = now_millis.max(self.last_millis);
        let line = LogLine { at_millis: self.last_millis, text };
        self.size += line.size();
        self.lines.push_back(line);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.size > MOST_WAITING
            && let Some(line) = self.lines.pop_front()
        {
            self.size -= line.size();
            self.left_out += 1;
        }
    }

    fn write(&mut self, bytes: &[u8], now_millis: u64) {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            let mut line = std::mem::take(&mut self.unfinished);
            line.extend_from_slice(part);
            self.add(&line, now_millis);
        }
        let room = LONGEST_LINE.saturating_sub(self.unfinished.len());
        self.unfinished.extend_from_slice(&last[..last.len().min(room)]);
    }
}

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        self.waiting().write(bytes, u64::try_from(now).unwrap_or(u64::MAX));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(parts: &[&[u8]]) -> LogBuffer {
        let mut buffer = LogBuffer::default();
        parts.iter().for_each(|part| buffer.write_all(part).unwrap());
        buffer
    }

    fn texts(batch: &Batch<'_>) -> Vec<String> {
        batch.lines().iter().map(|line| line.text.clone()).collect()
    }

    #[test]
    fn what_is_written_becomes_lines() {
        let buffer = written(&[b"one\ntw", b"o\n\n", b"unfinished"]);
        assert_eq!(texts(&buffer.take()), ["one", "two"]);
        let long = [vec![b'x'; LONGEST_LINE - 1], "é\nnext\n".into()].concat();
        let batch = written(&[&long]);
        let batch = batch.take();
        assert_eq!(batch.lines()[0].text, "x".repeat(LONGEST_LINE - 1));
        assert_eq!(batch.lines()[1].text, "next");
    }

    #[test]
    fn a_batch_that_was_not_sent_returns_in_order() {
        let buffer = written(&[b"a\nb\n"]);
        drop(buffer.take());
        buffer.clone().write_all(b"c\n").unwrap();
        let mut batch = buffer.take();
        assert_eq!(texts(&batch), ["a", "b", "c"]);
        batch.discard();
        drop(batch);
        assert!(buffer.is_empty());
    }

    #[test]
    fn the_oldest_lines_go_if_there_are_too_many() {
        let line = [vec![b'x'; 1023], vec![b'\n']].concat();
        let mut buffer = LogBuffer::default();
        for _ in 0..3000 {
            buffer.write_all(&line).unwrap();
        }
        buffer.write_all(b"the end\n").unwrap();
        assert!(buffer.waiting().size <= MOST_WAITING);
        let (mut all, mut batches) = (Vec::new(), 0);
        while !buffer.is_empty() {
            let mut batch = buffer.take();
            let size: usize = batch.lines().iter().map(LogLine::size).sum();
            assert!(size <= MOST_IN_BATCH + 100 && batch.lines().len() <= MOST_LINES, "{size}");
            all.extend(texts(&batch));
            batch.discard();
            batches += 1;
        }
        assert_eq!(batches, 3, "lines are not cut to fill one");
        assert!(all[0].ends_with(" lines of the log were left out"), "{}", all[0]);
        assert_eq!(all.last().unwrap(), "the end");
    }

    #[test]
    fn a_batch_spans_less_than_a_day() {
        const HOUR: u64 = 3_600_000;
        let buffer = LogBuffer::default();
        for hour in [5, 20, 28, 29, 60] {
            buffer.waiting().write(format!("{hour}\n").as_bytes(), hour * HOUR);
        }
        let taken = || {
            let mut batch = buffer.take();
            let texts = texts(&batch);
            batch.discard();
            texts
        };
        assert_eq!([taken(), taken(), taken()], [vec!["5", "20", "28"], vec!["29"], vec!["60"]]);
    }

    #[test]
    fn times_never_go_back() {
        let buffer = LogBuffer::default();
        for millis in [5, 3, 9] {
            buffer.waiting().write(b"line\n", millis);
        }
        let times: Vec<u64> = buffer.take().lines().iter().map(|line| line.at_millis).collect();
        assert_eq!(times, [5, 5, 9]);
    }
}
