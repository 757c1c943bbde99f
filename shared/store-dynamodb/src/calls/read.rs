//! Reads.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeValue, KeysAndAttributes, ReturnConsumedCapacity as Consumed,
};
use dueline_aws::classify;
use dueline_domain::TaskId;
use dueline_ports::StoreError;

use super::{CallContext, MeteredTable, TRIES_MAX, pause};
use crate::{
    attr::{Item, bytes, get_bytes, get_text, text},
    error, schema,
};

/// Most keys of one request, by DynamoDB's limit.
const BATCH_MAX: usize = 100;

/// The key of an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ItemKey {
    pub(crate) pk: String,
    pub(crate) sk: Vec<u8>,
}

impl ItemKey {
    pub(crate) fn new(pk: impl Into<String>, sk: impl AsRef<[u8]>) -> Self {
        let (pk, sk) = (pk.into(), sk.as_ref().to_vec());
        Self { pk, sk }
    }

    /// The key of an item that was read; `None` if it does not have a key of this table.
    pub(crate) fn of(item: &Item) -> Option<Self> {
        let partition = get_text(item, schema::PK).ok()??;
        Some(Self::new(partition, get_bytes(item, schema::SK).ok()??))
    }

    /// The task whose item has this key; `None` for a blob and for all other items.
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

/// The sort keys that a query reads.
#[derive(Clone, Debug, Default)]
pub(crate) enum SortRange {
    #[default]
    All,
    Below(AttributeValue),
    From(AttributeValue),
    /// From the first to the second, both included.
    Between(AttributeValue, AttributeValue),
    BeginsWith(AttributeValue),
}

/// A query of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryRequest<'a> {
    pub(crate) partition: &'a str,
    /// Whether the due index is queried instead of the table.
    pub(crate) due: bool,
    pub(crate) range: SortRange,
    pub(crate) newest_first: bool,
    pub(crate) limit: Option<usize>,
    pub(crate) after: Option<Item>,
    pub(crate) consistent: bool,
    /// Attributes to return; empty for all.
    pub(crate) attributes: &'a [&'a str],
    /// Leaves out items without this attribute. They are charged all the same.
    pub(crate) with_attribute: Option<&'a str>,
}

/// A page of a query. An empty page need not be the last one.
#[derive(Debug, Default)]
pub(crate) struct QueryPage {
    pub(crate) items: Vec<Item>,
    /// Where the next page begins; `None` at the end.
    pub(crate) next: Option<Item>,
    pub(crate) read_units: f64,
}

impl MeteredTable {
    pub(crate) async fn get(
        &self,
        context: CallContext<'_>,
        key: &ItemKey,
        consistent: bool,
    ) -> Result<Option<Item>, StoreError> {
        let call = self.client.get_item().table_name(&*self.name);
        let call = call.set_key(Some(key.item())).consistent_read(consistent);
        let sent = Box::pin(call.return_consumed_capacity(Consumed::Indexes).send()).await;
        match sent {
            Ok(answer) => {
                self.count_read(context, answer.consumed_capacity());
                Ok(answer.item)
            }
            Err(failed) => {
                let failure = classify(&failed);
                self.count_failed(context, failure.class);
                Err(error::of_read(failure))
            }
        }
    }

