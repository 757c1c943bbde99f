//! A parser for URIs of the form `scheme:path?option=value&…`, limited to what backends need.

use std::{fmt::Display, str::FromStr};

use crate::BackendError;

/// A parsed URI. Options are removed as they are read; an option that remains at the end is unknown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uri<'a> {
    whole: &'a str,
    pub(crate) scheme: &'a str,
    pub(crate) path: &'a str,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Uri<'a> {
    /// Parses a URI. `None` if it has no scheme.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once(':')?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if scheme.is_empty() {
            return None;
        }
        let options = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        Some(Self {
            whole: text,
            scheme,
            path,
            options,
        })
    }

    /// Removes an option and returns its value; the last one if it is repeated.
    pub(crate) fn option(&mut self, name: &str) -> Option<&'a str> {
        let found = self.options.iter().rev().find(|(known, _)| *known == name);
        let value = found.map(|(_, value)| *value);
        self.options.retain(|(known, _)| *known != name);
        value
    }

    /// As [`Uri::option`], with the value parsed.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, BackendError> {
        let Some(value) = self.option(name) else {
            return Ok(None);
        };
        value
            .parse()
            .map(Some)
            .map_err(|_| wrong_value(name, value, expected))
    }

    /// Fails if an option remains that was not read.
    pub(crate) fn end(self, known: &'static str) -> Result<(), BackendError> {
        match self.options.first() {
            None => Ok(()),
            Some((option, _)) => Err(BackendError::UnknownOption {
                uri: self.whole.to_owned(),
                option: (*option).to_owned(),
                known,
            }),
        }
    }
}

pub(crate) fn wrong_value(
    option: &'static str,
    value: &str,
    expected: &'static str,
) -> BackendError {
    BackendError::OptionValue {
        option,
        value: value.to_owned(),
        expected,
    }
}
