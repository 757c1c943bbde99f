//! `scheme:path?option=value&…`, no more than backends need.

/// A URI taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uri<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) path: &'a str,
    pub(crate) options: Vec<(&'a str, &'a str)>,
}

impl<'a> Uri<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once(':')?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if scheme.is_empty() || path.is_empty() {
            return None;
        }
        let options = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        Some(Self {
            scheme,
            path,
            options,
        })
    }
}
