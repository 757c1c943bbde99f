//! Attribute values: made, read and measured.

use std::{collections::HashMap, fmt::Display};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_types::Blob;
use dueline_ports::StoreError;

/// An item, or some attributes of one.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// Why stored data make no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Bad(pub(crate) String);

impl Bad {
    pub(crate) fn new(why: impl Display) -> Self {
        Self(why.to_string())
    }

    pub(crate) fn of(self, what: impl Display) -> StoreError {
        StoreError::Corrupt(format!("{what}: {self}").into())
    }
}

pub(crate) fn num(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(crate) fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes.as_ref()))
}

/// A random id as it is stored: eight bytes take less room than a number of twenty digits.
pub(crate) fn id_bytes(stored: i64) -> AttributeValue {
    bytes(stored.to_be_bytes())
}

pub(crate) fn get_num(item: &Item, name: &str) -> Result<Option<i64>, Bad> {
    match item.get(name) {
        None => Ok(None),
        Some(AttributeValue::N(digits)) => {
            let number = digits
                .parse()
                .map_err(|_| Bad::new(format!("'{name}' is {digits}")))?;
            Ok(Some(number))
        }
        Some(_) => Err(Bad::new(format!("'{name}' is no number"))),
    }
}

pub(crate) fn get_text<'a>(item: &'a Item, name: &str) -> Result<Option<&'a str>, Bad> {
    match item.get(name) {
        None => Ok(None),
        Some(AttributeValue::S(text)) => Ok(Some(text)),
        Some(_) => Err(Bad::new(format!("'{name}' is no text"))),
    }
}

pub(crate) fn get_bytes<'a>(item: &'a Item, name: &str) -> Result<Option<&'a [u8]>, Bad> {
    match item.get(name) {
        None => Ok(None),
        Some(AttributeValue::B(blob)) => Ok(Some(blob.as_ref())),
        Some(_) => Err(Bad::new(format!("'{name}' is no binary"))),
    }
}

pub(crate) fn get_flag(item: &Item, name: &str) -> bool {
    matches!(item.get(name), Some(AttributeValue::Bool(true)))
}

pub(crate) fn need<T>(found: Option<T>, name: &str) -> Result<T, Bad> {
    found.ok_or_else(|| Bad::new(format!("'{name}' is missing")))
}

/// Bytes that DynamoDB counts for an attribute, its name included. Numbers are rounded up.
pub(crate) fn size_of(name: &str, value: &AttributeValue) -> usize {
    name.len() + value_size(value)
}

fn value_size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::B(blob) => blob.as_ref().len(),
        AttributeValue::N(digits) => digits.len().div_ceil(2) + 1,
        AttributeValue::L(list) => {
            3 + list
                .iter()
                .map(|value| 1 + value_size(value))
                .sum::<usize>()
        }
        AttributeValue::M(map) => {
            let entries = map.iter().map(|(name, value)| 1 + size_of(name, value));
            3 + entries.sum::<usize>()
        }
        AttributeValue::Ss(list) => list.iter().map(String::len).sum(),
        AttributeValue::Ns(list) => list.iter().map(|digits| digits.len().div_ceil(2) + 1).sum(),
        AttributeValue::Bs(list) => list.iter().map(|blob| blob.as_ref().len()).sum(),
        _ => 1,
    }
}

/// Bytes of all attributes.
pub(crate) fn size(item: &Item) -> usize {
    item.iter().map(|(name, value)| size_of(name, value)).sum()
}

/// Write units for an item of `bytes`.
pub(crate) const fn write_units(bytes: usize) -> usize {
    if bytes == 0 { 1 } else { bytes.div_ceil(1024) }
}
