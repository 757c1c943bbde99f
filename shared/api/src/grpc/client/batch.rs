//! Batches of any size in messages of a bounded one.

use prost::Message;

use crate::{
    ApiError, ErrorKind, ErrorReason,
    grpc::{
        convert::bad_answer,
        message::{CHUNK_BYTES_MAX, ENTRY_BYTES_MAX},
    },
};

/// Sends entries in order, in as many messages as it takes. After a message that failed in a way that may pass, the
/// rest is not sent: its entries answer that they surely took no effect.
pub(crate) async fn send_in_chunks<W, A, F>(
    entries: Vec<W>,
    len_max: usize,
    mut send: impl FnMut(Vec<W>) -> F,
) -> Vec<Result<A, ApiError>>
where
    W: Message,
    F: Future<Output = Vec<Result<A, ApiError>>>,
{
    let mut answers = Vec::with_capacity(entries.len());
    let mut failed: Option<ApiError> = None;
    let mut entries = entries.into_iter().peekable();
    while entries.peek().is_some() {
        let (mut chunk, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        while chunk.len() < len_max && bytes < CHUNK_BYTES_MAX {
            let Some(entry) = entries.next() else {
                break;
            };
            let entry_bytes = entry.encoded_len();
            if entry_bytes > ENTRY_BYTES_MAX {
                places.push(Err(too_large(entry_bytes)));
                continue;
            }
            bytes += entry_bytes;
            chunk.push(entry);
            places.push(Ok(()));
        }
        let asked = chunk.len();
        let sent = match &failed {
            _ if asked == 0 => Vec::new(),
            Some(error) => not_sent(asked, error),
            None => send(chunk).await,
        };
        if failed.is_none() {
            failed = whole_failure(&sent);
        }
        let mut sent = sent.into_iter();
        let place = |place: Result<(), ApiError>| match place {
            Ok(()) => sent.next().unwrap_or_else(|| Err(missing())),
            Err(error) => Err(error),
        };
        answers.extend(places.into_iter().map(place));
    }
    answers
}

/// The answers to one message: those of the server, or the failure of the call for each entry.
pub(crate) fn answers<W, A>(
    asked: usize,
    answered: Result<Vec<W>, ApiError>,
    read: impl Fn(W) -> Result<A, ApiError>,
) -> Vec<Result<A, ApiError>> {
    match answered {
        Err(error) => vec_of(asked, &error),
        Ok(results) if results.len() != asked => vec_of(asked, &missing()),
        Ok(results) => results.into_iter().map(read).collect(),
    }
}

/// A value of an answer, where no value is as bad as a wrong one.
pub(crate) fn value<W, A>(value: Option<W>) -> Result<A, ApiError>
where
    A: TryFrom<W, Error = ApiError>,
{
    let value = value.ok_or_else(missing)?;
    A::try_from(value).map_err(|error| bad_answer(&error))
}

/// All values of an answer.
pub(crate) fn values<W, A>(values: Vec<W>) -> Result<Vec<A>, ApiError>
where
    A: TryFrom<W, Error = ApiError>,
{
    let values = values.into_iter().map(A::try_from);
    values
        .collect::<Result<_, _>>()
        .map_err(|error| bad_answer(&error))
}

/// The server left something out that every answer holds.
pub(crate) fn missing() -> ApiError {
    bad_answer(&ApiError::invalid(
        "answer",
        ErrorReason::Missing,
        "is incomplete",
    ))
}

/// The same error for each entry.
pub(super) fn vec_of<A>(len: usize, error: &ApiError) -> Vec<Result<A, ApiError>> {
    (0..len).map(|_| Err(error.clone())).collect()
}

/// The error that all entries have in common, if it may pass.
fn whole_failure<A>(answers: &[Result<A, ApiError>]) -> Option<ApiError> {
    let first = answers.first()?.as_ref().err()?;
    let same = |answer: &Result<A, ApiError>| answer.as_ref().err() == Some(first);
    (first.is_retryable() && answers.iter().all(same)).then(|| first.clone())
}

fn not_sent<A>(len: usize, error: &ApiError) -> Vec<Result<A, ApiError>> {
    let text = format!("not sent after an earlier part of the batch had failed: {error}");
    let mut later = ApiError::new(ErrorKind::Unavailable, ErrorReason::NotSent, text);
    if let Some(after) = error.retry_after() {
        later = later.with_retry_after(after);
    }
    vec_of(len, &later)
}

fn too_large(bytes: usize) -> ApiError {
    let text = format!("makes an entry of {bytes} bytes; at most {ENTRY_BYTES_MAX} are sent");
    ApiError::invalid("payload", ErrorReason::TooLarge, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::proto;

    fn entries(sizes: &[usize]) -> Vec<proto::Checkpoint> {
        let entry = |size: &usize| proto::Checkpoint {
            payload: vec![0; *size].into(),
        };
        sizes.iter().map(entry).collect()
    }

    #[tokio::test]
    async fn batches_are_cut_by_length_and_bytes_and_answers_keep_their_places() {
        let mut sent = Vec::new();
        let huge = ENTRY_BYTES_MAX + 1;
        let answers = send_in_chunks(entries(&[1, 2, huge, 3]), 2, |chunk| {
            sent.push(chunk.len());
            async move { chunk.into_iter().map(|e| Ok(e.payload.len())).collect() }
        })
        .await;
        assert_eq!(sent, [2, 1]);
        let sizes: Vec<_> = answers.iter().map(|a| a.as_ref().ok().copied()).collect();
        assert_eq!(sizes, [Some(1), Some(2), None, Some(3)]);

        let mut sent = Vec::new();
        let quarter = ENTRY_BYTES_MAX / 4;
        let _: Vec<Result<(), _>> = send_in_chunks(entries(&[quarter; 100]), 1_000, |chunk| {
            sent.push(chunk.iter().map(Message::encoded_len).sum::<usize>());
            async move { chunk.into_iter().map(|_| Ok(())).collect() }
        })
        .await;
        assert_eq!(sent.len(), 2);
        assert!(sent[0] < CHUNK_BYTES_MAX + ENTRY_BYTES_MAX, "{sent:?}");
    }

    #[tokio::test]
    async fn after_a_lost_part_the_rest_surely_took_no_effect() {
        let mut sent = 0;
        let lost = ApiError::new(ErrorKind::Deadline, ErrorReason::AnswerLost, "gone");
        let answers: Vec<Result<(), _>> = send_in_chunks(entries(&[1, 1, 1]), 2, |chunk| {
            sent += 1;
            let answers = vec_of(chunk.len(), &lost);
            async move { answers }
        })
        .await;
        assert_eq!(sent, 1);
        let kinds: Vec<_> = answers.into_iter().map(|a| a.unwrap_err().kind()).collect();
        assert_eq!(
            kinds,
            [
                ErrorKind::Deadline,
                ErrorKind::Deadline,
                ErrorKind::Unavailable
            ]
        );
    }
}
