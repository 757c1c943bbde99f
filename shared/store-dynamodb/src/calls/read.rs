//! Reads.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeValue, KeysAndAttributes, ReturnConsumedCapacity as Consumed,
};
use dueline_aws::classify;
use dueline_domain::TaskId;
use dueline_ports::StoreError;

use super::{For, TRIES_MAX, Table, pause};
use crate::{
    attr::{Item, bytes, get_bytes, get_text, text},
    error, schema,
};

/// Keys of one request, by DynamoDB's limit.
const BATCH_MAX: usize = 100;

/// An item's place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) pk: String,
    pub(crate) sk: Vec<u8>,
}

impl Key {
    pub(crate) fn new(pk: impl Into<String>, sk: impl AsRef<[u8]>) -> Self {
        let (pk, sk) = (pk.into(), sk.as_ref().to_vec());
        Self { pk, sk }
    }

    /// The place of an item that was read; `None` if its key is not ours.
    pub(crate) fn of(item: &Item) -> Option<Self> {
        let partition = get_text(item, schema::PK).ok()??;
        Some(Self::new(partition, get_bytes(item, schema::SK).ok()??))
    }

    /// The task whose own item lies here; `None` for a part of one, and for everything else.
    pub(crate) fn task(&self) -> Option<TaskId> {
        let id = <[u8; 16]>::try_from(self.sk.as_slice()).ok()?;
        Some(TaskId::from_bytes(id))
    }

    pub(crate) fn item(&self) -> Item {
        Item::from([
            (schema::PK.into(), text(&self.pk)),
            (schema::SK.into(), bytes(&self.sk)),
        ])
    }
}

/// Which sort keys a query reads.
#[derive(Clone, Debug, Default)]
pub(crate) enum Range {
    #[default]
    All,
    Below(AttributeValue),
    From(AttributeValue),
}

/// A query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) partition: &'a str,
    /// Of the due index instead of the table.
    pub(crate) due: bool,
    pub(crate) range: Range,
    pub(crate) newest_first: bool,
    pub(crate) limit: Option<usize>,
    pub(crate) after: Option<Item>,
    pub(crate) consistent: bool,
    /// Attributes to answer; empty for all.
    pub(crate) only: &'a [&'a str],
    /// Leaves out items without this attribute; they are paid for.
    pub(crate) having: Option<&'a str>,
}

/// A page of a query. It may be empty and yet not be the last.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) items: Vec<Item>,
    /// Where the next page begins; `None` at the end.
    pub(crate) next: Option<Item>,
    pub(crate) read_units: f64,
}

impl Table {
    pub(crate) async fn get(
        &self,
        of: For<'_>,
        key: &Key,
        consistent: bool,
    ) -> Result<Option<Item>, StoreError> {
        let call = self.client.get_item().table_name(&*self.name);
        let call = call.set_key(Some(key.item())).consistent_read(consistent);
        let sent = Box::pin(call.return_consumed_capacity(Consumed::Indexes).send()).await;
        match sent {
            Ok(answer) => {
                self.count_read(of, answer.consumed_capacity());
                Ok(answer.item)
            }
            Err(failed) => {
                let failure = classify(&failed);
                self.count_failed(of, failure.class);
                Err(error::of_read(failure))
            }
        }
    }

