//! Decides how docker is brought back to an earlier inventory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// What docker held at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inventory {
    pub(crate) containers: BTreeSet<String>,
    /// Without those that docker makes itself.
    pub(crate) networks: BTreeSet<String>,
    pub(crate) volumes: BTreeSet<String>,
    /// Ids of all images, untagged ones included.
    pub(crate) images: BTreeSet<String>,
    /// The image that each tag names. References by digest are left out: docker compares the content
    /// with the digest, so none of them can be false.
    pub(crate) tags: BTreeMap<String, String>,
    /// How many entries the build cache has. There is no going back to an earlier cache, so it is
    /// emptied.
    pub(crate) cache: u64,
}

/// How much of docker is restored after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Removes new containers, networks and volumes, on a computer that has other users.
    Shared,
    /// Restores containers, networks and volumes, and keeps images and build cache.
    KeepCache,
    Everything,
}

impl Extent {
    /// Whether images, tags and the build cache are restored.
    pub(crate) fn has_images(self) -> bool {
        self == Extent::Everything
    }
}

/// One kind of object that is removed by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Container,
    Network,
    Volume,
    Image,
}

/// One change of docker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Remove(Kind, BTreeSet<String>),
    /// Lets a tag name this image instead of the one before.
    Tag {
        tag: String,
        image: String,
    },
    /// Removes tags. Docker removes an image with its last tag.
    Untag(BTreeSet<String>),
    EmptyCache,
}

/// What was there before and cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) what: &'static str,
    pub(crate) name: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lost { what, name } = self;
        write!(f, "the {what} that docker had before the first run is gone: {name}")
    }
}

impl Step {
    /// How many objects it changes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Step::Remove(_, names) | Step::Untag(names) => names.len(),
            Step::Tag { .. } | Step::EmptyCache => 1,
        }
    }
}

/// The steps from `now` to `before`, dependents first; none if there is no difference. Docker refuses
/// to remove an image that has children, so after the steps there may be others to take. Fails with
/// the first object that cannot be restored, except on a shared computer, where it is not missed.
pub(crate) fn plan(before: &Inventory, now: &Inventory, extent: Extent) -> Result<Vec<Step>, Lost> {
    if extent != Extent::Shared {
        check_lost(before, now, extent)?;
    }
    let mut steps = Vec::new();
    for (kind, then, there) in [
        (Kind::Container, &before.containers, &now.containers),
        (Kind::Network, &before.networks, &now.networks),
        (Kind::Volume, &before.volumes, &now.volumes),
    ] {
        remove_new(&mut steps, kind, then, there);
    }
    if extent.has_images() {
        restore_tags(&mut steps, before, now);
        remove_new(&mut steps, Kind::Image, &before.images, &now.images);
        if now.cache > 0 {
            steps.push(Step::EmptyCache);
        }
    }
    Ok(steps)
}

fn check_lost(before: &Inventory, now: &Inventory, extent: Extent) -> Result<(), Lost> {
    let lost = |what, name: &String| Lost { what, name: name.clone() };
    let gone = |then: &BTreeSet<String>, there: &BTreeSet<String>, what| {
        then.difference(there).next().map_or(Ok(()), |name| Err(lost(what, name)))
    };
    gone(&before.containers, &now.containers, "container")?;
    gone(&before.networks, &now.networks, "network")?;
    gone(&before.volumes, &now.volumes, "volume")?;
    if extent.has_images() {
        // The name that people know comes first.
        let tagged = before.tags.iter().find(|(_, image)| !now.images.contains(*image));
        tagged.map_or(Ok(()), |(tag, _)| Err(lost("image", tag)))?;
        gone(&before.images, &now.images, "image")?;
    }
    Ok(())
}

fn remove_new(
    steps: &mut Vec<Step>,
    kind: Kind,
    then: &BTreeSet<String>,
    there: &BTreeSet<String>,
) {
    let new: BTreeSet<String> = there.difference(then).cloned().collect();
    if !new.is_empty() {
        steps.push(Step::Remove(kind, new));
    }
}

