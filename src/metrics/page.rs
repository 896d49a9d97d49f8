//! The text that Prometheus reads, with names as the usual rules of its JMX exporter make them of Kafka's MBeans:
//! `kafka.log:type=LogManager,name=OfflineLogDirectoryCount` is `kafka_log_logmanager_offlinelogdirectorycount`.

use std::fmt::Write;

/// A page in the making.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

/// One value of a gauge, and the MBean's further keys.
pub type Sample<'a> = (&'a [(&'a str, &'a str)], f64);

impl Page {
    /// The gauge of the MBean `domain:type=kind,name=name`. Without a sample it is left out.
    pub fn gauge<'a>(
        &mut self,
        (domain, kind, name): (&str, &str, &str),
        samples: impl IntoIterator<Item = Sample<'a>>,
    ) {
        let full_name = exported(&format!("{domain}_{kind}_{name}"));
        for (index, (labels, value)) in samples.into_iter().enumerate() {
            if index == 0 {
                self.line(format_args!(
                    "# HELP {full_name} {domain}:type={kind},name={name}"
                ));
                self.line(format_args!("# TYPE {full_name} gauge"));
            }
            let labels: Vec<String> = labels
                .iter()
                .map(|(key, value)| format!("{}=\"{}\"", exported(key), escaped(value)))
                .collect();
            match labels.is_empty() {
                true => self.line(format_args!("{full_name} {value}")),
                false => self.line(format_args!("{full_name}{{{}}} {value}", labels.join(","))),
            }
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Text has room for whatever comes.
        let _ = writeln!(self.text, "{line}");
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

fn exported(name: &str) -> String {
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    name.chars().map(allowed).collect()
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