    pub(crate) async fn query(&self, of: For<'_>, ask: Ask<'_>) -> Result<Answer, StoreError> {
        let (hash, range) = if ask.due {
            (schema::DUE_KEY, schema::DUE_HINT)
        } else {
            (schema::PK, schema::SK)
        };
        let mut condition = "#hash = :hash".to_owned();
        let mut call = self.client.query().table_name(&*self.name);
        let bound = match ask.range {
            Range::All => None,
            Range::Below(bound) => Some((" AND #range < :bound", bound)),
            Range::From(bound) => Some((" AND #range >= :bound", bound)),
        };
        if let Some((test, bound)) = bound {
            condition.push_str(test);
            call = call.expression_attribute_names("#range", range);
            call = call.expression_attribute_values(":bound", bound);
        }
        if !ask.only.is_empty() {
            let names: Vec<_> = (0..ask.only.len()).map(|n| format!("#a{n}")).collect();
            for (alias, name) in names.iter().zip(ask.only) {
                call = call.expression_attribute_names(alias, *name);
            }
            call = call.projection_expression(names.join(", "));
        }
        if let Some(having) = ask.having {
            call = call.expression_attribute_names("#having", having);
            call = call.filter_expression("attribute_exists(#having)");
        }
        let limit = ask.limit.map(|max| i32::try_from(max).unwrap_or(i32::MAX));
        let call = call
            .set_index_name(ask.due.then(|| schema::DUE_INDEX.to_owned()))
            .key_condition_expression(condition)
            .expression_attribute_names("#hash", hash)
            .expression_attribute_values(":hash", text(ask.partition))
            .scan_index_forward(!ask.newest_first)
            .set_limit(limit)
            .set_exclusive_start_key(ask.after)
            .consistent_read(ask.consistent)
            .return_consumed_capacity(Consumed::Indexes);
        match Box::pin(call.send()).await {
            Ok(answer) => {
                self.count_read(of, answer.consumed_capacity());
                let used = answer.consumed_capacity();
                let read_units = used.and_then(|used| used.capacity_units());
                Ok(Answer {
                    items: answer.items.unwrap_or_default(),
                    next: answer.last_evaluated_key.filter(|key| !key.is_empty()),
                    read_units: read_units.unwrap_or_default(),
                })
            }
            Err(failed) => {
                let failure = classify(&failed);
                self.count_failed(of, failure.class);
                Err(error::of_read(failure))
            }
        }
    }

    /// All pages of a query, up to about `max` items.
    pub(crate) async fn query_all(
        &self,
        of: For<'_>,
        ask: Ask<'_>,
        max: usize,
    ) -> Result<Vec<Item>, StoreError> {
        let (mut items, mut after) = (Vec::new(), ask.after.clone());
        loop {
            let ask = Ask {
                after,
                ..ask.clone()
            };
            let page = self.query(of, ask).await?;
            items.extend(page.items);
            after = page.next;
            if after.is_none() || items.len() >= max {
                return Ok(items);
            }
        }
    }

    /// Items by their keys, in no order; missing ones are left out.
    pub(crate) async fn get_many(
        &self,
        of: For<'_>,
        keys: &[Key],
        only: &[&str],
        consistent: bool,
    ) -> Result<Vec<Item>, StoreError> {
        let mut found = Vec::new();
        for keys in keys.chunks(BATCH_MAX) {
            self.get_batch(of, keys, only, consistent, &mut found)
                .await?;
        }
        Ok(found)
    }

    /// What DynamoDB leaves out, because it is busy or the answer would be too long, is asked for again.
    async fn get_batch(
        &self,
        of: For<'_>,
        keys: &[Key],
        only: &[&str],
        consistent: bool,
        found: &mut Vec<Item>,
    ) -> Result<(), StoreError> {
        let mut asked = KeysAndAttributes::builder().consistent_read(consistent);
        for key in keys {
            asked = asked.keys(key.item());
        }
        let mut aliases = Vec::new();
        for (n, name) in only.iter().enumerate() {
            let alias = format!("#a{n}");
            asked = asked.expression_attribute_names(&alias, *name);
            aliases.push(alias);
        }
        if !aliases.is_empty() {
            asked = asked.projection_expression(aliases.join(", "));
        }
        let asked = asked
            .build()
            .map_err(|error| StoreError::Invalid(error.to_string().into()))?;
        let mut left = HashMap::from([(self.name.to_string(), asked)]);
        let mut tries = 0;
        while !left.is_empty() {
            let call = self.client.batch_get_item().set_request_items(Some(left));
            let sent = call.return_consumed_capacity(Consumed::Indexes).send();
            let answer = match Box::pin(sent).await {
                Ok(answer) => answer,
                Err(failed) => {
                    let failure = classify(&failed);
                    self.count_failed(of, failure.class);
                    return Err(error::of_read(failure));
                }
            };
            self.count_read(of, answer.consumed_capacity());
            let items = answer.responses.into_iter().flatten();
            let before = found.len();
            found.extend(items.flat_map(|(_, items)| items));
            left = answer.unprocessed_keys.unwrap_or_default();
            left.retain(|_, keys| !keys.keys().is_empty());
            if left.is_empty() {
                break;
            }
            // Progress is not a failed try: a long answer comes in pieces.
            if found.len() == before {
                tries += 1;
                if tries >= TRIES_MAX {
                    return Err(StoreError::Throttled);
                }
                pause(tries).await;
            }
        }
        Ok(())
    }
}
