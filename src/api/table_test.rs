use super::*;

#[test]
fn rows_are_in_ascending_order_once_each() {
    assert!(TABLE.windows(2).all(|pair| pair[0].key < pair[1].key));
}

#[test]
fn rows_stay_within_what_kafka_serves() {
    for row in TABLE {
        let info = row.key.info();
        assert!(row.min_version >= info.min_version, "{}", info.name);
        assert!(row.max_version <= info.max_version, "{}", info.name);
        assert!(!row.on_broker || info.on_broker, "{}", info.name);
        assert!(!row.on_controller || info.on_controller, "{}", info.name);
        assert!(row.advertised_min_version <= row.min_version, "{}", info.name);
    }
}

#[test]
fn readme_lists_what_the_table_serves() {
    let readme = include_str!("../../README.md");
    assert!(
        readme.contains(&markdown()),
        "README.md must contain this table:\n{}",
        markdown()
    );
}