/// Puts back tags that were moved or removed, and removes new tags of old images. The tags of new
/// images go with the images.
fn restore_tags(steps: &mut Vec<Step>, before: &Inventory, now: &Inventory) {
    for (tag, image) in &before.tags {
        if now.tags.get(tag) != Some(image) {
            steps.push(Step::Tag { tag: tag.clone(), image: image.clone() });
        }
    }
    let is_new = |(tag, image): &(&String, &String)| {
        !before.tags.contains_key(*tag) && before.images.contains(*image)
    };
    let new: Vec<(&String, &String)> = now.tags.iter().filter(is_new).collect();
    let tagged: BTreeSet<&String> = before.tags.values().collect();
    // An untagged image would go with the tag that the run gave it. Such a tag is moved to an image
    // that has another.
    for (tag, image) in &new {
        if !tagged.contains(image)
            && let Some(other) = tagged.first()
        {
            steps.push(Step::Tag { tag: (*tag).clone(), image: (*other).clone() });
        }
    }
    if !new.is_empty() {
        steps.push(Step::Untag(new.into_iter().map(|(tag, _)| tag.clone()).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Docker, as far as images refuse to be removed and vanish with their last tag.
    struct Model {
        holds: Inventory,
        /// The parent of each image that has one.
        parents: BTreeMap<String, String>,
    }

    impl Model {
        fn apply(&mut self, step: &Step) {
            let holds = &mut self.holds;
            match step {
                Step::Remove(Kind::Container, names) => {
                    holds.containers.retain(|it| !names.contains(it));
                }
                Step::Remove(Kind::Network, names) => {
                    holds.networks.retain(|it| !names.contains(it));
                }
                Step::Remove(Kind::Volume, names) => holds.volumes.retain(|it| !names.contains(it)),
                Step::Remove(Kind::Image, names) => {
                    names.iter().for_each(|name| self.remove_image(name));
                }
                Step::Tag { tag, image } => {
                    assert!(holds.images.contains(image), "{image} is there to be tagged");
                    holds.tags.insert(tag.clone(), image.clone());
                }
                Step::Untag(tags) => {
                    for tag in tags {
                        let image = holds.tags.remove(tag).expect("the tag is there");
                        if !holds.tags.values().any(|other| *other == image) {
                            holds.images.remove(&image);
                        }
                    }
                }
                Step::EmptyCache => holds.cache = 0,
            }
        }

        fn remove_image(&mut self, name: &String) {
            let is_child = |it: &String| self.parents.get(it) == Some(name);
            if !self.holds.images.iter().any(is_child) {
                self.holds.images.remove(name);
                self.holds.tags.retain(|_, image| image != name);
            }
        }
    }

    fn some(of: &'static [&'static str]) -> impl Strategy<Value = BTreeSet<String>> {
        proptest::sample::subsequence(of, 0..=of.len())
            .prop_map(|names| names.into_iter().map(str::to_owned).collect())
    }

    const OLD: [&str; 4] = ["old0", "old1", "old2", "old3"];
    const NEW: [&str; 4] = ["new0", "new1", "new2", "new3"];
    const TAGS: [&str; 5] = ["a:1", "b:1", "c:1", "d:1", "e:1"];

    fn tags(images: Vec<String>) -> impl Strategy<Value = BTreeMap<String, String>> {
        let named = proptest::collection::vec(
            proptest::option::of(any::<proptest::sample::Index>()),
            TAGS.len(),
        );
        named.prop_map(move |named| {
            let image = |index: proptest::sample::Index| index.get(&images).clone();
            let each = TAGS.iter().zip(named);
            let all = each.filter_map(|(tag, index)| Some(((*tag).to_owned(), image(index?))));
            if images.is_empty() { BTreeMap::new() } else { all.collect() }
        })
    }

    fn inventory(images: BTreeSet<String>) -> impl Strategy<Value = Inventory> {
        let tags = tags(images.iter().cloned().collect());
        let objects = (some(&["x", "y"]), some(&["x", "y"]), some(&["x", "y"]), 0_u64..3);
        (objects, tags).prop_map(move |((containers, networks, volumes, cache), tags)| {
            let images = images.clone();
            Inventory { containers, networks, volumes, images, tags, cache }
        })
    }

    fn owned(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// An inventory, a later one, and the parents of images. Nothing that was there before is gone
    /// but tags.
    fn histories() -> impl Strategy<Value = (Inventory, Model)> {
        let images = (some(&OLD), some(&NEW));
        let both = images.prop_flat_map(|(old, new)| {
            let all: BTreeSet<String> = old.union(&new).cloned().collect();
            (inventory(old), inventory(all), proptest::collection::vec(0_usize..8, NEW.len()))
        });
        both.prop_map(|(mut before, mut now, drawn)| {
            before.cache = 0;
            now.containers.extend(before.containers.iter().cloned());
            now.networks.extend(before.networks.iter().cloned());
            now.volumes.extend(before.volumes.iter().cloned());
            // Each new image has a parent among the old ones and the new ones before it.
            let above: Vec<&str> = OLD.iter().chain(&NEW).copied().collect();
            let parent = |(n, at): (usize, usize)| {
                (NEW[n].to_owned(), above[at.min(OLD.len() + n).saturating_sub(1)].to_owned())
            };
            let parents = drawn.into_iter().enumerate().map(parent).collect();
            (before, Model { holds: now, parents })
        })
    }

    impl std::fmt::Debug for Model {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{:?} {:?}", self.holds, self.parents)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_steps_lead_back((before, mut model) in histories()) {
            // An untagged old image that the run tagged is lost only if no old image has a tag.
            let mut rounds = 0;
            loop {
                let steps = match plan(&before, &model.holds, Extent::Everything) {
                    Ok(steps) => steps,
                    Err(lost) => {
                        prop_assert!(before.tags.is_empty(), "{lost}");
                        return Ok(());
                    }
                };
                if steps.is_empty() {
                    break;
                }
                steps.iter().for_each(|step| model.apply(step));
                rounds += 1;
                prop_assert!(rounds <= NEW.len() + 1, "{steps:?}");
            }
            prop_assert_eq!(before, model.holds);
        }

        #[test]
        fn images_and_cache_are_kept_if_asked((before, mut model) in histories()) {
            let now = model.holds.clone();
            for step in plan(&before, &now, Extent::KeepCache).unwrap() {
                model.apply(&step);
            }
            let Inventory { containers, networks, volumes, .. } = before;
            prop_assert_eq!(Inventory { containers, networks, volumes, ..now }, model.holds);
        }
    }

    fn with_images(images: &[&str], tags: &[(&str, &str)]) -> Inventory {
        let tags = tags.iter().map(|(tag, id)| ((*tag).to_owned(), (*id).to_owned())).collect();
        Inventory { images: owned(images), tags, ..Inventory::default() }
    }

    #[test]
    fn what_cannot_be_restored_is_named() {
        let before = with_images(&["one", "two"], &[("node:20", "one")]);
        let error = |now: &Inventory, extent| plan(&before, now, extent).map_err(|e| e.to_string());
        let gone = "that docker had before the first run is gone";
        let now = with_images(&["two"], &[]);
        assert_eq!(error(&now, Extent::Everything), Err(format!("the image {gone}: node:20")));
        assert_eq!(error(&now, Extent::KeepCache), Ok(Vec::new()));
        let now = with_images(&["one"], &[("node:20", "one")]);
        assert_eq!(error(&now, Extent::Everything), Err(format!("the image {gone}: two")));
        let before = Inventory { volumes: owned(&["data"]), ..Inventory::default() };
        let empty = Inventory::default();
        let lost = plan(&before, &empty, Extent::KeepCache).unwrap_err();
        assert_eq!((lost.what, lost.name.as_str()), ("volume", "data"));
        assert_eq!(plan(&before, &empty, Extent::Shared), Ok(Vec::new()));
    }
}
