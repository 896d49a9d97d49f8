//! The names of partitions' folders: `<topic>-<partition>`, and with a suffix those that are deleted, stray or on their way
//! from another log directory (`<topic>-<partition>.<32 hex digits>-delete`, `-stray`, `-future`). Pure.

use uuid::Uuid;

use super::TopicPartition;

/// A name of a file may have as many bytes.
const NAME_LENGTH_MAX: usize = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderKind {
    Current,
    Deleted,
    Stray,
    Future,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    pub name: String,
    pub topic_partition: TopicPartition,
    pub kind: FolderKind,
}

const SUFFIXES: [(&str, FolderKind); 3] = [
    ("-delete", FolderKind::Deleted),
    ("-stray", FolderKind::Stray),
    ("-future", FolderKind::Future),
];

impl Folder {
    /// `None` for a folder that is none of a partition.
    pub fn parse(name: &str) -> Option<Self> {
        let (stem, kind) = SUFFIXES
            .iter()
            .find_map(|(suffix, kind)| {
                // `<topic>-<partition>.<unique id>`; a topic may well be named `a-delete`.
                let (stem, unique) = name.strip_suffix(suffix)?.rsplit_once('.')?;
                (!unique.is_empty() && !unique.contains('-')).then_some((stem, *kind))
            })
            .unwrap_or((name, FolderKind::Current));
        let (topic, partition) = stem.rsplit_once('-')?;
        let partition: i32 = partition.parse().ok().filter(|partition| *partition >= 0)?;
        if topic.is_empty() {
            return None;
        }
        Some(Self {
            name: name.to_owned(),
            topic_partition: TopicPartition::new(topic, partition),
            kind,
        })
    }

    /// The whole topic: a start reads it. See `future_name_fits`.
    pub fn future_name(topic_partition: &TopicPartition, unique: Uuid) -> String {
        format!("{topic_partition}.{}-future", unique.simple())
    }

    /// A topic's name may be too long for the folder of a move (KAFKA-4893).
    pub fn future_name_fits(topic_partition: &TopicPartition) -> bool {
        Self::future_name(topic_partition, Uuid::nil()).len() <= NAME_LENGTH_MAX
    }

    pub fn deleted_name(topic_partition: &TopicPartition, unique: Uuid) -> String {
        Self::suffixed_name(topic_partition, &format!(".{}-delete", unique.simple()))
    }

    pub fn stray_name(topic_partition: &TopicPartition, unique: Uuid) -> String {
        Self::suffixed_name(topic_partition, &format!(".{}-stray", unique.simple()))
    }

    /// Cuts the topic so that the whole fits: nobody needs it any more.
    fn suffixed_name(topic_partition: &TopicPartition, suffix: &str) -> String {
        let suffix = format!("-{}{suffix}", topic_partition.partition);
        let room = NAME_LENGTH_MAX - suffix.len();
        let topic: String = topic_partition.topic.chars().take(room).collect();
        topic + &suffix
    }
}

#[cfg(test)]
#[path = "log_folder_test.rs"]
mod log_folder_test;
