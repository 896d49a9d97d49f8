use super::image_to_records;
use crate::metadata::MetadataImage;

#[test]
fn empty_image_has_no_records() {
    assert_eq!(image_to_records(&MetadataImage::empty()).count(), 0);
}