    pub(crate) async fn query(
        &self,
        context: CallContext<'_>,
        request: QueryRequest<'_>,
    ) -> Result<QueryPage, StoreError> {
        let (hash, range) = if request.due {
            (schema::DUE_KEY, schema::DUE_HINT)
        } else {
            (schema::PK, schema::SK)
        };
        let mut condition = "#hash = :hash".to_owned();
        let mut call = self.client.query().table_name(&*self.name);
        let bound = match request.range {
            SortRange::All => None,
            SortRange::Below(bound) => Some((" AND #range < :bound", bound)),
            SortRange::From(bound) => Some((" AND #range >= :bound", bound)),
            SortRange::Between(first, last) => {
                call = call.expression_attribute_values(":last", last);
                Some((" AND #range BETWEEN :bound AND :last", first))
            }
            SortRange::BeginsWith(bound) => Some((" AND begins_with(#range, :bound)", bound)),
        };
        if let Some((test, bound)) = bound {
            condition.push_str(test);
            call = call.expression_attribute_names("#range", range);
            call = call.expression_attribute_values(":bound", bound);
        }
        if !request.attributes.is_empty() {
            let names: Vec<_> = (0..request.attributes.len())
                .map(|n| format!("#a{n}"))
                .collect();
            for (alias, name) in names.iter().zip(request.attributes) {
                call = call.expression_attribute_names(alias, *name);
            }
            call = call.projection_expression(names.join(", "));
        }
        if let Some(attribute) = request.with_attribute {
            call = call.expression_attribute_names("#with", attribute);
            call = call.filter_expression("attribute_exists(#with)");
        }
        let limit = request
            .limit
            .map(|max| i32::try_from(max).unwrap_or(i32::MAX));
        let call = call
            .set_index_name(request.due.then(|| schema::DUE_INDEX.to_owned()))
            .key_condition_expression(condition)
            .expression_attribute_names("#hash", hash)
            .expression_attribute_values(":hash", text(request.partition))
            .scan_index_forward(!request.newest_first)
            .set_limit(limit)
            .set_exclusive_start_key(request.after)
            .consistent_read(request.consistent)
            .return_consumed_capacity(Consumed::Indexes);
        match Box::pin(call.send()).await {
            Ok(answer) => {
                self.count_read(context, answer.consumed_capacity());
                let used = answer.consumed_capacity();
                let read_units = used.and_then(|used| used.capacity_units());
                Ok(QueryPage {
                    items: answer.items.unwrap_or_default(),
                    next: answer.last_evaluated_key.filter(|key| !key.is_empty()),
                    read_units: read_units.unwrap_or_default(),
                })
            }
            Err(failed) => {
                let failure = classify(&failed);
                self.count_failed(context, failure.class);
                Err(error::of_read(failure))
            }
        }
    }

    /// The items of all pages of a query, up to about `max`.
    pub(crate) async fn query_all(
        &self,
        context: CallContext<'_>,
        request: QueryRequest<'_>,
        max: usize,
    ) -> Result<Vec<Item>, StoreError> {
        let (mut items, mut after) = (Vec::new(), request.after.clone());
        loop {
            let request = QueryRequest {
                after,
                ..request.clone()
            };
            let page = self.query(context, request).await?;
            items.extend(page.items);
            after = page.next;
            if after.is_none() || items.len() >= max {
                return Ok(items);
            }
        }
    }

    /// Items by their keys, in any order; missing ones are left out.
    pub(crate) async fn get_many(
        &self,
        context: CallContext<'_>,
        keys: &[ItemKey],
        attributes: &[&str],
        consistent: bool,
    ) -> Result<Vec<Item>, StoreError> {
        let mut found = Vec::new();
        for keys in keys.chunks(BATCH_MAX) {
            self.get_batch(context, keys, attributes, consistent, &mut found)
                .await?;
        }
        Ok(found)
    }

    /// Reads up to [`BATCH_MAX`] items. Keys that DynamoDB leaves unprocessed, because it is busy or the answer would
    /// be too long, are requested again.
    async fn get_batch(
        &self,
        context: CallContext<'_>,
        keys: &[ItemKey],
        attributes: &[&str],
        consistent: bool,
        found: &mut Vec<Item>,
    ) -> Result<(), StoreError> {
        let mut request = KeysAndAttributes::builder().consistent_read(consistent);
        for key in keys {
            request = request.keys(key.item());
        }
        let mut aliases = Vec::new();
        for (n, name) in attributes.iter().enumerate() {
            let alias = format!("#a{n}");
            request = request.expression_attribute_names(&alias, *name);
            aliases.push(alias);
        }
        if !aliases.is_empty() {
            request = request.projection_expression(aliases.join(", "));
        }
        let request = request
            .build()
            .map_err(|error| StoreError::Invalid(error.to_string().into()))?;
        let mut left = HashMap::from([(self.name.to_string(), request)]);
        let mut tries = 0;
        while !left.is_empty() {
            let call = self.client.batch_get_item().set_request_items(Some(left));
            let sent = call.return_consumed_capacity(Consumed::Indexes).send();
            let answer = match Box::pin(sent).await {
                Ok(answer) => answer,
                Err(failed) => {
                    let failure = classify(&failed);
                    self.count_failed(context, failure.class);
                    return Err(error::of_read(failure));
                }
            };
            self.count_read(context, answer.consumed_capacity());
            let items = answer.responses.into_iter().flatten();
            let before = found.len();
            found.extend(items.flat_map(|(_, items)| items));
            left = answer.unprocessed_keys.unwrap_or_default();
            left.retain(|_, keys| !keys.keys().is_empty());
            if left.is_empty() {
                break;
            }
            // Only an answer without items counts as a failed try: a long answer comes in several pieces.
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
