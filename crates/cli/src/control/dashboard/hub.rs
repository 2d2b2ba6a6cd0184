//! Every page that is open, and what all of them show.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, mpsc};

use super::picture::Picture;

/// How many pages may be open.
const PAGES: usize = 32;
/// How many messages may wait for a page. One that reads no faster is disconnected; it connects again
/// and begins with a complete picture.
const WAITING: usize = 16;

#[derive(Debug)]
pub(super) struct Hub {
    shown: Mutex<Shown>,
    arrived: Notify,
}

#[derive(Debug)]
struct Shown {
    picture: Picture,
    pages: Vec<Page>,
}

#[derive(Debug)]
struct Page {
    messages: mpsc::Sender<Bytes>,
    cut: Arc<Notify>,
}

impl Hub {
    pub(super) fn new(picture: Picture) -> Hub {
        Hub { shown: Mutex::new(Shown { picture, pages: Vec::new() }), arrived: Notify::new() }
    }

    /// The messages for one more page: the complete picture, then each change of it. `None` if too many
    /// pages are open. `cut` is raised if the page does not read them.
    pub(super) fn subscribe(&self, cut: Arc<Notify>) -> Option<mpsc::Receiver<Bytes>> {
        let mut shown = self.shown();
        shown.pages.retain(Page::is_open);
        if shown.pages.len() >= PAGES {
            return None;
        }
        let (sender, receiver) = mpsc::channel(WAITING);
        let page = Page { messages: sender, cut };
        page.send(&message("state", &shown.picture.snapshot()));
        shown.pages.push(page);
        self.arrived.notify_one();
        Some(receiver)
    }

    /// Returns when a page is open.
    pub(super) async fn until_watched(&self) {
        while !self.is_watched() {
            self.arrived.notified().await;
        }
    }

    fn is_watched(&self) -> bool {
        let mut shown = self.shown();
        shown.pages.retain(Page::is_open);
        !shown.pages.is_empty()
    }

    pub(super) fn look<T>(&self, at: impl FnOnce(&Picture) -> T) -> T {
        at(&self.shown().picture)
    }

    /// Changes the picture, and sends every page what the change returns, under this name.
    pub(super) fn change<T: Serialize>(&self, name: &str, change: impl FnOnce(&mut Picture) -> T) {
        let mut shown = self.shown();
        let message = message(name, &change(&mut shown.picture));
        shown.pages.retain(|page| page.send(&message));
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn is_open(&self) -> bool {
        !self.messages.is_closed()
    }

    /// Returns whether the page goes on.
    fn send(&self, message: &Bytes) -> bool {
        match self.messages.try_send(message.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.cut.notify_one();
                false
            }
        }
    }
}

/// A server-sent event. JSON has no line breaks.
fn message(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hub() -> Hub {
        Hub::new(Picture::new(Duration::from_secs(1)))
    }

    fn text(bytes: &Bytes) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_page_gets_the_picture_first_and_then_each_change() {
        let hub = hub();
        let mut page = hub.subscribe(Arc::default()).unwrap();
        hub.change("change", |_| 7);
        assert!(text(&page.recv().await.unwrap()).starts_with("event: state\ndata: {"));
        assert_eq!(text(&page.recv().await.unwrap()), "event: change\ndata: 7\n\n");
    }

    #[tokio::test]
    async fn it_is_watched_while_a_page_is_open() {
        let hub = hub();
        assert!(!hub.is_watched());
        let page = hub.subscribe(Arc::default()).unwrap();
        hub.until_watched().await;
        drop(page);
        assert!(!hub.is_watched());
        let ((), page) = tokio::join!(hub.until_watched(), async { hub.subscribe(Arc::default()) });
        assert!(page.is_some());
    }

    #[tokio::test]
    async fn a_page_that_does_not_read_is_cut_and_the_others_go_on() {
        let hub = hub();
        let cut = Arc::new(Notify::new());
        let slow = hub.subscribe(cut.clone()).unwrap();
        let mut quick = hub.subscribe(Arc::default()).unwrap();
        for number in 0..WAITING {
            quick.recv().await.unwrap();
            hub.change("change", |_| number);
        }
        cut.notified().await;
        assert!(text(&quick.recv().await.unwrap()).contains("15"));
        assert!(slow.is_closed());
    }

    #[test]
    fn there_is_a_limit_to_the_pages_that_are_open() {
        let hub = hub();
        let mut pages: Vec<_> =
            (0..PAGES).map(|_| hub.subscribe(Arc::default()).unwrap()).collect();
        assert!(hub.subscribe(Arc::default()).is_none());
        pages.pop();
        assert!(hub.subscribe(Arc::default()).is_some());
    }
}
