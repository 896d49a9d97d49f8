use super::*;

fn kind_of(name: &str) -> Option<(String, FolderKind)> {
    Folder::parse(name).map(|folder| (folder.topic_partition.to_string(), folder.kind))
}

#[test]
fn parse_tells_the_kinds_of_folders() {
    let unique = "0123456789abcdef0123456789abcdef";
    assert_eq!(kind_of("a-b.c-7"), Some(("a-b.c-7".into(), FolderKind::Current)));
    assert_eq!(
        kind_of(&format!("t-0.{unique}-delete")),
        Some(("t-0".into(), FolderKind::Deleted))
    );
    assert_eq!(
        kind_of(&format!("t-0.{unique}-stray")),
        Some(("t-0".into(), FolderKind::Stray))
    );
    assert_eq!(
        kind_of(&format!("t-0.{unique}-future")),
        Some(("t-0".into(), FolderKind::Future))
    );
    assert_eq!(
        kind_of("my-delete-3"),
        Some(("my-delete-3".into(), FolderKind::Current))
    );
    for name in ["lost+found", "t", "-1", "t-x", "t--1x", "snapshots"] {
        assert_eq!(kind_of(name), None, "{name}");
    }
}

#[test]
fn deleted_name_of_a_long_topic_is_cut_to_a_file_name() {
    let long = TopicPartition::new("x".repeat(249), 12);
    let name = Folder::deleted_name(&long, Uuid::from_u128(5));
    assert_eq!(name.len(), 255);
    assert_eq!(Folder::parse(&name).unwrap().kind, FolderKind::Deleted);
    let short = Folder::deleted_name(&TopicPartition::new("t", 0), Uuid::from_u128(5));
    assert_eq!(short, "t-0.00000000000000000000000000000005-delete");
}
