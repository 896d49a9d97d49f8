use super::*;

#[test]
fn replace_of_a_value_that_moved_leaves_the_newer_one() {
    let published = Published::new(1);
    published.replace(1, 2);
    assert_eq!(published.load(), 2);
    published.store(3);
    published.replace(2, 4);
    assert_eq!(published.load(), 3);
}
