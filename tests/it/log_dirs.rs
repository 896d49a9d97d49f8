//! DeleteRecords and DescribeLogDirs over the wire, on a node with several log directories.

use kavka::protocol::messages::{
    DeleteRecordsRequest, DescribeLogDirsRequest, delete_records_request, describe_log_dirs_request,
};

use crate::support::client::Client;
use crate::support::node::Node;
use crate::support::topic::{self, batch, produce, read_all, value_of};

/// (low watermark, error code)
fn delete_records(client: &mut Client, topic: &str, offset: i64) -> (i64, i16) {
    let mut partition = delete_records_request::DeleteRecordsPartition::default();
    partition.partition_index = 0;
    partition.offset = offset;
    let mut wanted = delete_records_request::DeleteRecordsTopic::default();
    wanted.name = topic::name(topic);
    wanted.partitions = vec![partition];
    let mut request = DeleteRecordsRequest::default();
    request.timeout_ms = 10_000;
    request.topics = vec![wanted];
    let response = client.call(2, &request);
    let answer = &response.topics[0].partitions[0];
    (answer.low_watermark, answer.error_code)
}

#[test]
fn deleted_records_are_gone_and_stay_gone_over_a_restart() {
    let mut node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "t", 1, &[]);
    topic::create(&mut client, "compacted", 1, &[("cleanup.policy", "compact")]);
    for number in 0..10 {
        produce(&mut client, "t", 0, batch(None, &[number.to_string()])).unwrap();
    }
    assert_eq!(delete_records(&mut client, "t", 4), (4, 0));
    assert_eq!(delete_records(&mut client, "t", 2), (4, 0));
    assert_eq!(delete_records(&mut client, "t", 11), (-1, 1));
    assert_eq!(delete_records(&mut client, "compacted", 0), (-1, 44));
    assert_eq!(delete_records(&mut client, "missing", 0), (-1, 3));
    assert_eq!(delete_records(&mut client, "__consumer_offsets", 0), (-1, 3));
    drop(client);
    node.terminate();
    node.start_again();
    let mut client = Client::connect(node.address());
    let fetched = client.call(topic::FETCH, &topic::fetch_request("t", 0, 3, 0));
    assert_eq!(fetched.responses[0].partitions[0].error_code, 1);
    let fetched = client.call(topic::FETCH, &topic::fetch_request("t", 0, 4, 0));
    assert_eq!(fetched.responses[0].partitions[0].log_start_offset, 4);
    assert_eq!(delete_records(&mut client, "t", -1), (10, 0));
    produce(&mut client, "t", 0, batch(None, &["next".to_owned()])).unwrap();
    let fetched = client.call(topic::FETCH, &topic::fetch_request("t", 0, 10, 0));
    assert_eq!(fetched.responses[0].partitions[0].high_watermark, 11);
}

#[test]
fn log_dirs_tell_what_lies_in_them_and_how_much_room_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let dirs = ["one", "two"].map(|name| directory.path().join(name).display().to_string());
    let node = Node::start(&[("log.dirs", &dirs.join(","))]);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "t", 4, &[]);
    produce(&mut client, "t", 0, batch(None, &["value".to_owned()])).unwrap();
    let response = client.call(5, &DescribeLogDirsRequest::default().with_topics(None));
    assert_eq!(response.error_code, 0);
    assert_eq!(response.results.len(), 2);
    let mut size = 0;
    for (result, dir) in response.results.iter().zip(&dirs) {
        assert_eq!((&*result.log_dir, result.error_code), (dir.as_str(), 0));
        assert!(
            result.total_bytes > 0 && result.usable_bytes > 0 && result.usable_bytes <= result.total_bytes
        );
        assert!(!result.is_cordoned);
        let partitions: Vec<_> = result.topics.iter().flat_map(|topic| &topic.partitions).collect();
        assert_eq!(partitions.len(), 2, "placement by count");
        assert!(
            partitions
                .iter()
                .all(|partition| partition.offset_lag == 0 && !partition.is_future_key)
        );
        size += partitions
            .iter()
            .map(|partition| partition.partition_size)
            .sum::<i64>();
    }
    assert!(size > 0);
    let mut wanted = describe_log_dirs_request::DescribableLogDirTopic::default();
    wanted.topic = topic::name("t");
    wanted.partitions = vec![3];
    let response = client.call(
        1,
        &DescribeLogDirsRequest::default().with_topics(Some(vec![wanted])),
    );
    let found: Vec<_> = response
        .results
        .iter()
        .flat_map(|result| &result.topics)
        .collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].partitions.len(), 1);
    assert_eq!(found[0].partitions[0].partition_index, 3);
    let values: Vec<String> = read_all(node.address(), "t", 0).iter().map(value_of).collect();
    assert_eq!(values, ["value"]);
}
