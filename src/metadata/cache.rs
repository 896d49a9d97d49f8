//! The newest published image, for readers on hot paths.
//!
//! One atomic load to read, one store a publication (by the loader, first of all publishers). Readers that need a
//! consistent view keep the image they loaded.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::image::MetadataImage;

/// Shared by every part of the node; clones are handles to the same cell.
#[derive(Debug, Clone)]
pub struct MetadataCache {
    current: Arc<ArcSwap<MetadataImage>>,
}

impl MetadataCache {
    pub fn new(image: MetadataImage) -> Self {
        Self {
            current: Arc::new(ArcSwap::from_pointee(image)),
        }
    }

    /// The newest image; cheap, for short use.
    pub fn load(&self) -> Guard<Arc<MetadataImage>> {
        self.current.load()
    }

    /// The newest image, to keep (across an await, in a struct).
    pub fn image(&self) -> Arc<MetadataImage> {
        self.current.load_full()
    }

    /// For the loader, and for tests.
    pub fn store(&self, image: Arc<MetadataImage>) {
        self.current.store(image);
    }
}

impl Default for MetadataCache {
    fn default() -> Self {
        Self::new(MetadataImage::empty())
    }
}
