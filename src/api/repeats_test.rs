use super::*;

type Described = (GroupId, usize);

fn id(name: &'static str) -> GroupId {
    GroupId(StrBytes::from_static_str(name))
}

fn answer(described: &[Described], named: &[GroupId]) -> Result<Vec<Described>, ApiError> {
    let named = named.iter().map(|group_id| group_id.0.clone());
    as_named(described.to_vec(), named, |one| &one.0, |one| one.1)
}

#[test]
fn group_is_described_once_and_answered_as_often_as_it_is_named() {
    let named = [id("b"), id("a"), id("b")];
    assert_eq!(each_once(&named), [id("b"), id("a")]);
    let described = [(id("a"), 1), (id("b"), 2)];
    let expected = [(id("b"), 2), (id("a"), 1), (id("b"), 2)];
    assert_eq!(answer(&described, &named).unwrap(), expected);
}

#[test]
fn answer_that_repeats_too_much_is_refused() {
    let described = [(id("a"), REPEATED_ENTRIES_MAX / 2)];
    let named = vec![id("a"); 3];
    assert_eq!(answer(&described, &named).unwrap().len(), 3);
    let error = answer(&described, &[named, vec![id("a")]].concat()).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    // One that is not there is small.
    assert_eq!(
        answer(&[(id("a"), 0)], &vec![id("a"); 200_000]).unwrap().len(),
        200_000
    );
}
