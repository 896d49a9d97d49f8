use super::server::{Asked, judge};
use super::*;

#[test]
fn gauges_have_the_names_that_the_jmx_exporter_gives_them() {
    let mut registry = Registry::default();
    registry.add(|page| {
        let labels = [("logDirectory", "/a \"b\"\\c\nd")];
        let name = ("kafka.log", "LogCleanerManager", "uncleanable-partitions-count");
        page.gauge(name, [(&labels[..], 2.0), (&[][..], 0.5)]);
        page.gauge(("kafka.log", "LogManager", "Nothing"), []);
    });
    assert_eq!(
        registry.page(),
        "# HELP kafka_log_logcleanermanager_uncleanable_partitions_count \
         kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count\n\
         # TYPE kafka_log_logcleanermanager_uncleanable_partitions_count gauge\n\
         kafka_log_logcleanermanager_uncleanable_partitions_count{logdirectory=\"/a \\\"b\\\"\\\\c\\nd\"} 2\n\
         kafka_log_logcleanermanager_uncleanable_partitions_count 0.5\n"
    );
}

#[test]
fn request_for_anything_but_the_page_is_refused() {
    let cases: &[(&[u8], Result<Asked, &str>)] = &[
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Ok(Asked::Page)),
        (b"GET /metrics?name[]=x HTTP/1.0\r\n\r\n", Ok(Asked::Page)),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", Ok(Asked::HeadAlone)),
        (b"HEAD / HTTP/1.1\r\n\r\n", Err("404 Not Found")),
        (b"POST /metrics HTTP/1.1\r\n\r\n", Err("405 Method Not Allowed")),
        (b"GET / HTTP/1.1\r\n\r\n", Err("404 Not Found")),
        (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", Err("404 Not Found")),
        (b"GET /metrics HTTP/2\r\n\r\n", Err("400 Bad Request")),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n", Err("400 Bad Request")),
        (b"GET\r\n\r\n", Err("400 Bad Request")),
        (b"", Err("400 Bad Request")),
        (b"\0\0\0\x12\xff\xfe\r\n\r\n", Err("400 Bad Request")),
    ];
    for (request, expected) in cases {
        assert_eq!(judge(request), *expected, "{}", String::from_utf8_lossy(request));
    }
}
