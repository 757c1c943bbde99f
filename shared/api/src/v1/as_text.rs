//! Identifiers and names as JSON strings, without a detour over an allocated text.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{Deserializer, Serializer, de};

pub(super) fn serialize<T: fmt::Display, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_str(Text(PhantomData))
}

struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// The same for fields that may be missing.
pub(super) mod option {
    use super::*;
    use serde::Deserialize;

    pub(in crate::v1) fn serialize<T: fmt::Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::v1) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        let wrapped = Option::<Wrapped<T>>::deserialize(deserializer)?;
        Ok(wrapped.map(|Wrapped(value)| value))
    }
}

/// The same for lists.
pub(super) mod list {
    use super::*;
    use serde::Deserialize;

    pub(in crate::v1) fn serialize<T: fmt::Display, S: Serializer>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(ToString::to_string))
    }

    pub(in crate::v1) fn deserialize<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        let wrapped = Option::<Vec<Wrapped<T>>>::deserialize(deserializer)?;
        let values = wrapped.unwrap_or_default();
        Ok(values.into_iter().map(|Wrapped(value)| value).collect())
    }
}

struct Wrapped<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> serde::Deserialize<'de> for Wrapped<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}
