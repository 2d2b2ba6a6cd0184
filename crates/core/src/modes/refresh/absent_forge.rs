use async_trait::async_trait;

use crate::ports::{Forge, ListedRunner, PortResult};

/// The forge of a refresh that was given none it can use. It lists nothing, so no runner is removed
/// and no run is rescued.
#[derive(Debug, Clone, Copy)]
pub struct AbsentForge;

#[async_trait]
impl Forge for AbsentForge {
    /// Differs from the target of any other forge.
    fn target(&self) -> Option<String> {
        Some(String::new())
    }

    async fn runners(&self) -> PortResult<Vec<ListedRunner>> {
        Ok(Vec::new())
    }

    async fn remove_runner(&self, _name: &str) -> PortResult<()> {
        Ok(())
    }
}
