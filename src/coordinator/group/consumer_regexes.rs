//! Topics that a group subscribes to by regular expressions: which ones are resolved, when, and what comes of it. Pure.
//!
//! All patterns of a group are resolved together, beside the heartbeat that wants it: when a pattern is new, when topics
//! were created since, and after a while; but not more often than every ten seconds. Members get the topics with a later
//! heartbeat, as after any other change of the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::consumer_group::{ResolvedRegex, subscribe_by_regex};
use super::consumer_member::ConsumerMember;
use super::consumer_protocol::Consumer;
use super::consumer_records as records;
use super::shard::{GroupOutcome, GroupShard};
use super::subscription_regex::SubscriptionRegex;
use crate::coordinator::runtime::shard::OperationContext;
use crate::metadata::MetadataImage;
use crate::protocol::{ApiError, ErrorCode, StrBytes};

/// Kafka's `REGEX_BATCH_REFRESH_MIN_INTERVAL_MS`.
const REFRESH_INTERVAL_MIN_MS: i64 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegexUpdate {
    NoChange,
    Updated,
    /// And what the new one matches is known already.
    UpdatedAndResolved,
}

impl RegexUpdate {
    pub(super) fn is_updated(self) -> bool {
        self != Self::NoChange
    }

    pub(super) fn is_resolved(self) -> bool {
        self == Self::UpdatedAndResolved
    }
}

impl Consumer<'_> {
    /// Finds out what a member's request changes about the patterns, and has them resolved if it is time.
    pub(super) fn update_regexes(
        &mut self,
        member: &ConsumerMember,
        updated: &ConsumerMember,
    ) -> Result<RegexUpdate, ApiError> {
        let mut update = RegexUpdate::NoChange;
        let mut is_unknown = false;
        if member.subscribed_topic_regex != updated.subscribed_topic_regex {
            update = RegexUpdate::Updated;
            if let Some(old) = member.regex()
                && self.group.subscribers_of_regex(old) == 1
            {
                let record = records::regular_expression_tombstone(self.group_id(), old);
                self.records.push(record);
            }
            match updated.regex() {
                Some(new) if self.group.subscribers_of_regex(new) == 0 => {
                    validate(new)?;
                    is_unknown = true;
                }
                Some(new) if self.group.regexes().contains_key(new) => {
                    update = RegexUpdate::UpdatedAndResolved;
                }
                None if member.regex().is_some() => update = RegexUpdate::UpdatedAndResolved,
                Some(_) | None => {}
            }
        }
        self.maybe_resolve(member, updated, is_unknown);
        Ok(update)
    }

    fn maybe_resolve(&mut self, member: &ConsumerMember, updated: &ConsumerMember, is_unknown: bool) {
        let group = self.group;
        if (!is_unknown && group.subscribed_regexes().is_empty()) || self.is_resolving {
            return;
        }
        let any = group.regexes().values().next();
        let last_ms = any.map_or(i64::MIN, |resolved| resolved.timestamp_ms);
        // The clock may have been put back since.
        let is_early = self.now_ms < last_ms;
        if any.is_some() && !is_early && self.now_ms <= last_ms.saturating_add(REFRESH_INTERVAL_MIN_MS) {
            return;
        }
        let subscribed = group.regexes_with(member, updated);
        let version = any.map_or(0, |resolved| resolved.version);
        let is_due = is_unknown
            || subscribed.len() != group.regexes().len()
            || version < self.new_topics_version
            || is_early
            || self.now_ms > last_ms.saturating_add(self.config.consumer_group_regex_refresh_interval_ms);
        if is_due && !subscribed.is_empty() {
            self.resolve = Some(subscribed.into_keys().collect());
        }
    }
}

fn validate(regex: &StrBytes) -> Result<(), ApiError> {
    match SubscriptionRegex::new(regex) {
        Ok(_) => Ok(()),
        Err(error) => Err(ApiError::new(
            ErrorCode::InvalidRegularExpression,
            format!("SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."),
        )),
    }
}

/// What the patterns match now. One that cannot be read matches nothing.
fn resolve(
    regexes: &[StrBytes],
    image: &MetadataImage,
    now_ms: i64,
) -> BTreeMap<StrBytes, Arc<ResolvedRegex>> {
    let resolve_one = |regex: &StrBytes| {
        let topics: BTreeSet<StrBytes> = match SubscriptionRegex::new(regex) {
            Ok(pattern) => image
                .topics
                .iter()
                .filter(|topic| pattern.matches(&topic.name))
                .map(|topic| StrBytes::from_string(topic.name.to_string()))
                .collect(),
            Err(error) => {
                tracing::error!(%regex, %error, "a regular expression cannot be read; it matches nothing");
                BTreeSet::new()
            }
        };
        Arc::new(ResolvedRegex {
            topics,
            version: image.offset(),
            timestamp_ms: now_ms,
        })
    };
    regexes
        .iter()
        .map(|regex| (regex.clone(), resolve_one(regex)))
        .collect()
}

impl GroupShard {
    /// Writes what the patterns match, and the next group epoch if that changed.
    pub(super) fn resolve_regexes(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        regexes: &[StrBytes],
    ) -> GroupOutcome<()> {
        self.resolving.remove(group_id);
        let resolved = resolve(regexes, &self.image, context.now_ms);
        let Ok(mut consumer) = self.consumer(None, group_id, context.now_ms) else {
            return GroupOutcome::of(());
        };
        let group = consumer.group;
        let mut topics = group.subscribed_topics().clone();
        let mut bump = false;
        // Nobody may want a pattern any more.
        for (regex, new) in resolved {
            if group.subscribers_of_regex(&regex) == 0 {
                continue;
            }
            let old = group.regexes().get(&regex);
            let is_same = match old {
                Some(old) => old.topics == new.topics,
                None => new.topics.is_empty(),
            };
            if !is_same {
                bump = true;
                if let Some(old) = old {
                    subscribe_by_regex(&mut topics, old, false);
                }
                subscribe_by_regex(&mut topics, &new, true);
            }
            let record = records::regular_expression(group_id, &regex, &new);
            consumer.records.push(record);
        }
        let hash = consumer.hashes.group_hash(&topics, consumer.image);
        bump |= hash != group.metadata_hash();
        let refreshed = bump.then(|| group.group_epoch() + 1);
        if let Some(epoch) = refreshed {
            consumer.records.push(records::group_epoch(group_id, epoch, hash));
        }
        let written = consumer.records;
        let mut effects = Vec::new();
        self.remember_work(context, group_id, refreshed, None, &mut effects);
        GroupOutcome::with_records(written, ())
    }
}
