//! Attribute values: how they are made, read and measured.

use std::{collections::HashMap, fmt::Display};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_types::Blob;
use dueline_ports::StoreError;

/// An item, or some attributes of one.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// Why stored data cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidData(pub(crate) String);

impl InvalidData {
    pub(crate) fn new(why: impl Display) -> Self {
        Self(why.to_string())
    }

    /// The error of the store; `what` names the item.
    pub(crate) fn into_error(self, what: impl Display) -> StoreError {
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

/// A random id as it is stored: eight bytes are smaller than a number of twenty digits.
pub(crate) fn id_bytes(stored: i64) -> AttributeValue {
    bytes(stored.to_be_bytes())
}

pub(crate) fn get_num(item: &Item, name: &str) -> Result<Option<i64>, InvalidData> {
    match item.get(name) {
        None => Ok(None),
        Some(AttributeValue::N(digits)) => {
            let number = digits
                .parse()
                .map_err(|_| InvalidData::new(format!("'{name}' is {digits}")))?;
            Ok(Some(number))
        }
        Some(_) => Err(InvalidData::new(format!("'{name}' is not a number"))),
    }
}

pub(crate) fn get_text<'a>(item: &'a Item, name: &str) -> Result<Option<&'a str>, InvalidData> {
    match item.get(name) {
        None => Ok(None),
        Some(AttributeValue::S(text)) => Ok(Some(text)),
        Some(_) => Err(InvalidData::new(format!("'{name}' is not a text"))),
    }
}

pub(crate) fn get_bytes<'a>(item: &'a Item, name: &str) -> Result<Option<&'a [u8]>, InvalidData> {
    match item.get(name) {
        None => Ok(None),
        Some(AttributeValue::B(blob)) => Ok(Some(blob.as_ref())),
        Some(_) => Err(InvalidData::new(format!("'{name}' is not binary"))),
    }
}

pub(crate) fn get_flag(item: &Item, name: &str) -> bool {
    matches!(item.get(name), Some(AttributeValue::Bool(true)))
}

pub(crate) fn required<T>(found: Option<T>, name: &str) -> Result<T, InvalidData> {
    found.ok_or_else(|| InvalidData::new(format!("'{name}' is missing")))
}

/// Size of an attribute as DynamoDB counts it, its name included. Numbers are rounded up.
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

/// Size of all attributes.
pub(crate) fn size(item: &Item) -> usize {
    item.iter().map(|(name, value)| size_of(name, value)).sum()
}

/// Write units for an item of `bytes`.
pub(crate) const fn write_units(bytes: usize) -> usize {
    if bytes == 0 { 1 } else { bytes.div_ceil(1024) }
}
