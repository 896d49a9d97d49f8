use super::*;

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(path)
}

fn options(arguments: &[&str]) -> DumpOptions {
    parse_arguments(arguments.iter().map(OsString::from).collect()).unwrap()
}

/// Dumps `files` of one folder; "Dumping" lines have the bare name, and other lines the path that the golden text was made with.
fn dumped(folder: &Path, files: &[String], mut options: DumpOptions, prefix: &str) -> (String, String) {
    options.files = files.iter().map(|file| folder.join(file)).collect();
    let (mut out, mut doubts) = (Vec::new(), Doubts::default());
    dump(&options, &mut out, &mut doubts).unwrap();
    let text = String::from_utf8(out).unwrap();
    let dumping = format!("Dumping {}/", folder.display());
    (
        text.replace(&dumping, "Dumping ")
            .replace(&folder.display().to_string(), prefix),
        doubts.text(),
    )
}

/// Compares with what Apache Kafka's tool printed, for each folder of `expected/dump`.
fn compare_all(set: &str) {
    let expected = golden(set).join("expected/dump");
    let mut compared = 0;
    for entry in std::fs::read_dir(&expected).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let files: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("Dumping "))
            .map(str::to_owned)
            .collect();
        let flag = match name.rsplit_once('-').map(|(topic, _)| topic) {
            Some("__cluster_metadata") => "--cluster-metadata-decoder",
            Some("__consumer_offsets") => "--offsets-decoder",
            Some("__transaction_state") => "--transaction-log-decoder",
            Some("__share_group_state") => "--share-group-state-decoder",
            _ => "--print-data-log",
        };
        let folder = golden(set).join("data").join(&name);
        let (printed, _) = dumped(&folder, &files, options(&["x", flag]), &format!("data/{name}"));
        for (number, (printed, wanted)) in printed.lines().zip(text.lines()).enumerate() {
            assert_eq!(
                printed.trim_end(),
                wanted.trim_end(),
                "{set}/{name} line {}",
                number + 1
            );
        }
        assert_eq!(printed.lines().count(), text.lines().count(), "{set}/{name}");
        compared += 1;
    }
    assert!(compared > 0);
}

#[test]
fn everything_of_the_single_node_printed_as_kafka_prints_it() {
    compare_all("single");
}

#[test]
fn everything_of_the_three_nodes_printed_as_kafka_prints_it() {
    for node in ["node-1", "node-2", "node-3"] {
        compare_all(&format!("cluster3/{node}"));
    }
}

#[test]
fn crashed_and_older_nodes_printed_as_kafka_prints_them() {
    compare_all("crash");
    compare_all("old-3.9");
}

#[test]
fn torn_tail_counted() {
    let folder = golden("crash-torn/data/crash-0");
    let files = ["00000000000000000040.log".to_owned()];
    let (text, doubts) = dumped(&folder, &files, options(&["x", "--print-data-log"]), "");
    assert!(text.ends_with("\nFound 146 invalid bytes at the end of 00000000000000000040.log\n"));
    assert!(
        doubts.ends_with("00000000000000000040.log\n  -1 is followed by 40\n"),
        "{doubts}"
    );
}

#[test]
fn flipped_batch_said_to_be_invalid() {
    let folder = golden("crash-flipped/data/crash-0");
    let files = ["00000000000000000040.log".to_owned()];
    let (text, _) = dumped(&folder, &files, options(&["x"]), "");
    assert_eq!(text.matches("isvalid: false").count(), 1);
}

/// Lines of Kafka's tool on the first of these files.
#[test]
fn old_message_formats_printed_with_the_crc_of_each_message() {
    let folder = golden("old-formats/data/mixed-0");
    let files = ["00000000000000000000.log".to_owned()];
    let (text, _) = dumped(&folder, &files, options(&["x", "--deep-iteration"]), "");
    let lines: Vec<&str> = text.lines().take(5).collect();
    assert_eq!(
        lines[2..],
        [
            "offset: 4 position: 0 CreateTime: 1700000004000 size: 215 magic: 1 compresscodec: gzip crc: 3552365709 \
             isvalid: true",
            "| offset: 0 CreateTime: 1700000000000 keySize: -1 valueSize: 34 isValid: true crc: 290536918",
            "| offset: 1 CreateTime: 1700000001000 keySize: 5 valueSize: 44 isValid: true crc: 1689643807",
        ]
    );
}

#[test]
fn indexes_checked_without_printing_their_entries() {
    let folder = golden("single/data/segments-0");
    let files = [
        "00000000000000000000.index".to_owned(),
        "00000000000000000000.timeindex".to_owned(),
    ];
    let (text, doubts) = dumped(&folder, &files, options(&["x", "--verify-index-only"]), "f");
    assert_eq!(
        text,
        "Dumping 00000000000000000000.index\nDumping 00000000000000000000.timeindex\n"
    );
    assert_eq!(doubts, "");
    let (text, _) = dumped(&folder, &files, options(&["x", "--index-sanity-check"]), "f");
    assert!(
        text.contains("f/00000000000000000000.index passed sanity check.\n"),
        "{text}"
    );
}

#[test]
fn arguments_parsed_as_list_and_bare_names() {
    let parsed = options(&["--files", "a.log,b.index", "c.log"]);
    assert_eq!(parsed.files, ["a.log", "b.index", "c.log"].map(PathBuf::from));
    assert!(options(&["a", "--offsets-decoder"]).print_data_log);
    assert!(options(&["a", "--print-data-log"]).deep_iteration);
    assert!(parse_arguments(Vec::new()).is_err());
}
