//! Those who act on a new image.
//!
//! Called on the loader's thread, one publication after the other and each publisher in the order of installation. A
//! publisher may block (it delays the image of those behind it, never raft); it must not panic on any delta.

use std::sync::Arc;

use super::delta::MetadataDelta;
use super::image::MetadataImage;

/// Something that follows the metadata.
pub trait MetadataPublisher: Send + Sync + 'static {
    /// For log lines.
    fn name(&self) -> &'static str;

    /// `image` is `delta` applied to `delta.previous()`. The first call carries everything there is, as one delta
    /// from the empty image.
    fn on_metadata_update(&self, delta: &MetadataDelta, image: &Arc<MetadataImage>);

    /// The controller with this node's view of its epoch changed; -1 for none.
    fn on_controller_change(&self, _leader_id: i32, _leader_epoch: i32) {}
}
