use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ondeck_core::model::ids::ResourceClass;
use tokio::sync::OnceCell;

type Url = Arc<OnceCell<String>>;

/// Where the queues are, as far as is known. Those who ask for the same one at the same time
/// share a cell, so that only one of them asks SQS.
#[derive(Debug, Default)]
pub(super) struct Urls(Mutex<BTreeMap<ResourceClass, Url>>);

impl Urls {
    pub(super) fn of(&self, class: &ResourceClass) -> Url {
        self.lock().entry(class.clone()).or_default().clone()
    }

    pub(super) fn remember(&self, class: &ResourceClass, url: &str) {
        let known = Arc::new(OnceCell::new_with(Some(url.to_owned())));
        self.lock().insert(class.clone(), known);
    }

    /// The queue is not there, or not there any more.
    pub(super) fn forget(&self, class: &ResourceClass) {
        self.lock().remove(class);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ResourceClass, Url>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
